"""Figure 4 of Nogueira et al. 2019, effectiveness against all inferences, as a section of the
report.

A curve for each k1 has a point for each k0. `--score-missing` scores the pairs of them that the run
lacks.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from beamrank.commit.receipts import Manifest
from beamrank.errors import ConfigError
from beamrank.evaluation.evaluate import Evaluator
from beamrank.evaluation.measures import by_position
from beamrank.ranking.aggregation import Matrix, aggregate
from beamrank.ranking.rankings import Ranking, matrices, rerank
from beamrank.ranking.variants import Variant
from beamrank.report.blocks import Block, Picture, Section
from beamrank.report.curves import CurvePoint
from beamrank.report.pictures import COLORS, draw_variants, figure, name_lines
from beamrank.report.report import Report
from beamrank.report.runs import PlanRuns

if TYPE_CHECKING:
    from contrib.papers.missing_pairs import Pairs


def blocks(
    report: Report,
    *,
    paths: Sequence[str] = (),
    verbose: bool = False,
    quiet: bool = False,
    score_missing: Annotated[
        bool,
        typer.Option(
            "--score-missing",
            help="Score the pairs that figure 4 needs and the run lacks. Needs the model.",
        ),
    ] = False,
) -> Sequence[Block]:
    """The picture, if it is asked for and the run has judgments.

    Raises:
        ConfigError: it is not asked for one run, or the run has no pairs.
    """
    if not score_missing:
        return []
    if report.execution is None or len(paths) != 1:
        raise ConfigError("--score-missing scores the pairs of one run: give one DIR")
    # Beam takes seconds to import, and other reports do without.
    from contrib.papers import missing_pairs
    from pipelines.commands.arguments import console_progress

    runs, settings = report.execution, report.settings
    if report.qrels is not None and not by_position(runs.config.measures)[0]:
        raise ConfigError(
            "figure 4 needs a measure with curves, and the run has "
            f"{', '.join(runs.config.measures)}"
        )
    pairs = missing_pairs.depths_plan(runs, *settings.depths[:2])
    manifest = missing_pairs.score_missing(pairs, runs, console_progress(verbose, quiet))
    if report.qrels is None:
        return []
    points = list(_points(report, runs, pairs, manifest))
    measure = points[0].measure
    svg = depth_pair_curves([point for point in points if point.measure == measure], pairs.duo.k)
    stages = f"{pairs.mono.name} and {pairs.duo.name}"
    caption = (
        f"{measure} against the inferences of {stages} together; along a line, k0 "
        f"grows{report.trial}"
    )
    return [Picture("figure-4", caption, svg, points)]


SECTION = Section(blocks)


def depth_pair_curves(points: Sequence[CurvePoint], configured: int | None) -> bytes:
    """A measure against all inferences, a line for each k1, the configured one above the others."""
    lines: dict[str, list[CurvePoint]] = {}
    for point in points:
        lines.setdefault(f"k1 = {point.variant.k1}", []).append(point)
    with figure() as (axes, content):
        draw_variants(axes, lines, f"k1 = {configured}", COLORS[-1])
        axes.set(xlabel="inferences per query, k0 + k1 (k1 - 1)", ylabel=points[0].measure)
        name_lines(axes)
    return content.getvalue()


def _points(
    report: Report, runs: PlanRuns, pairs: "Pairs", manifest: Manifest
) -> Iterator[CurvePoint]:
    """The means over all judged topics."""
    assert report.qrels is not None
    # SAMPLE is not of all pairs.
    aggregation = "sum" if pairs.duo.aggregation == "sample" else pairs.duo.aggregation
    k1s = [k1 for k1 in report.settings.depths.k1s or (pairs.stage.k,) if k1 >= 2]
    measures = list(by_position(report.measures)[0])
    depths = [(k0, k1) for k1 in k1s for k0 in pairs.stage.k0s]
    evaluators = {depth: Evaluator(report.qrels, measures, fast=True) for depth in depths}
    for parts, receipt in zip(runs.shards(), manifest.receipts, strict=True):
        scores = matrices(pairs.plan.folder(pairs.stage.name).read_part(receipt))
        for k0 in pairs.stage.k0s:
            ranked = parts.rank(pairs.mono, k0)
            for k1 in k1s:
                evaluators[k0, k1].add(
                    (query_id, _compare(query_id, ranking, *scores[query_id], k1, aggregation))
                    for query_id, ranking in ranked.items()
                    if query_id in report.qrels.relevance
                )
    means = {depth: evaluator.evaluation().means for depth, evaluator in evaluators.items()}
    for measure in measures:
        for k0, k1 in depths:
            cost = k0 + k1 * (k1 - 1)
            value = means[k0, k1][measure]
            variant = Variant(k0, k1, aggregation, None, None, cost, cost)
            yield CurvePoint(4, pairs.duo.name, variant, measure, value)


def _compare(
    query_id: str, before: Ranking, doc_ids: Sequence[str], z: Matrix, k1: int, aggregation: str
) -> Sequence[str]:
    """The ranking after the first k1 docs were compared."""
    head = before.doc_ids[: min(k1, before.scored)]
    rows = [doc_ids.index(doc_id) for doc_id in head]
    return rerank(
        query_id, before, head, aggregate(z[np.ix_(rows, rows)], aggregation), len(head)
    ).doc_ids
