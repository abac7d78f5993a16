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
    """What changed since an earlier run: top tens and their causes, agreement, scores, measures."""
    found = find_drift(report, baseline)
    if found is None:
        return []
    console = console_progress(verbose, quiet)
    for line in _lines(found):
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
        for run in found.runs
    ]
    shown: list[Block] = [
        File("drift.csv", write_drift(found)),
        Paragraph(f"Compared with {found.output}. Topics of that run only: {len(found.gone):,}."),
        TableBlock(
            "Topics whose first ten docs differ, and why", Table(columns, runs), exported=True
        ),
        TableBlock(
            "Scores of docs that both runs scored: the new score minus the earlier one",
            _score_changes(found),
        ),
    ]
    columns = [Column("run"), Column("measure"), Column("earlier", MEAN), Column("now", MEAN)]
    columns += [Column("difference", DIFFERENCE), Column("p", P_VALUE)]
    compared: list[list[Cell]] = [
        [run.run, measure, each.baseline, each.mean, each.difference, each.p_value]
        for run in found.runs
        for measure, each in run.comparisons.items()
    ]
    if compared:
        title = f"Measures over the judged topics of both runs{report.trial}"
        shown.append(TableBlock(title, Table(columns, compared), exported=True))
    columns = [Column("query_id"), Column("text"), Column("run"), Column("causes"), *agreement]
    topics: list[list[Cell]] = [
        [
            each.query_id,
            report.topics.get(each.query_id, ""),
            run.run,
            ", ".join(each.causes),
            each.rbo,
            each.tau,
        ]
        for run in found.runs
        for each in sorted(
            run.changes, key=lambda each: (-1.0 if each.rbo is None else each.rbo, each.query_id)
        )
    ]
    if topics:
        shown.append(TableBlock("The topics whose first ten docs differ", Table(columns, topics)))
    return shown


SECTION = Section(blocks, compares=is_output, leads=True)


def _lines(found: Drift) -> Sequence[str]:
    """A line for each run."""
    return [
        f"{run.run}: the first ten docs of {len(run.changes):,} topics differ from those of "
        f"{found.output}"
        + "".join(f", {count:,} by a {cause}" for cause, count in _counts(run).items() if count)
        for run in found.runs
    ]


def _counts(run: RunDrift) -> dict[str, int]:
    return {cause: sum(cause in change.causes for change in run.changes) for cause in CAUSES}


def _score_changes(found: Drift) -> Table:
    columns = [Column("run"), Column("docs", COUNT), Column("changed", COUNT)]
    columns += [Column(name, DIFFERENCE) for name in ("mean", "5 %", "median", "95 %")]
    rows: list[list[Cell]] = []
    for run in found.runs:
        changes = run.score_changes
        spread: list[Cell] = [None] * 4
        if len(changes):
            spread = [float(changes.mean()), *map(float, np.quantile(changes, (0.05, 0.5, 0.95)))]
        rows.append([run.run, len(changes), int(np.count_nonzero(changes)), *spread])
    return Table(columns, rows)
