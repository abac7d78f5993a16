"""The pictures of a report, as SVG. The same numbers give the same bytes."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from beamrank.report.stored.curves import CurvePoint
from beamrank.report.stored.distributions import Scores
from beamrank.report.trainings import Training, smoothed

# Small, so that its text is readable on a phone too.
_SIZE = (5.8, 4.2)
_LINES = ("-", "--", "-.", ":")
# Names of runs are not formulas.
_STYLE: Any = {"svg.fonttype": "path", "text.parse_math": False, "legend.frameon": False}


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
            axes.plot(*_xy(line), _LINES[number % len(_LINES)], marker=".", label=str(name))
        for opponents in dict.fromkeys(point.opponents for point in ours if point.opponents is not None):
            means, spread = (
                [point for point in ours if (point.opponents, point.trial) == (opponents, trial)]
                for trial in ("mean", "sd")
            )
            label = f"sample, m = {opponents}"
            bars = [point.value for point in spread]
            axes.errorbar(*_xy(means), yerr=bars, marker="x", linewidth=1, elinewidth=0.7, capsize=2, label=label)
        axes.set(xlabel="inferences per query asked of duo", ylabel=measure)
        axes.figure.legend(fontsize="small", loc="outside lower center", ncols=3)
    return content.getvalue()


def depth_pair_curves(points: Sequence[CurvePoint], measure: str) -> bytes:
    """Figure 4: a measure against all inferences, a line for each k1."""
    with _figure() as (axes, content):
        ours = [point for point in points if point.figure == 4 and point.measure == measure]
        for k1 in dict.fromkeys(point.k1 for point in ours):
            axes.plot(*_xy([point for point in ours if point.k1 == k1]), marker=".", label=f"k1 = {k1}")
        axes.set(xlabel="inferences per query, k0 + k1 (k1 - 1)", ylabel=measure)
        axes.legend()
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


def score_histogram(scores: Scores, title: str) -> bytes:
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


def training_curves(trainings: Sequence[Training], measure: str, inputs: str) -> bytes:
    """Figure 1 of Nogueira and Cho 2019: a measure against what was trained on, on a log axis."""
    from matplotlib.ticker import LogLocator, NullFormatter

    with _figure() as (axes, content):
        for each in trainings:
            values = [row.value for row in each.dev]
            axes.plot(each.inputs(each.dev), values, marker=".", label=each.name)
        for given in dict.fromkeys(each.record.given for each in trainings if each.record.given is not None):
            axes.axhline(given, linestyle="--", color="tab:gray", linewidth=1, label=f"as given: {given:.4f}")
        axes.set_xscale("log")
        # The default labels are formulas.
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set(xlabel=inputs, ylabel=measure)
        axes.legend(fontsize="small")
    return content.getvalue()


def learning_curves(trainings: Sequence[Training]) -> bytes:
    """The loss of each training, smoothed, above its learning rate."""
    with _figure(panels=2) as ((losses, rates), content):
        for each in trainings:
            steps = [row.step for row in each.steps]
            losses.plot(steps, smoothed(np.array([row.loss for row in each.steps])), label=each.name)
            rates.plot(steps, [row.learning_rate for row in each.steps])
        losses.set(ylabel="loss")
        rates.set(xlabel="step", ylabel="learning rate")
        losses.legend(fontsize="small")
    return content.getvalue()


def _xy(points: Sequence[CurvePoint]) -> tuple[list[int], list[float]]:
    ordered = sorted(points, key=lambda point: point.inferences_asked)
    return [point.inferences_asked for point in ordered], [point.value for point in ordered]


@contextmanager
def _figure(panels: int = 1) -> Iterator[tuple[Any, io.BytesIO]]:
    # It takes a second to import.
    import matplotlib
    from matplotlib.figure import Figure

    content = io.BytesIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": "beamrank"}):
        figure = Figure(figsize=(_SIZE[0], _SIZE[1] * (1 + 0.4 * (panels - 1))), layout="constrained")
        axes = figure.subplots(panels, 1, sharex=True)
        colors = matplotlib.color_sequences["tab20"][::2] + matplotlib.color_sequences["tab20"][1::2]
        for each in [axes] if panels == 1 else axes:
            each.grid(alpha=0.3)
            each.set_prop_cycle(color=colors)
        yield axes, content
        figure.savefig(content, format="svg", transparent=True, metadata={"Date": None})
