"""A section of the report: docs that share no term with their topic."""

from collections.abc import Sequence

import numpy as np

from beamrank.evaluation.tables import COUNT, Cell, Column, Table
from beamrank.report.blocks import Block, Section, TableBlock
from beamrank.report.report import Report
from beamrank.report.runs import PlanRuns
from beamrank_overlap.stage import Overlap


def blocks(report: Report) -> Sequence[Block]:
    """A row for each stage of ours; nothing where none ran."""
    if report.execution is None:
        return []
    columns = [Column("stage"), Column("docs", COUNT), Column("without a shared term", COUNT)]
    stages = [stage for stage in report.execution.finished if isinstance(stage, Overlap)]
    rows = [_row(report.execution, stage) for stage in stages]
    if not rows:
        return []
    return [TableBlock("Docs that share no term with their topic", Table(columns, rows))]


def _row(runs: PlanRuns, stage: Overlap) -> Sequence[Cell]:
    docs = shared = 0
    for parts in runs.shards():
        for ranking in parts.rankings(stage.name).values():
            docs += ranking.scored
            shared += int(np.count_nonzero(ranking.own_scores))
    return [stage.name, docs, docs - shared]


SECTION = Section(blocks)
