"""The measures of every stage and aggregation, and the tests of their differences from the baseline."""

from collections.abc import Sequence

from beamrank.evaluation.tables import COUNT, DIFFERENCE, MEAN, P_VALUE, Cell, Column, Table
from beamrank.report.blocks import Block, Paragraph, TableBlock
from beamrank.report.report import Report, Tested


def blocks(report: Report) -> Sequence[Block]:
    """Tables 1 and 2 of the paper, for this run."""
    if not report.evaluations:
        return []
    names = list(next(iter(report.evaluations.values())).means)
    means = Table(
        [Column("run"), *(Column(name, MEAN) for name in names)],
        [[run, *(each.means[name] for name in names)] for run, each in report.evaluations.items()],
    )
    found: list[Block] = [TableBlock(f"Means over all judged topics{report.trial}", means, exported=True)]
    chosen = [each for each in report.tested if each.run in report.steps]
    others = [each for each in report.tested if each.run not in report.steps]
    if chosen:
        title = f"Differences from {report.baseline}{report.trial}"
        found += [
            TableBlock(title, _differences(chosen), exported=True),
            Paragraph(
                "p is that of the paired t-test over topics; Holm's correction covers all rows of the table with a "
                "defined p. Wins, ties and losses are topics."
            ),
        ]
    if others:
        title = f"Differences from {report.baseline} of aggregations that are not configured; p is not corrected"
        found.append(TableBlock(title + report.trial, _differences(others), exported=True))
    return found


def _differences(tested: Sequence[Tested]) -> Table:
    columns = [
        Column("run"),
        Column("measure"),
        Column("mean", MEAN),
        Column("difference", DIFFERENCE),
        Column("p", P_VALUE),
        Column("p (Holm)", P_VALUE),
        *(Column(name, COUNT) for name in ("wins", "ties", "losses")),
    ]
    rows: list[list[Cell]] = []
    for each in tested:
        found = each.comparison
        counts = (found.better, found.equal, found.worse)
        p_values = (found.p_value, each.corrected_p_value)
        rows.append([each.run, each.measure, found.mean, found.difference, *p_values, *counts])
    return Table(columns, rows)
