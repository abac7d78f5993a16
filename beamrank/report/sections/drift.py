"""What changed since an earlier run: top tens and their causes, agreement, scores, measures."""

from collections.abc import Sequence

import numpy as np

from beamrank.evaluation.tables import COUNT, DIFFERENCE, MEAN, P_VALUE, Cell, Column, Table
from beamrank.report.blocks import Block, Paragraph, TableBlock
from beamrank.report.drift import LOST_DOC, NEW_DOC, NEW_SCORE, NEW_TOPIC, Drift, RunDrift, TopicChange
from beamrank.report.report import Report

_CAUSES = (NEW_TOPIC, NEW_DOC, LOST_DOC, NEW_SCORE)


def blocks(report: Report) -> Sequence[Block]:
    """Tables of the runs, of their scores and measures, and of the topics whose first ten docs differ."""
    drift = report.drift
    if drift is None:
        return []
    found: list[Block] = [
        Paragraph(f"Compared with {drift.output}. Topics of that run only: {len(drift.gone):,}."),
        TableBlock("Topics whose first ten docs differ, and why", _runs(drift), exported=True),
        TableBlock("Scores of docs that both runs scored: the new score minus the earlier one", _scores(drift)),
    ]
    if any(run.comparisons for run in drift.runs):
        title = f"Measures over the judged topics of both runs{report.trial}"
        found.append(TableBlock(title, _measures(drift), exported=True))
    if any(run.changes for run in drift.runs):
        found.append(TableBlock("The topics whose first ten docs differ", _topics(drift, report)))
    return found


def summary(drift: Drift) -> Sequence[str]:
    """A line for each run."""
    return [
        f"{run.run}: the first ten docs of {len(run.changes):,} topics differ from those of {drift.output}"
        + "".join(f", {count:,} by a {cause}" for cause, count in _counts(run).items() if count)
        for run in drift.runs
    ]


def _agreement(change: TopicChange) -> tuple[float, str]:
    return -1.0 if change.rbo is None else change.rbo, change.query_id


def _counts(run: RunDrift) -> dict[str, int]:
    return {cause: sum(cause in change.causes for change in run.changes) for cause in _CAUSES}


def _runs(drift: Drift) -> Table:
    columns = [Column("run"), Column("earlier run"), Column("topics of both", COUNT), Column("top 10 changed", COUNT)]
    columns += [Column(cause, COUNT) for cause in _CAUSES]
    rows: list[list[Cell]] = [
        [run.run, run.before, run.topics, len(run.changes), *_counts(run).values(), run.rbo, run.tau]
        for run in drift.runs
    ]
    return Table([*columns, Column("RBO", MEAN), Column("tau", MEAN)], rows)


def _scores(drift: Drift) -> Table:
    columns = [Column("run"), Column("docs", COUNT), Column("changed", COUNT)]
    columns += [Column(name, DIFFERENCE) for name in ("mean", "5 %", "median", "95 %")]
    rows: list[list[Cell]] = []
    for run in drift.runs:
        changes = run.score_changes
        spread: list[Cell] = [None] * 4
        if len(changes):
            spread = [float(changes.mean()), *map(float, np.quantile(changes, (0.05, 0.5, 0.95)))]
        rows.append([run.run, len(changes), int(np.count_nonzero(changes)), *spread])
    return Table(columns, rows)


def _measures(drift: Drift) -> Table:
    columns = [Column("run"), Column("measure"), Column("earlier", MEAN), Column("now", MEAN)]
    columns += [Column("difference", DIFFERENCE), Column("p", P_VALUE)]
    rows: list[list[Cell]] = [
        [run.run, measure, found.baseline, found.mean, found.difference, found.p_value]
        for run in drift.runs
        for measure, found in run.comparisons.items()
    ]
    return Table(columns, rows)


def _topics(drift: Drift, report: Report) -> Table:
    columns = [Column("query_id"), Column("text"), Column("run"), Column("causes")]
    rows: list[list[Cell]] = [
        [each.query_id, report.topics.get(each.query_id, ""), run.run, ", ".join(each.causes), each.rbo, each.tau]
        for run in drift.runs
        for each in sorted(run.changes, key=_agreement)
    ]
    return Table([*columns, Column("RBO", MEAN), Column("tau", MEAN)], rows)
