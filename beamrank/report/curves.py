"""Effectiveness against inferences, from stored scores: figures 2 and 3 of Nogueira et al. 2019.

Figure 2 is the measure against k0, the candidates that mono scores; figure 3 against k1, those that duo compares, for
every aggregation. A query counts only through the positions of its judged docs, so all k0 come out of one pass.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from beamrank.config.run import RunConfig
from beamrank.evaluation.measures import Measure
from beamrank.evaluation.positions import CurveEvaluator, Floats, Positions
from beamrank.formats.qrels import Qrels
from beamrank.ranking.aggregation import METHODS, aggregate, opponent_order, sample_sums
from beamrank.report.stored.scores import StoredQuery

_MANY = 20
_POINTS = 5


class CurvePoint(NamedTuple):
    """A row of `curves.csv`; None where a column says nothing.

    `inferences` of a query are those of the papers: k0; k1 (k1 - 1), for SAMPLE k1 (m - 1) as the caption of figure 3
    has it. `inferences_asked` are k1 m for SAMPLE, which is what beamrank asks its model. `trial` is the seed, or
    `mean` or `sd` over the seeds.
    """

    figure: int
    stage: str
    k0: int
    k1: int | None
    aggregation: str | None
    opponents: int | None
    trial: int | str | None
    inferences: int
    inferences_asked: int
    measure: str
    value: float


@dataclass(frozen=True)
class CurveSettings:
    """Which points figure 3 has, and up to which k0 figure 2 goes.

    Attributes:
        depth: mono.k, the largest k0.
        k0s: the points of figure 2.
        k1s: the points of figure 3 but for 0, which is mono; none without a full matrix of pairs.
        opponents: the values of m.
        trials: how many seeds SAMPLE is drawn with, from 0.
    """

    depth: int
    k0s: tuple[int, ...]
    k1s: tuple[int, ...] = ()
    opponents: tuple[int, ...] = ()
    trials: int = 10

    @classmethod
    def of(
        cls,
        config: RunConfig,
        k0s: Sequence[int] = (),
        k1s: Sequence[int] = (),
        opponents: Sequence[int] = (),
        trials: int = 10,
    ) -> "CurveSettings":
        """By default every k0, every k1 up to 20 or else five of them, and m at each fifth of the largest k1.

        Depths beyond the stored ones are left out. With duo.k = 50 these are the points of the paper.
        """
        depth = config.mono.k if config.mono else 0
        largest = config.duo.k if config.duo and config.duo.opponents is None else 0
        step = 1 if largest <= _MANY else -(-largest // _POINTS)
        most = [min(each, largest) for each in range(step, largest + step, step)]
        drawn = {round(largest * share / _POINTS) for share in range(1, _POINTS)}
        return cls(
            depth,
            tuple(k0 for k0 in k0s or range(depth + 1) if k0 <= depth),
            tuple(k1 for k1 in k1s or most if 2 <= k1 <= largest),
            tuple(sorted({each for each in opponents or drawn if each >= 1})) if largest else (),
            trials,
        )


class _Series(NamedTuple):
    """Points of figure 3 that one pass over a query gives: an aggregation, or a draw of SAMPLE."""

    aggregation: str
    opponents: int | None = None
    seed: int | None = None


class Curves:
    """Adds up the values of each point, query by query."""

    def __init__(self, qrels: Qrels, measures: Mapping[str, Measure], settings: CurveSettings) -> None:
        """Takes the judgments and the measures, by name; see `positions.supported`."""
        self._settings = settings
        draws = [
            _Series("sample", opponents, seed) for opponents in settings.opponents for seed in range(settings.trials)
        ]
        self._series = [*(_Series(name) for name in METHODS if name != "sample"), *draws] if settings.k1s else []
        self._judged = qrels.relevance
        self._mono, self._duo = CurveEvaluator(qrels, measures), CurveEvaluator(qrels, measures)

    def add(self, queries: Iterable[StoredQuery]) -> None:
        """Takes the stored scores of some queries; those without judgments do not count."""
        for query in queries:
            if query.mono_scores is None or query.query_id not in self._judged:
                continue
            self._mono.add(query.query_id, query.doc_ids, partial(_mono_positions, query, self._settings.k0s))
            if query.z is not None and self._series:
                self._duo.add(query.query_id, query.doc_ids, partial(self._duo_positions, query))

    def points(self) -> Iterator[CurvePoint]:
        """The means over all judged topics, figure 2 first."""
        for name, means in self._mono.means().items():
            for k0, value in zip(self._settings.k0s, means, strict=True):
                stage = "mono" if k0 else "first"
                yield CurvePoint(2, stage, k0, None, None, None, None, k0, k0, name, float(value))
        for name, means in self._duo.means().items():
            yield from self._duo_points(name, means.reshape(-1, len(self._series)))

    def _duo_points(self, name: str, means: Floats) -> Iterator[CurvePoint]:
        depth = self._settings.depth
        for row, k1 in enumerate((0, *self._settings.k1s)):
            trials: dict[int, list[float]] = {}
            for column, series in enumerate(self._series):
                point = _duo_point(depth, k1, series, name, float(means[row, column]))
                if series.opponents is not None:
                    trials.setdefault(series.opponents, []).append(point.value)
                yield point
            for opponents, found in trials.items():
                point = _duo_point(depth, k1, _Series("sample", opponents), name, 0.0)
                yield point._replace(trial="mean", value=float(np.mean(found)))
                yield point._replace(trial="sd", value=float(np.std(found, ddof=1)) if len(found) > 1 else 0.0)

    def _duo_positions(self, query: StoredQuery, docs: Positions) -> Positions:
        """Positions of candidates for k1 = 0, then for each k1 and series. int64[j, p]."""
        assert query.z is not None
        place = np.empty(len(query.doc_ids), np.int64)
        place[query.mono_order] = np.arange(len(place))
        # A doc that is not compared keeps mono's position.
        places = place[docs]
        shape = (len(docs), 1 + len(self._settings.k1s), len(self._series))
        found = np.broadcast_to(places[:, None, None] + 1, shape).copy()
        if not (places < len(query.z)).any():
            return found.reshape(len(docs), shape[1] * shape[2])
        seeds = range(self._settings.trials if self._settings.opponents else 0)
        compared = [query.doc_ids[index] for index in query.compared] if query.compared is not None else []
        orders = [opponent_order(query.query_id, compared, seed) for seed in seeds]
        for row, k1 in enumerate(self._settings.k1s, 1):
            inside = places < min(k1, len(query.z))
            if inside.any():
                scores = self._scores(query.z[:k1, :k1], orders)
                found[inside, row] = _score_positions(scores, places[inside])
        return found.reshape(len(docs), shape[1] * shape[2])

    def _scores(self, z: np.ndarray, orders: Sequence[Positions]) -> Floats:
        """The scores of each series, given the order of opponents by seed. float64[series, k1]."""
        count = len(z)
        drawn = np.array([_first(order, count) for order in orders], np.int64)
        sampled = sample_sums(z, drawn, self._settings.opponents) if orders else {}
        whole = {name: aggregate(z, name) for name in METHODS if name != "sample"}
        return np.array(
            [
                whole[each.aggregation] if each.opponents is None else sampled[each.opponents][each.seed or 0]
                for each in self._series
            ]
        )


def write_csv(points: Iterable[CurvePoint]) -> bytes:
    """`curves.csv`."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(CurvePoint._fields)
    writer.writerows(["" if each is None else each for each in point] for point in points)
    return content.getvalue().encode()


def _duo_point(depth: int, k1: int, series: _Series, name: str, value: float) -> CurvePoint:
    met = max(k1 - 1, 0) if series.opponents is None else min(series.opponents, max(k1 - 1, 0))
    caption = k1 * (k1 - 1) if series.opponents is None else k1 * max(min(series.opponents, k1) - 1, 0)
    return CurvePoint(
        3, "duo" if k1 else "mono", depth, k1, series.aggregation, series.opponents, series.seed, caption, k1 * met,
        name, value,
    )  # fmt: skip


def _mono_positions(query: StoredQuery, k0s: Sequence[int], docs: Positions) -> Positions:
    """Positions of candidates, by their indices, if mono had scored the first k0. int64[j, len(k0s)]."""
    assert query.mono_scores is not None
    scores = query.mono_scores
    # ahead[j, c]: candidate c is above doc j if both are scored. Nothing is above or below a doc without a score.
    mine = scores[docs, None]
    ahead = (scores > mine) | ((scores == mine) & (np.arange(len(scores)) < docs[:, None]))
    above = np.concatenate([np.zeros((len(docs), 1), np.int64), np.cumsum(ahead, axis=1)], axis=1)
    scored = np.concatenate([[0], np.cumsum(~np.isnan(scores))])
    heads = np.searchsorted(query.ranks, k0s, side="right")
    # The others keep their order below the head.
    below = scored[heads] + docs[:, None] - scored[np.minimum(docs[:, None], heads)] + 1
    return np.where((docs[:, None] < heads) & ~np.isnan(mine), above[:, heads] + 1, below)


def _score_positions(scores: Floats, places: Positions) -> Positions:
    """Positions by score, ties by place. int64[len(places), len(scores)]."""
    mine = scores[:, places, None]
    ahead = (scores[:, None, :] > mine) | (
        (scores[:, None, :] == mine) & (np.arange(scores.shape[1]) < places[:, None])[None]
    )
    return np.asarray(ahead.sum(axis=2).T + 1)


def _first(order: Positions, count: int) -> Positions:
    """The order of opponents among the first `count` candidates alone. int64[count, count - 1]."""
    head = order[:count]
    return head[head < count].reshape(count, -1) if count else head
