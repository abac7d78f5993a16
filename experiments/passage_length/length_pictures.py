"""The pictures of the length study: bars of the methods and lines over the lengths, as figures 1
and 2 of the paper.
"""

from pathlib import Path
from typing import Any

from experiments.passage_length.length_study import BASELINE, INPUTS, MEASURES, METHODS
from experiments.passage_length.length_table import bm25_mean, row_mean

_LENGTHS = [each for each in INPUTS if each.chunks == 1]


def draw(results: dict[str, Any], path: Path) -> None:
    """Draws both beside the results: NAME-methods.svg and NAME-lengths.svg.

    Args:
        results: of the study; inputs that were not measured are left out.
        path: of the results.
    """
    import matplotlib
    from matplotlib.figure import Figure

    # The same results give the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": "beamrank", "text.parse_math": False}):
        for name, fill in (("methods", _bars), ("lengths", _lines)):
            figure = Figure(figsize=(9, 3.5), layout="constrained")
            for axes, measure in zip(figure.subplots(1, len(MEASURES)), MEASURES, strict=True):
                fill(axes, results["rows"], measure)
                axes.set_title(measure)
                axes.set_ylim(0, 1)
            figure.savefig(path.with_name(f"{path.stem}-{name}.svg"), metadata={"Date": None})


def _bars(axes: Any, rows: list[dict[str, Any]], measure: str) -> None:
    """BM25 and each method with inputs of 256 tokens, or of the longest length that was
    measured.
    """
    means = {
        name: {how: row_mean(rows, name, how, measure) for how in _LENGTHS} for name in METHODS
    }
    common = [how for how in _LENGTHS if all(means[name][how] is not None for name in means)]
    shown = BASELINE if BASELINE in common else common[-1] if common else None
    values = {"BM25": bm25_mean(rows, measure)}
    if shown is not None:
        values |= {name: value for name in METHODS if (value := means[name][shown]) is not None}
        axes.set_xlabel(f"{shown.name} tokens")
    axes.bar(
        list(values),
        list(values.values()),
        color=["0.6", "tab:blue", "tab:orange", "tab:green"][: len(values)],
    )
    axes.tick_params(axis="x", labelrotation=30)


def _lines(axes: Any, rows: list[dict[str, Any]], measure: str) -> None:
    axes.axhline(bm25_mean(rows, measure), color="0.5", linestyle="--", label="BM25")
    for name in METHODS:
        points = [(how.tokens, row_mean(rows, name, how, measure)) for how in _LENGTHS]
        found = [(tokens, value) for tokens, value in points if value is not None]
        if found:
            axes.plot(*zip(*found, strict=True), "o-", label=name)
    axes.set_xticks([how.tokens for how in _LENGTHS])
    axes.set_xlabel("tokens of an input")
    axes.legend(fontsize="small")
