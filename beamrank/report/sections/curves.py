"""Figures 2, 3 and 4 of the multi-stage paper."""

from collections.abc import Sequence
from functools import partial

from beamrank.report.blocks import Block, Paragraph, Picture
from beamrank.report.pictures import depth_curve, depth_pair_curves, pair_curves
from beamrank.report.report import Report


def blocks(report: Report) -> Sequence[Block]:
    """A picture of each figure, by the first measure that has curves."""
    found: list[Block] = []
    duo = report.execution.config.duo if report.execution else None
    aggregation, k1 = (duo.aggregation, duo.k) if duo else (None, None)
    for figure, draw, caption in (
        (2, depth_curve, "{} against k0, the candidates that mono scores"),
        (
            3,
            partial(pair_curves, configured=aggregation),
            "{} against the pairs that duo is asked for k1 candidates; k1 = 0 is mono",
        ),
        (
            4,
            partial(depth_pair_curves, configured=k1),
            "{} against the inferences of mono and duo together; along a line, k0 grows",
        ),
    ):
        points = [point for point in report.points if point.figure == figure]
        if points:
            measure = points[0].measure
            found.append(Picture(f"figure-{figure}", caption.format(measure) + report.trial, draw(points, measure)))
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
