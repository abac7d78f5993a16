"""Figure 4 of Nogueira et al. 2019, effectiveness against all inferences, as a section of the report.

A curve for each k1 has a point for each k0. `--score-missing` scores the pairs of them that the run lacks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from beamrank.commit.plan import Plan
from beamrank.config.run import RunConfig
from beamrank.errors import ConfigError
from beamrank.evaluation.positions import CurveEvaluator, Positions, supported
from beamrank.ranking.aggregation import Matrix, aggregate
from beamrank.ranking.rankings import matrices as read_matrices
from beamrank.report.blocks import Block, Picture, Section
from beamrank.report.curves import CurvePoint
from beamrank.report.pictures import CONFIGURED, figure, xy
from beamrank.report.report import Report
from beamrank.report.stored.scores import StoredQuery, iter_stored


def blocks(
    report: Report,
    *,
    paths: Sequence[str] = (),
    verbose: bool = False,
    quiet: bool = False,
    score_missing: Annotated[
        bool,
        typer.Option("--score-missing", help="Score the pairs that figure 4 needs and the run lacks. Needs the model."),
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

    run, settings = report.execution, report.settings
    pairs = missing_pairs.depths_plan(run.plan, run.config, settings.k0s, settings.k1s)
    missing_pairs.score_missing(pairs, run.config, console_progress(verbose, quiet))
    points = list(_points(report, run.plan, run.config, pairs))
    if not points:
        return []
    measure = points[0].measure
    assert run.config.duo is not None
    svg = depth_pair_curves([point for point in points if point.measure == measure], run.config.duo.k)
    caption = f"{measure} against the inferences of mono and duo together; along a line, k0 grows{report.trial}"
    return [Picture("figure-4", caption, svg, points)]


SECTION = Section(blocks)


def depth_pair_curves(points: Sequence[CurvePoint], configured: int | None) -> bytes:
    """A measure against all inferences, a line for each k1, the configured one above the others."""
    with figure() as (axes, content):
        for k1 in dict.fromkeys(point.k1 for point in points):
            style = CONFIGURED if k1 == configured else {}
            axes.plot(*xy([point for point in points if point.k1 == k1]), marker=".", label=f"k1 = {k1}", **style)
        axes.set(xlabel="inferences per query, k0 + k1 (k1 - 1)", ylabel=points[0].measure)
        axes.legend()
    return content.getvalue()


@dataclass(frozen=True)
class _Depths:
    """The points: the depths of mono and of duo, and how scores of pairs are aggregated."""

    k0s: tuple[int, ...]
    k1s: tuple[int, ...]
    aggregation: str


def _points(report: Report, plan: Plan, config: RunConfig, pairs: Plan) -> Iterator[CurvePoint]:
    """The means over all judged topics; `pairs` is a plan whose last stage compared the best docs of every k0."""
    if report.qrels is None or config.duo is None:
        return
    record = pairs.stages[-1]
    manifest = pairs.finished(record.name)
    assert manifest is not None
    # SAMPLE is not of all pairs.
    aggregation = "sum" if config.duo.opponents is not None else config.duo.aggregation
    k1s = tuple(k1 for k1 in report.settings.k1s or (record.keys["k"],) if k1 >= 2)
    depths = _Depths(tuple(record.keys["k0s"]), k1s, aggregation)
    curves = CurveEvaluator(report.qrels, supported(config.measures)[0])
    for queries, receipt in zip(iter_stored(plan, config), manifest.receipts, strict=True):
        compared = read_matrices(pairs.folder(record.name).read_part(receipt))
        for query in queries:
            if query.query_id in report.qrels.relevance:
                places = _places(query, *compared[query.query_id], depths)
                curves.add(query.query_id, query.doc_ids, places.__getitem__)
    points = [(k0, k1) for k1 in depths.k1s for k0 in depths.k0s]
    for name, means in curves.means().items():
        for (k0, k1), value in zip(points, means, strict=True):
            cost = k0 + k1 * (k1 - 1)
            yield CurvePoint(4, "duo", k0, k1, depths.aggregation, None, None, cost, cost, name, float(value))


def _places(query: StoredQuery, doc_ids: Sequence[str], z: Matrix, depths: _Depths) -> Positions:
    """The position of each candidate at each point, from 1. int64[n, points]."""
    assert query.mono_scores is not None
    row_of = {doc_id: row for row, doc_id in enumerate(doc_ids)}
    orders = []
    for k1 in depths.k1s:
        for k0 in depths.k0s:
            scored = np.where(query.ranks <= k0, query.mono_scores, np.nan)
            order = np.argsort(-scored, kind="stable")
            head = order[: min(k1, int(np.count_nonzero(~np.isnan(scored))))]
            rows = [row_of[query.doc_ids[index]] for index in head]
            scores = aggregate(z[np.ix_(rows, rows)], depths.aggregation)
            orders.append(np.concatenate([head[np.argsort(-scores, kind="stable")], order[len(head) :]]))
    return np.argsort(np.array(orders), axis=1).T + 1
