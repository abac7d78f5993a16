"""The section of a report about an earlier output: what changed since."""

from collections.abc import Sequence

import numpy as np

from beamrank.evaluation.tables import COUNT, DIFFERENCE, MEAN, P_VALUE, Cell, Column, Table
from beamrank.report.blocks import Block, File, Paragraph, Section, TableBlock
from beamrank.report.report import Report
from contrib.report_drift.drift import (
    CAUSES,
    Drift,
    RunDrift,
    find_drift,
    is_output,
    write_drift,
)
from pipelines.commands.arguments import console_progress


def blocks(
    report: Report, *, baseline: str | None = None, verbose: bool = False, quiet: bool = False
) -> Sequence[Block]:
    """Changes since an earlier run: top tens and their causes, agreement, scores, measures."""
    drift = find_drift(report, baseline)
    if drift is None:
        return []
    console = console_progress(verbose, quiet)
    for line in _lines(drift):
        console.note(line)
    agreement = [Column("RBO", MEAN), Column("tau", MEAN)]
    columns = [
        Column("run"),
        Column("earlier run"),
        Column("topics of both", COUNT),
        Column("top 10 changed", COUNT),
    ]
    columns += [*(Column(cause, COUNT) for cause in CAUSES), *agreement]
    runs: list[list[Cell]] = [
        [
            run.run,
            run.before,
            run.topics,
            len(run.changes),
            *_counts(run).values(),
            run.rbo,
            run.tau,
        ]
        for run in drift.runs
    ]
    shown: list[Block] = [
        File("drift.csv", write_drift(drift)),
        Paragraph(f"Compared with {drift.output}. Topics of that run only: {len(drift.gone):,}."),
        TableBlock(
            "Topics whose first ten docs differ, and why", Table(columns, runs), exported=True
        ),
        TableBlock(
            "Scores of docs that both runs scored: the new score minus the earlier one",
            _score_changes(drift),
        ),
    ]
    columns = [Column("run"), Column("measure"), Column("earlier", MEAN), Column("now", MEAN)]
    columns += [Column("difference", DIFFERENCE), Column("p", P_VALUE)]
    compared: list[list[Cell]] = [
        [
            run.run,
            measure,
            comparison.baseline,
            comparison.mean,
            comparison.difference,
            comparison.p_value,
        ]
        for run in drift.runs
        for measure, comparison in run.comparisons.items()
    ]
    if compared:
        title = f"Measures over the judged topics of both runs{report.trial}"
        shown.append(TableBlock(title, Table(columns, compared), exported=True))
    columns = [Column("query_id"), Column("text"), Column("run"), Column("causes"), *agreement]
    topics: list[list[Cell]] = [
        [
            change.query_id,
            report.topics.get(change.query_id, ""),
            run.run,
            ", ".join(change.causes),
            change.rbo,
            change.tau,
        ]
        for run in drift.runs
        for change in sorted(
            run.changes,
            key=lambda change: (-1.0 if change.rbo is None else change.rbo, change.query_id),
        )
    ]
    if topics:
        shown.append(TableBlock("The topics whose first ten docs differ", Table(columns, topics)))
    return shown


SECTION = Section(blocks, compares=is_output, leads=True)


def _lines(drift: Drift) -> Sequence[str]:
    """A line for each run."""
    return [
        f"{run.run}: the first ten docs of {len(run.changes):,} topics differ from "
        f"{drift.output}"
        + "".join(f", {count:,} by a {cause}" for cause, count in _counts(run).items() if count)
        for run in drift.runs
    ]


def _counts(run: RunDrift) -> dict[str, int]:
    return {cause: sum(cause in change.causes for change in run.changes) for cause in CAUSES}


def _score_changes(drift: Drift) -> Table:
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
