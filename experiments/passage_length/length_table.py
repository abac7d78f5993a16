"""The length study as Markdown: a table per measure, and the significance of the differences to 256 tokens."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from beamrank.evaluation.significance import compare_values
from beamrank.evaluation.tables import P_VALUE, shown
from experiments.passage_length.length_study import INPUTS, MEASURES, METHODS, input_name

_BASELINE = input_name(256, 1)


def render(results: dict[str, Any]) -> str:
    """The page."""
    rows, settings = results["rows"], results["settings"]
    questions = str(settings["questions"] or "all")
    length = "three epochs" if settings["steps"] is None else f"{settings['steps']} steps"
    devices = ", ".join(sorted({row["device"] for row in rows}))
    parts = [
        "# Passage length on MedQuAD\n",
        "Made by `python -m experiments.passage_length.study`. The setting is that of Mass et al. 2019: BM25's top "
        f"{settings['k']} re-ranked, a right passage at rank {settings['k']} where BM25 found none, and "
        f"{settings['folds']} folds. {questions.capitalize()} questions, start `{settings['start']}`, {length}, "
        f"learning rate {settings['learning_rate']:g}, at most {settings['negatives']} triplets a positive, dtype "
        f"{settings['dtype']} on {devices}. A figure over fewer than all folds names how many.\n",
        *(_measure_table(rows, measure, settings["folds"]) for measure in MEASURES),
        _differences(rows),
    ]
    return "\n".join(parts)


def _measure_table(rows: Sequence[dict[str, Any]], measure: str, folds: int) -> str:
    def cell(method: str, name: str) -> str:
        return _mean(_chosen(rows, method, name), lambda row: row["measures"][measure], folds)

    once = {row["fold"]: row for row in rows}.values()
    lines = [f"## {measure}\n", _line(["input", *METHODS]), _line(["---"] * (1 + len(METHODS)))]
    lines.append(_line(["BM25 alone", *[_mean(once, lambda row: row["bm25"][measure], folds)] * len(METHODS)]))
    lines += [_line([name, *(cell(method, name) for method in METHODS)]) for name in _names()]
    return "\n".join([*lines, ""])


def _differences(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"## RR less that of {_BASELINE} tokens\n",
        "With the p-value of a paired t-test over the topics of the folds that both have; nothing is corrected for the "
        "number of tests.\n",
        _line(["input", *METHODS]),
        _line(["---"] * (1 + len(METHODS))),
    ]
    for name in _names():
        if name != _BASELINE:
            lines.append(_line([name, *(_difference(rows, method, name) for method in METHODS)]))
    return "\n".join([*lines, ""])


def _difference(rows: Sequence[dict[str, Any]], method: str, name: str) -> str:
    mine, theirs = ({row["fold"]: _values(row) for row in _chosen(rows, method, each)} for each in (name, _BASELINE))
    shared = sorted(mine.keys() & theirs.keys())
    values, baseline = ([value for fold in shared for value in each[fold]] for each in (mine, theirs))
    if len(values) < 2:
        return ""
    found = compare_values(values, baseline)
    return f"{found.difference:+.3f} (p {shown(found.p_value, P_VALUE)})"


def _mean(rows: Iterable[dict[str, Any]], value: Callable[[dict[str, Any]], float], folds: int) -> str:
    """The mean over the topics of all folds that were measured."""
    found = list(rows)
    if not found:
        return ""
    topics = sum(row["topics"] for row in found)
    mean = sum(value(row) * row["topics"] for row in found) / topics
    return f"{mean:.3f}" + (f" ({len(found)} of {folds})" if len(found) < folds else "")


def _values(row: dict[str, Any]) -> list[float]:
    return [1 / int(rank) if rank != "0" else 0.0 for rank in row["ranks"].split()]


def _chosen(rows: Iterable[dict[str, Any]], method: str, name: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["method"] == method and input_name(row["tokens"], row["chunks"]) == name]


def _names() -> list[str]:
    return [input_name(tokens, chunks) for tokens, chunks in INPUTS]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
