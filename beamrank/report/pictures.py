"""The pictures of a report, as SVG. The same numbers give the same bytes."""

import io
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamrank.report.blocks import PictureLink
from beamrank.report.curves import CurvePoint
from beamrank.report.runs import Scores
from beamrank.storage.local_files import own_temporary_files
from beamrank.storage.urls import printable

# Small, so that its text is readable on a phone too.
_SIZE = (5.2, 3.8)
# Of the stages, in their order. On white, and inverted on the dark page, text of them is readable.
COLORS = ("#0b5cad", "#b35900", "#1b7a1b", "#7b4fa3", "#c62828", "#00767f")
GRAY = "#5f6670"
_DASHES = ("--", "-.", ":", (0, (1, 2, 5, 2)))
# With one to compare them with there are six.
MOST_LINES = 5
_NAME_LENGTH = 18
# More than the height of a name.
_NAME_PIXELS = 19
_BINS = 40
_MOST_LABELS = 6
# Names of runs are not formulas.
_STYLE: Any = {"svg.fonttype": "path", "text.parse_math": False, "svg.hashsalt": "beamrank"}


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
        for panel in np.atleast_1d(axes):
            panel.grid(alpha=0.3)
            panel.set_prop_cycle(color=COLORS)
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


def name_lines(axes: Any) -> None:
    """Names each labelled line at its end, in its color; no name covers another."""
    # What depends on the limits is up to date once they are read.
    axes.get_ylim()

    def height(line: Any) -> float:
        to_axes = line.get_transform() - axes.transAxes
        return float(to_axes.transform(line.get_xydata()[-1])[1])

    lines = sorted(axes.get_legend_handles_labels()[0], key=height)
    places = spread([*map(height, lines)], _NAME_PIXELS / axes.bbox.height)
    for line, place in zip(lines, places, strict=True):
        color = line.get_color()
        axes.annotate(
            line.get_label()[:_NAME_LENGTH],
            line.get_xydata()[-1],
            (1.03, place),
            xycoords=line.get_transform(),
            textcoords="axes fraction",
            color=color,
            va="center",
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.5, "relpos": (0, 0.5)},
        )


def spread(places: Sequence[float], least: float, most: float = 1.0) -> NDArray[np.float64]:
    """Ascending places from 0 to `most`, at least `least` apart, as near to the given ones as they
    can be.
    """
    # It takes a fifth of a second to import.
    from scipy.optimize import isotonic_regression

    steps = least * np.arange(len(places))
    near = isotonic_regression(places - steps).x
    return np.asarray(np.clip(near, 0, most - steps.max(initial=0)) + steps)


def curve_picture(
    points: Sequence[CurvePoint], configured: str | None, run: str, colors: Mapping[str, str]
) -> bytes:
    """Figure 2 or 3: a measure against the inferences that a stage is asked for, a line for each
    aggregation; SAMPLE with its standard deviation. The value at depth 0 is dashed.

    Args:
        points: of one measure.
        configured: the aggregation of the stage, if it has one.
        run: the name of its run, which the line has.
        colors: of stages and runs.
    """
    first, stage = points[0], points[-1].stage
    lines, bars = defaultdict[str, list[CurvePoint]](list), defaultdict[str, list[float]](list)
    for point in points:
        name = run if point.variant.aggregation == configured else point.variant.label
        if point.variant.trial in (None, "mean"):
            lines[name].append(point)
        elif point.variant.trial == "sd":
            bars[name].append(point.value)
    # SAMPLE is there if it was asked for; the others by their value at the largest depth.
    names = sorted(lines, key=lambda name: (name not in bars, -lines[name][-1].value))
    with figure() as (axes, content):
        if first.stage != stage:
            before = "first stage" if first.stage == "first" else first.stage
            axes.axhline(first.value, color=colors[first.stage], linestyle="--", label=before)
        draw_variants(axes, {name: lines[name] for name in names}, run, colors[stage], bars)
        axes.set(xlabel=f"inferences per query asked of {stage}", ylabel=first.measure)
        name_lines(axes)
    return content.getvalue()


def draw_variants(
    axes: Any,
    lines: Mapping[str, Sequence[CurvePoint]],
    configured: str,
    color: str,
    bars: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> None:
    """Draws at most five lines of a stage: the configured one, above the others and alone in the
    color of the stage, and the first others.
    """
    names = sorted(lines, key=lambda name: name != configured)[:MOST_LINES]
    for number, name in enumerate(names):
        style: Any = {"color": GRAY, "linestyle": _DASHES[number % len(_DASHES)]}
        if name == configured:
            style = {"color": color, "linewidth": 2.2, "zorder": 5}
        drawn = axes.errorbar(
            *xy(lines[name]), bars.get(name), marker=".", ms=4, elinewidth=1, **style
        )
        drawn[0].set_label(name)


def xy(points: Sequence[CurvePoint]) -> tuple[list[int], list[float]]:
    """A line: the inferences that are asked, in order, and the values."""
    ordered = sorted(points, key=lambda point: point.variant.inferences_asked)
    return [point.variant.inferences_asked for point in ordered], [point.value for point in ordered]


def difference_bars(
    differences: Mapping[str, float],
    measure: str,
    colors: Mapping[str, str],
    anchors: Mapping[str, str],
) -> tuple[bytes, list[PictureLink]]:
    """The difference of each topic, smallest first, in the color of the run that is better; the
    links of topics that have anchors.

    Args:
        differences: by query_id.
        measure: its name.
        colors: of the baseline and of the run.
        anchors: by query_id.
    """
    values = np.array([*differences.values()])
    signs = np.minimum(values, 0), np.maximum(values, 0)
    with figure() as (axes, content):
        # A path for each sign: a bar for each of thousands of topics is megabytes.
        for heights, run, side in zip(signs, colors, ("left", "right"), strict=True):
            axes.stairs(heights, np.arange(len(values) + 1) + 0.5, fill=True, color=colors[run])
            title = f"{run[:_NAME_LENGTH]} is better"
            axes.set_title(title, loc=side, color=colors[run], size="small")
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set(xlabel="topics, sorted by difference", ylabel=f"difference of {measure}")
        axes.margins(x=0)
    linked = {
        query_id: place / len(values)
        for place, query_id in enumerate(differences)
        if query_id in anchors
    }
    # One of thousands of bars is too narrow to be clicked.
    share = 1 / min(len(values), max(100, len(linked)))
    starts = spread([*linked.values()], share, 1 - share)
    left, _, width, _ = axes.get_position().bounds
    return content.getvalue(), [
        PictureLink(
            anchors[query_id],
            f"{query_id}: {differences[query_id]:+.4f}",
            left + width * start,
            width * share,
        )
        for query_id, start in zip(linked, starts.tolist(), strict=True)
    ]


def score_histogram(scores: Scores, title: str, color: str) -> bytes:
    """The share of docs by score, a panel for each label, with the median; beyond the sixth, labels
    share one.
    """
    groups = list(_by_label(scores).items())
    edges = _edges(np.concatenate(list(scores.values())))
    with figure(len(groups), height=1.0 + 1.2 * len(groups), of_counts=False) as (panels, content):
        for axes, (name, values) in zip(np.atleast_1d(panels), groups, strict=True):
            counts, _ = np.histogram(values, bins=edges)
            axes.stairs(counts / max(counts.sum(), 1), edges, fill=True, color=color)
            axes.axvline(float(np.median(values)), color="black", linewidth=1, linestyle="--")
            axes.set_title(f"{name} ({len(values):,} docs)", loc="left", fontsize="small")
        axes.set(xlabel=f"score of {title}; dashed: the median")
        axes.figure.supylabel("share of docs", size="medium")
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
