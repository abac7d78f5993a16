"""The pictures of a report, as SVG. The same numbers give the same bytes."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from beamrank.report.curves import CurvePoint
from beamrank.report.stored_scores import Floats

_SIZE = (7.2, 4.2)
_STYLES = ("-", "--", "-.", ":")


def depth_curve(points: Sequence[CurvePoint], measure: str) -> bytes:
    """Figure 2: a measure against k0."""
    with _figure() as (axes, content):
        ours = [point for point in points if point.figure == 2 and point.measure == measure]
        axes.plot([point.k0 for point in ours], [point.value for point in ours])
        axes.plot(ours[0].k0, ours[0].value, "o", color="tab:gray", label="first stage")
        axes.set(xlabel="inferences per query (k0)", ylabel=measure)
        axes.legend()
    return content.getvalue()


def pair_curves(points: Sequence[CurvePoint], measure: str) -> bytes:
    """Figure 3: a measure against the pairs asked, a line for each aggregation; SAMPLE with its standard deviation."""
    with _figure() as (axes, content):
        ours = [point for point in points if point.figure == 3 and point.measure == measure]
        whole = [point for point in ours if point.opponents is None]
        for number, name in enumerate(dict.fromkeys(point.aggregation for point in whole)):
            line = [point for point in whole if point.aggregation == name]
            axes.plot(*_xy(line), _STYLES[number % len(_STYLES)], marker=".", label=str(name))
        for opponents in dict.fromkeys(point.opponents for point in ours if point.opponents is not None):
            means, spread = (
                [point for point in ours if (point.opponents, point.trial) == (opponents, trial)]
                for trial in ("mean", "sd")
            )
            label = f"sample, m = {opponents}"
            axes.errorbar(*_xy(means), yerr=[point.value for point in spread], marker="x", capsize=2, label=label)
        axes.set(xlabel="inferences per query asked of duo", ylabel=measure)
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1))
    return content.getvalue()


def difference_bars(differences: Sequence[float], measure: str) -> bytes:
    """The difference of each topic, smallest first."""
    with _figure() as (axes, content):
        values = np.array(differences)
        colors = np.where(values < 0, "tab:red", "tab:blue").tolist()
        axes.bar(np.arange(len(values)), values, width=1.0, color=colors)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set(xlabel="topics, sorted by difference", ylabel=f"difference of {measure}")
    return content.getvalue()


def score_histogram(scores: Mapping[int | None, Floats], title: str) -> bytes:
    """The share of docs by score, a line for each label."""
    with _figure() as (axes, content):
        every = np.concatenate(list(scores.values()))
        edges = np.histogram_bin_edges(every, bins=40)
        for label in sorted(scores, key=lambda each: (each is not None, each or 0)):
            counts, _ = np.histogram(scores[label], bins=edges)
            name = "not judged" if label is None else f"label {label}"
            axes.stairs(counts / max(counts.sum(), 1), edges, label=f"{name} ({len(scores[label]):,})")
        axes.set(xlabel=f"score of {title}", ylabel="share of docs")
        axes.legend(fontsize="small")
    return content.getvalue()


def _xy(points: Sequence[CurvePoint]) -> tuple[list[int], list[float]]:
    ordered = sorted(points, key=lambda point: point.inferences_asked)
    return [point.inferences_asked for point in ordered], [point.value for point in ordered]


@contextmanager
def _figure() -> Iterator[tuple[Any, io.BytesIO]]:
    # It takes a second to import.
    import matplotlib
    from matplotlib.figure import Figure

    content = io.BytesIO()
    # Names of runs are no formulas.
    with matplotlib.rc_context({"svg.hashsalt": "beamrank", "svg.fonttype": "path", "text.parse_math": False}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
        axes.grid(alpha=0.3)
        axes.set_prop_cycle(color=matplotlib.color_sequences["tab20"][::2] + matplotlib.color_sequences["tab20"][1::2])
        yield axes, content
        figure.savefig(content, format="svg", transparent=True, metadata={"Date": None})
