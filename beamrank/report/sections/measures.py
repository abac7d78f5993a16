"""Measures of every stage and aggregation, tests of their differences, curves, and the scores by label."""

from collections.abc import Sequence

from beamrank.evaluation.tables import COUNT, DIFFERENCE, MEAN, P_VALUE, Cell, Column, Table
from beamrank.report.blocks import Block, Paragraph, Picture, TableBlock
from beamrank.report.pictures import depth_curve, pair_curves, score_histogram
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
    columns = [Column("run"), Column("measure"), Column("mean", MEAN), Column("difference", DIFFERENCE)]
    columns += [Column("p", P_VALUE), Column("p (Holm)", P_VALUE)]
    columns += [Column(name, COUNT) for name in ("wins", "ties", "losses")]
    rows: list[list[Cell]] = []
    for each in tested:
        found = each.comparison
        p_values = (found.p_value, each.corrected_p_value)
        counts = (found.better, found.equal, found.worse)
        rows.append([each.run, each.measure, found.mean, found.difference, *p_values, *counts])
    return Table(columns, rows)


_CAPTIONS = {
    2: "{measure} against k0, the candidates that {stage} scores",
    3: "{measure} against the pairs that {stage} is asked for k1 candidates; k1 = 0 is {before}",
}


def curve_blocks(report: Report) -> Sequence[Block]:
    """Figures 2 and 3 of the multi-stage paper, by the first measure that has curves."""
    found: list[Block] = []
    sections = {each.name: each.section for each in report.execution.config.stages} if report.execution else {}
    names: set[str] = set()
    for stage, points in report.curves.items():
        first = points[0]
        name = f"figure-{first.figure}"
        name = f"{name}-{stage}" if name in names else name
        names.add(name)
        drawn = [point for point in points if point.measure == first.measure]
        if first.figure == 3:
            svg = pair_curves(drawn, getattr(sections[stage], "aggregation", None))
        else:
            svg = depth_curve(drawn)
        caption = _CAPTIONS[first.figure].format(
            measure=first.measure, stage=stage, before="the first stage" if first.stage == "first" else first.stage
        )
        found.append(Picture(name, caption + report.trial, svg, points))
    if found:
        found.append(
            Paragraph(
                "curves.csv has the points of every measure. For SAMPLE, the picture has the mean and the standard "
                "deviation of the seeds against k1·m inferences, which is what is asked; the column inferences of "
                "curves.csv has k1·(m - 1), as the caption of the paper's figure 3 has it."
            )
        )
    if report.not_drawn and report.evaluations:
        found.append(Paragraph(f"Measures without curves: {', '.join(report.not_drawn)}."))
    return found


def score_blocks(report: Report) -> Sequence[Block]:
    """How scores are distributed, by label: a picture for each run."""
    return [
        Picture(f"scores-{number}", f"Scores of {run}, by label", score_histogram(by_label, run))
        for number, (run, by_label) in enumerate(report.scores.items(), 1)
    ]
