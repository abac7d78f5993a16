"""How the scores of the first stage and of mono are distributed, by label."""

from collections.abc import Sequence

from beamrank.report.blocks import Block, Picture
from beamrank.report.pictures import score_histogram
from beamrank.report.report import Report


def blocks(report: Report) -> Sequence[Block]:
    """A picture for each of the two."""
    return [
        Picture(f"scores-{number}", f"Scores of {run}, by label", score_histogram(by_label, run))
        for number, (run, by_label) in enumerate(report.scores.items(), 1)
        if sum(map(len, by_label.values()))
    ]
