"""Warnings about a run: a stage that changes nothing or makes the ranking worse, scores that do not
rank, docs that are cut, a depth that does not pay.

Each depends on the row of a stage alone: docs/guide/report.md, "Warnings".
"""

import math
from collections.abc import Callable, Iterable
from operator import gt, lt
from typing import NamedTuple

from beamrank.evaluation.significance import SIGNIFICANT, Comparison
from beamrank.report.stage_rows import StageRow


class StageWarning(NamedTuple):
    """A warning about a stage: its name, and the value that is beyond the threshold."""

    warning: str
    stage: str
    value: float
    threshold: float
    text: str


class Check(NamedTuple):
    """What a warning depends on.

    Attributes:
        value: of a row; None where it is undefined.
        holds: compares the value with the threshold.
        text: what is wrong, and what to do.
    """

    value: Callable[[StageRow], float | None]
    holds: Callable[[float, float], bool]
    threshold: float
    text: Callable[[StageRow], str]


def find_warnings(rows: Iterable[StageRow]) -> list[StageWarning]:
    """The warnings about stages, in their order."""
    return [
        StageWarning(name, row.stage, value, check.threshold, check.text(row))
        for row in rows
        for name, check in CHECKS.items()
        if (value := check.value(row)) is not None and check.holds(value, check.threshold)
    ]


def _unchanged(row: StageRow) -> str:
    return (
        f"{row.run} changes the order of {row.reordered:,} of {row.topics:,} topics, so that it "
        f"adds nothing to {row.before}. Look at its scores (`beamrank inspect DIR --query ID`) and "
        "its model (`beamrank doctor --checkpoint`), or remove the stage"
    )


def _below(row: StageRow) -> str:
    larger = "Use a larger checkpoint, a multilingual one for other languages than English, or r"
    return (
        f"{row.run} is below {row.before}: {row.measure} {row.than_before}. "
        f"{larger if row.has_checkpoint else 'R'}emove the stage: "
        'docs/reference/measures.md, "A stage below the one before it"'
    )


def _one_score(row: StageRow) -> str:
    return (
        f"{row.run} has one score for all docs of {row.one_score:,} of {row.topics:,} topics, so "
        "that they keep the order before. Look at its model (`beamrank doctor --checkpoint`), or "
        "at the column of scores of a run that you gave"
    )


def _reversed(row: StageRow) -> str:
    return (
        f"the reverse of the order of {row.run} agrees better with the judgments: in "
        f"{row.reversed:,} of {row.judged:,} topics the relevant docs are in the lower half. Its "
        "high scores may mean bad docs, as distances do, or the labels of its model may be "
        "exchanged (`beamrank doctor --checkpoint`)"
    )


def _cut(row: StageRow) -> str:
    return (
        f"{row.run} reads only the beginning of {row.cut_docs:,} of the {row.first_docs:,} docs "
        "that it places among the first ten. Raise `input.max_length` (`input.max_text_bytes` if "
        'it reads texts): docs/reference/model-inputs.md, "Long docs"'
    )


def _deep(row: StageRow) -> str:
    return f"{row.run} is better with fewer candidates: {row.measure} {row.gain}"


def _share(count: int, of: int) -> float | None:
    return count / of if of else None


def _p_of_loss(compared: Comparison | None) -> float | None:
    return compared.p_value if compared and compared.difference < 0 else None


CHECKS = {
    "unchanged": Check(
        lambda row: _share(row.reordered, row.topics if row.before else 0), lt, 0.01, _unchanged
    ),
    "below": Check(lambda row: _p_of_loss(row.than_before), lt, SIGNIFICANT, _below),
    "one score": Check(lambda row: _share(row.one_score, row.topics), gt, 0.5, _one_score),
    # The lower end of an interval of 95 %, as the sign test has it for many topics.
    "reversed": Check(
        lambda row: (row.reversed - math.sqrt(row.judged)) / row.judged if row.judged else None,
        gt,
        0.5,
        _reversed,
    ),
    "cut": Check(lambda row: row.cut_share, gt, 0.1, _cut),
    "deep": Check(lambda row: row.gain.low if row.gain else None, gt, 0.0, _deep),
}
"""By name; docs/guide/report.md has a line for each."""
