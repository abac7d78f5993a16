"""The length study as Markdown: a table per measure, and the significance of the differences to 256
tokens.
"""

from collections.abc import Callable, Sequence
from typing import Any

from beamrank.evaluation.significance import compare_values
from beamrank.evaluation.tables import P_VALUE, shown
from experiments.passage_length.length_study import BASELINE, INPUTS, MEASURES, METHODS, Input, Row


def render(results: dict[str, Any]) -> str:
    """The page."""
    rows, settings = results["rows"], results["settings"]
    questions = str(settings["questions"] or "all")
    length = "three epochs" if settings["steps"] is None else f"{settings['steps']} steps"
    devices = ", ".join(sorted({row["device"] for row in rows}))
    parts = [
        "# Passage length on MedQuAD\n",
        "Made by `python -m experiments.passage_length.study`. The setting is that of Mass et al. "
        f"2019: BM25's top {settings['k']} re-ranked, a right passage at rank {settings['k']} "
        f"where BM25 found none, and {settings['folds']} folds. {questions.capitalize()} "
        f"questions, start `{settings['start']}`, {length}, learning rate "
        f"{settings['learning_rate']:g}, at most {settings['negatives']} triplets a positive, "
        f"dtype {settings['dtype']} on {devices}, truncation {settings['truncation']}. A figure "
        "over fewer than all folds names how many.\n",
        *(_measure_table(rows, measure, settings["folds"]) for measure in MEASURES),
        _differences(rows),
    ]
    return "\n".join(parts)


def row_mean(rows: Sequence[dict[str, Any]], method: str, how: Input, measure: str) -> float | None:
    """The mean of a measure over the topics of all folds that were measured; None if there are
    none.
    """
    return _mean(_chosen(rows, method, how), lambda row: row["measures"][measure])


def bm25_mean(rows: Sequence[dict[str, Any]], measure: str) -> float:
    """The same for BM25, over the folds that any method was measured on."""
    mean = _mean(_folds(rows), lambda row: row["bm25"][measure])
    assert mean is not None
    return mean


def _measure_table(rows: Sequence[dict[str, Any]], measure: str, folds: int) -> str:
    def cell(method: str, how: Input) -> str:
        return _shown(row_mean(rows, method, how, measure), len(_chosen(rows, method, how)), folds)

    bm25 = _shown(bm25_mean(rows, measure), len(_folds(rows)), folds)
    lines = [f"## {measure}\n", _line(["input", *METHODS]), _line(["---"] * (1 + len(METHODS)))]
    lines.append(_line(["BM25 alone", *[bm25] * len(METHODS)]))
    lines += [_line([how.name, *(cell(method, how) for method in METHODS)]) for how in INPUTS]
    return "\n".join([*lines, ""])


def _differences(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"## RR less that of {BASELINE.name} tokens\n",
        "With the p-value of a paired t-test over the topics of the folds that both have; nothing "
        "is corrected for the number of tests.\n",
        _line(["input", *METHODS]),
        _line(["---"] * (1 + len(METHODS))),
    ]
    for how in INPUTS:
        if how != BASELINE:
            lines.append(_line([how.name, *(_difference(rows, method, how) for method in METHODS)]))
    return "\n".join([*lines, ""])


def _difference(rows: Sequence[dict[str, Any]], method: str, how: Input) -> str:
    mine, theirs = (
        {row["fold"]: _values(row) for row in _chosen(rows, method, each)}
        for each in (how, BASELINE)
    )
    shared = sorted(mine.keys() & theirs.keys())
    values, baseline = (
        [value for fold in shared for value in each[fold]] for each in (mine, theirs)
    )
    if len(values) < 2:
        return ""
    found = compare_values(values, baseline)
    return f"{found.difference:+.3f} (p {shown(found.p_value, P_VALUE)})"


def _mean(rows: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> float | None:
    """The mean over the topics of all folds that were measured."""
    topics = sum(row["topics"] for row in rows)
    return sum(value(row) * row["topics"] for row in rows) / topics if topics else None


def _shown(mean: float | None, measured: int, folds: int) -> str:
    if mean is None:
        return ""
    return f"{mean:.3f}" + (f" ({measured} of {folds})" if measured < folds else "")


def _folds(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a fold: BM25's figures are the same in all."""
    return list({row["fold"]: row for row in rows}.values())


def _values(row: dict[str, Any]) -> list[float]:
    return [1 / int(rank) if rank != "0" else 0.0 for rank in row["ranks"].split()]


def _chosen(rows: Sequence[dict[str, Any]], method: str, how: Input) -> list[dict[str, Any]]:
    return [
        values
        for values in rows
        if (row := Row.of_result(values)).method == method and row.input == how
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
