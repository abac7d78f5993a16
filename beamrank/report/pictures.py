"""The pictures of a report, as SVG. The same numbers give the same bytes."""

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamrank.report.curves import CurvePoint
from beamrank.report.runs import Scores
from beamrank.storage.local_files import own_temporary_files
from beamrank.storage.urls import printable

# Small, so that its text is readable on a phone too.
_SIZE = (5.8, 4.2)
_LINES = ("-", "--", "-.", ":")
# Above all other lines.
CONFIGURED: Any = {"zorder": 5, "linewidth": 2.2}
_BINS = 40
_MOST_LABELS = 6
# Names of runs are not formulas.
_STYLE: Any = {
    "svg.fonttype": "path",
    "text.parse_math": False,
    "legend.frameon": False,
    "svg.hashsalt": "beamrank",
}


@contextmanager
def figure(
    panels: int = 1, height: float = _SIZE[1], of_counts: bool = True
) -> Iterator[tuple[Any, io.BytesIO]]:
    """Axes below each other, and the buffer that gets their SVG at the end; `of_counts` if x is a
    count.
    """
    # It takes a second to import. Where it can write to no home, it makes a folder for the process,
    # which `os._exit` would leave behind.
    with own_temporary_files():
        matplotlib = _matplotlib()
        from matplotlib.figure import Figure
        from matplotlib.text import Text
        from matplotlib.ticker import MaxNLocator

    content = io.BytesIO()
    defaults = {key: value for key, value in matplotlib.rcParamsDefault.items() if key != "backend"}
    with matplotlib.rc_context(defaults | _STYLE):
        drawn = Figure(figsize=(_SIZE[0], height), layout="constrained")
        axes = drawn.subplots(panels, 1, sharex=True)
        colors = (
            matplotlib.color_sequences["tab20"][::2] + matplotlib.color_sequences["tab20"][1::2]
        )
        for panel in np.atleast_1d(axes):
            panel.grid(alpha=0.3)
            panel.set_prop_cycle(color=colors)
            if of_counts:
                panel.xaxis.set_major_locator(
                    MaxNLocator(steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)
                )
        yield axes, content
        # No font has the bytes of a name that are not UTF-8.
        for text in drawn.findobj(Text):
            text.set_text(printable(text.get_text()))
        drawn.savefig(content, format="svg", transparent=True, metadata={"Date": None})


def _matplotlib() -> Any:
    """The library, which takes a second to import, and would read settings of the current folder
    then.
    """
    would_read = "matplotlib" not in sys.modules and os.path.exists("matplotlibrc")
    with chdir("/") if would_read else nullcontext():
        import matplotlib
    return matplotlib


def depth_curve(points: Sequence[CurvePoint]) -> bytes:
    """Figure 2: a measure against k0."""
    first = points[0]
    with figure() as (axes, content):
        axes.plot([point.variant.k0 for point in points], [point.value for point in points])
        name = "first stage" if first.stage == "first" else first.stage
        axes.plot(first.variant.k0, first.value, "o", color="tab:gray", label=name)
        axes.set(xlabel="inferences per query (k0)", ylabel=first.measure)
        axes.legend()
    return content.getvalue()


def pair_curves(points: Sequence[CurvePoint], configured: str | None) -> bytes:
    """Figure 3: a measure against the pairs asked, a line for each aggregation; SAMPLE with its
    standard deviation.

    The line of the configured aggregation is above the others.
    """
    lines: dict[str, list[CurvePoint]] = {}
    for point in points:
        lines.setdefault(point.variant.label, []).append(point)
    with figure() as (axes, content):
        for number, (name, line) in enumerate(lines.items()):
            if line[0].variant.trial is None:
                style = CONFIGURED if name == configured else {}
                axes.plot(*xy(line), _LINES[number % len(_LINES)], marker=".", label=name, **style)
        for name, line in lines.items():
            means = [point for point in line if point.variant.trial == "mean"]
            bars = [point.value for point in line if point.variant.trial == "sd"]
            if means:
                axes.errorbar(
                    *xy(means),
                    yerr=bars,
                    marker="x",
                    linewidth=1,
                    elinewidth=0.7,
                    capsize=2,
                    label=name,
                )
        axes.set(
            xlabel=f"inferences per query asked of {points[-1].stage}", ylabel=points[0].measure
        )
        axes.figure.legend(fontsize="small", loc="outside lower center", ncols=3)
    return content.getvalue()


def xy(points: Sequence[CurvePoint]) -> tuple[list[int], list[float]]:
    """A line: the inferences that are asked, in order, and the values."""
    ordered = sorted(points, key=lambda point: point.variant.inferences_asked)
    return [point.variant.inferences_asked for point in ordered], [point.value for point in ordered]


def difference_bars(differences: Sequence[float], measure: str) -> bytes:
    """The difference of each topic, smallest first."""
    with figure() as (axes, content):
        values = np.array(differences)
        # A path for each sign: a bar for each of thousands of topics is megabytes.
        for color, heights in (
            ("tab:red", np.minimum(values, 0)),
            ("tab:blue", np.maximum(values, 0)),
        ):
            axes.stairs(heights, np.arange(len(values) + 1) + 0.5, fill=True, color=color)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set(xlabel="topics, sorted by difference", ylabel=f"difference of {measure}")
    return content.getvalue()


def score_histogram(scores: Scores, title: str) -> bytes:
    """The share of docs by score, a panel for each label, with the median; beyond the sixth, labels
    share one.
    """
    groups = list(_by_label(scores).items())
    edges = _edges(np.concatenate(list(scores.values())))
    with figure(len(groups), height=1.0 + 1.2 * len(groups), of_counts=False) as (panels, content):
        for number, (axes, (name, values)) in enumerate(
            zip(np.atleast_1d(panels), groups, strict=True)
        ):
            counts, _ = np.histogram(values, bins=edges)
            axes.stairs(counts / max(counts.sum(), 1), edges, fill=True, color=f"C{number}")
            axes.axvline(float(np.median(values)), color="black", linewidth=1, linestyle="--")
            axes.set_title(f"{name} ({len(values):,} docs)", loc="left", fontsize="small")
        axes.set(xlabel=f"score of {title}; dashed: the median")
        axes.figure.supylabel("share of docs")
    return content.getvalue()


def _by_label(scores: Scores) -> dict[str, NDArray[np.float32]]:
    """The scores by the name of their label, docs without judgment first."""
    levels = sorted(label for label in scores if label is not None)
    first, rest = levels[: _MOST_LABELS - 1], levels[_MOST_LABELS - 1 :]
    by_label = {"not judged": scores[None]} if None in scores else {}
    by_label |= {f"label {label}": scores[label] for label in first}
    if rest:
        name = f"label {rest[0]}" if len(rest) == 1 else f"labels {rest[0]} to {rest[-1]}"
        by_label[name] = np.concatenate([scores[label] for label in rest])
    return by_label


def _edges(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """The edges of bins of equal width, at most as many as float32 has numbers between the smallest
    and largest score.
    """
    low, high = float(values.min()), float(values.max())
    # The spacing of the largest number overflows; the spacing of its half does not.
    step = 2 * float(np.spacing(np.float32(max(abs(low), abs(high)) / 2)))
    if low == high:
        low, high = low - max(0.5, step), high + max(0.5, step)
    return np.linspace(low, high, 1 + int(min(_BINS, (high - low) / step + 1)))
