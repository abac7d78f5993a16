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
        text: what is wrong, and what to do; names of a row's attributes are filled in.
    """

    value: Callable[[StageRow], float | None]
    holds: Callable[[float, float], bool]
    threshold: float
    text: str


def find_warnings(rows: Iterable[StageRow]) -> list[StageWarning]:
    """The warnings about stages, in their order."""
    return [
        StageWarning(
            name,
            row.stage,
            value,
            check.threshold,
            check.text.format(row=row, checkpoint=_CHECKPOINT * row.has_checkpoint),
        )
        for row in rows
        for name, check in CHECKS.items()
        if (value := check.value(row)) is not None and check.holds(value, check.threshold)
    ]


def _share(count: float, of: int) -> float | None:
    return count / of if of else None


def _p_of_loss(compared: Comparison | None) -> float | None:
    return compared.p_value if compared and compared.difference < 0 else None


_CHECKPOINT = "Use a larger checkpoint, or a multilingual one for other languages than English. "
CHECKS = {
    "unchanged": Check(
        lambda row: row.reordered_share,
        lt,
        0.01,
        "{row.run} changes the order of {row.reordered:,} of {row.topics:,} topics, so that it "
        "adds nothing to {row.before}. Look at its scores (`beamrank inspect DIR --query ID`) and "
        "its model (`beamrank doctor --checkpoint`), or remove the stage",
    ),
    "below": Check(
        lambda row: _p_of_loss(row.than_before),
        lt,
        SIGNIFICANT,
        "{row.run} is below {row.before}: {row.measure} {row.than_before}. {checkpoint}Remove the "
        "stage if nothing helps: docs/reference/measures.md, "
        '"A stage below the one before it"',
    ),
    "one score": Check(
        lambda row: _share(row.one_score, row.topics),
        gt,
        0.5,
        "{row.run} has one score for all docs of {row.one_score:,} of {row.topics:,} topics, so "
        "that they keep the order before. Look at its model (`beamrank doctor --checkpoint`), or "
        "at the column of scores of a run that you gave",
    ),
    "reversed": Check(
        # The lower end of an interval of 95 %, as the sign test has it for many topics.
        lambda row: _share(row.reversed - math.sqrt(row.judged), row.judged),
        gt,
        0.5,
        "the reverse of the order of {row.run} agrees better with the judgments: in "
        "{row.reversed:,} of {row.judged:,} topics the relevant docs are in the lower half. Its "
        "high scores may mean bad docs, as distances do, or the labels of its model may be "
        "exchanged (`beamrank doctor --checkpoint`)",
    ),
    "cut": Check(
        lambda row: row.cut_share,
        gt,
        0.1,
        "{row.run} reads only the beginning of {row.cut_docs:,} of the {row.first_docs:,} docs "
        "that it places among the first ten. Raise `input.max_length` (`input.max_text_bytes` if "
        'it reads texts): docs/reference/model-inputs.md, "Long docs"',
    ),
    "deep": Check(
        lambda row: row.gain.low if row.gain else None,
        gt,
        0.0,
        "{row.run} is better with fewer candidates: with `{row.stage}.k` = {row.gain.best_k} in "
        "place of {row.gain.k}, {row.measure} changes by {row.gain.difference:+.4f} (95 % interval "
        "{row.gain.low:+.4f} to {row.gain.high:+.4f})",
    ),
}
"""By name; docs/guide/report.md has a line for each."""
