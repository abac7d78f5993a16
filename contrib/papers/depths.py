"""Effectiveness against all inferences, figure 4 of Nogueira et al. 2019: a curve for each k1, a point for each k0."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from beamrank.commit.plan import Plan
from beamrank.config.run import RunConfig
from beamrank.evaluation.measures import Measure
from beamrank.evaluation.positions import CurveEvaluator, Positions
from beamrank.formats.qrels import Qrels
from beamrank.ranking.aggregation import Matrix, aggregate
from beamrank.report.curves import CurvePoint
from beamrank.report.stored.scores import StoredQuery, iter_stored, read_matrices

_FULL = "sum"


@dataclass(frozen=True)
class DepthSettings:
    """The points of figure 4: the depths of mono and of duo, and how scores of pairs are aggregated."""

    k0s: tuple[int, ...]
    k1s: tuple[int, ...]
    aggregation: str

    @classmethod
    def of(cls, config: RunConfig, k0s: Sequence[int], k1s: Sequence[int]) -> "DepthSettings":
        """With the run's aggregation; SAMPLE, which is not of all pairs, is replaced by SUM."""
        assert config.duo is not None
        chosen = config.duo.aggregation
        return cls(
            tuple(k0s), tuple(k1 for k1 in k1s if k1 >= 2), _FULL if config.duo.opponents is not None else chosen
        )


def depth_points(
    plan: Plan,
    config: RunConfig,
    pairs: Plan,
    qrels: Qrels,
    measures: Mapping[str, Measure],
    settings: DepthSettings,
) -> Iterator[CurvePoint]:
    """The means over all judged topics.

    Args:
        plan: of the run.
        config: its configuration.
        pairs: a plan whose last stage compared the best docs of every k0 (`models.stages.duo.ScoreDepths`).
        qrels: the judgments.
        measures: by name; see `positions.supported`.
        settings: the points.
    """
    record = pairs.stages[-1]
    manifest = pairs.finished(record.name)
    assert manifest is not None
    curves = CurveEvaluator(qrels, measures)
    for queries, receipt in zip(iter_stored(plan, config), manifest.receipts, strict=True):
        matrices = read_matrices(pairs.folder(record.name).read_part(receipt))
        for query in queries:
            if query.query_id in qrels.relevance:
                places = _places(query, *matrices[query.query_id], settings)
                curves.add(query.query_id, query.doc_ids, places.__getitem__)
    points = [(k0, k1) for k1 in settings.k1s for k0 in settings.k0s]
    for name, means in curves.means().items():
        for (k0, k1), value in zip(points, means, strict=True):
            cost = k0 + k1 * (k1 - 1)
            yield CurvePoint(4, "duo", k0, k1, settings.aggregation, None, None, cost, cost, name, float(value))


def _places(query: StoredQuery, doc_ids: Sequence[str], z: Matrix, settings: DepthSettings) -> Positions:
    """The position of each candidate at each point, from 1. int64[n, points]."""
    assert query.mono_scores is not None
    row_of = {doc_id: row for row, doc_id in enumerate(doc_ids)}
    orders = []
    for k1 in settings.k1s:
        for k0 in settings.k0s:
            scored = np.where(query.ranks <= k0, query.mono_scores, np.nan)
            order = np.argsort(-scored, kind="stable")
            head = order[: min(k1, int(np.count_nonzero(~np.isnan(scored))))]
            rows = [row_of[query.doc_ids[index]] for index in head]
            scores = aggregate(z[np.ix_(rows, rows)], settings.aggregation)
            orders.append(np.concatenate([head[np.argsort(-scores, kind="stable")], order[len(head) :]]))
    return np.argsort(np.array(orders), axis=1).T + 1
