"""How a stage could have ranked the docs that it scored: other depths, aggregations, opponents;
without a model.

A query counts only through the positions of its judged docs, so all variants of a stage come out of
one pass. Each is the ranking that `beamrank.ranking.rankings` gives for the same settings.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from beamrank.ranking.aggregation import METHODS, Matrix, aggregate, opponent_order, sample_sums
from beamrank.ranking.combine import Combine
from beamrank.ranking.rankings import (
    Floats,
    Positions,
    Ranking,
    Rankings,
    Table,
    combined,
    compared_among,
    matrices,
    order,
)

# From j docs of a query, by their places among its candidates, to their positions in p rankings,
# from 1: int64[j, p].
FindPositions: TypeAlias = Callable[[Positions], Positions]
# A query, its candidates, and where the variants have them.
QueryPositions: TypeAlias = tuple[str, Sequence[str], FindPositions]
_MANY = 20
_POINTS = 5
_COMBINED_POINTS = 100


class Depths(NamedTuple):
    """The points of curves that a user chooses; empty for the paper's points, without SAMPLE.

    Attributes:
        k0s: how many docs a stage scores one by one.
        k1s: how many docs a stage compares in pairs.
        opponents: how many opponents SAMPLE draws for a doc.
        trials: how many seeds SAMPLE is drawn with, from 0.
    """

    k0s: Sequence[int] = ()
    k1s: Sequence[int] = ()
    opponents: Sequence[int] = ()
    trials: int = 10


class Variant(NamedTuple):
    """One way to rank; None where a setting does not apply.

    Attributes:
        k0: how many docs are scored one by one.
        k1: how many docs are compared in pairs.
        aggregation: of the pairs.
        opponents: how many opponents SAMPLE draws for a doc.
        trial: the seed, or `mean` or `sd` over the seeds.
        inferences: of a query as the papers count them: k0; k1 (k1 - 1), for SAMPLE k1 (m - 1).
        inferences_asked: what beamrank asks its model: for SAMPLE k1 m.
    """

    k0: int | None
    k1: int | None
    aggregation: str | None
    opponents: int | None
    trial: int | str | None
    inferences: int
    inferences_asked: int

    @property
    def depth(self) -> int:
        """How many docs the stage scores."""
        return (self.k0 if self.k1 is None else self.k1) or 0

    @property
    def label(self) -> str:
        """The name of its line in a picture."""
        return (
            str(self.aggregation)
            if self.opponents is None
            else f"{self.aggregation}, m = {self.opponents}"
        )


class Variants(NamedTuple):
    """The variants of a stage.

    Attributes:
        figure: the figure of Nogueira et al. 2019 that shows them.
        k: the stage's.
        variants: in the order of the positions.
        positions: from the rankings that the stage re-ranks, the rankings that it gave and its
            part, the candidates of each query of a shard, and where every variant has them.
    """

    figure: int
    k: int
    variants: Sequence[Variant]
    positions: Callable[[Rankings, Rankings, Table], Iterator[QueryPositions]]


def depth_variants(k: int, depths: Depths, combine: Combine | None = None) -> Variants:
    """A stage that scores k docs one by one, as if it had scored only the first k0, by default
    every one up to k. `combine` mixes the scores of these docs, each time anew: by default at most
    about a hundred times.
    """
    every = range(k + 1) if combine is None else (*range(0, k, -(-k // _COMBINED_POINTS)), k)
    k0s = [k0 for k0 in depths.k0s or every if k0 <= k]

    def positions(before: Rankings, after: Rankings, part: Table) -> Iterator[QueryPositions]:  # noqa: ARG001
        for query_id, ranking in after.items():
            places, doc_ids = remaining(before[query_id], ranking)
            heads, scores = np.searchsorted(places, k0s), _scores(doc_ids, ranking)
            find = partial(_depth_positions, scores, heads)
            if combine is not None:
                given = before[query_id].scores[places]
                mixed = partial(combined, query_id, scores, given, combine)
                find = partial(_combined_positions, mixed, heads)
            yield query_id, doc_ids, find

    return Variants(2, k, [Variant(k0, None, None, None, None, k0, k0) for k0 in k0s], positions)


def pair_variants(k: int, depths: Depths) -> Variants:
    """A stage that compares all pairs of k docs, as if it compared only the first k1, and
    aggregated differently.

    By default every k1 up to 20 or else five of them: with k = 50 these are the points of the
    paper. k1 = 0 is the stage before. SAMPLE is drawn from the matrix, if opponents are given.
    """
    step = 1 if k <= _MANY else -(-k // _POINTS)
    most = [min(k1, k) for k1 in range(step, k + step, step)]
    k1s = [k1 for k1 in depths.k1s or most if 2 <= k1 <= k]
    opponents = sorted({count for count in depths.opponents if count >= 1})
    seeds = range(depths.trials)
    methods = [name for name in METHODS if name != "sample"]
    series: list[tuple[str, int | None, int | None]] = [(name, None, None) for name in methods]
    series += [("sample", count, seed) for count in opponents for seed in seeds]
    variants = [_pair_variant(k1, *line) for k1 in ((0, *k1s) if k1s else ()) for line in series]

    def positions(before: Rankings, after: Rankings, part: Table) -> Iterator[QueryPositions]:
        for query_id, (compared, z) in matrices(part).items() if variants else ():
            if query_id in before:
                _, doc_ids = remaining(before[query_id], after[query_id])
                counts = [compared_among(compared, before[query_id], k1) for k1 in k1s]
                yield query_id, doc_ids, partial(of_query, query_id, compared, z, counts)

    def of_query(
        query_id: str, compared: Sequence[str], z: Matrix, counts: Sequence[int], docs: Positions
    ) -> Positions:
        # A doc that is not compared keeps its position.
        positions_of = np.broadcast_to(
            docs[:, None, None] + 1, (len(docs), 1 + len(k1s), len(series))
        ).copy()
        if (docs < len(z)).any():
            orders = [opponent_order(query_id, compared, seed) for seed in seeds if opponents]
            for row, count in enumerate(counts, 1):
                inside = docs < count
                if inside.any():
                    positions_of[inside, row] = _positions(
                        aggregated(z[:count, :count], orders), docs[inside]
                    )
        return positions_of.reshape(len(docs), len(variants))

    def aggregated(z: Matrix, orders: Sequence[Positions]) -> Floats:
        """The scores of each aggregation and draw, given the order of opponents by seed.
        float64[series, k1].
        """
        first = np.array([_first(order, len(z)) for order in orders], np.int64)
        sampled = sample_sums(z, first, opponents) if orders else {}
        scores = [aggregate(z, name) for name in methods]
        return np.array([*scores, *(sampled[count][seed] for count in sampled for seed in seeds)])

    return Variants(3, k, variants, positions)


def _pair_variant(k1: int, aggregation: str, opponents: int | None, seed: int | None) -> Variant:
    others = max(k1 - 1, 0)
    if opponents is None:
        return Variant(None, k1, aggregation, None, None, k1 * others, k1 * others)
    as_the_caption = k1 * max(min(opponents, k1) - 1, 0)
    return Variant(
        None, k1, aggregation, opponents, seed, as_the_caption, k1 * min(opponents, others)
    )


def remaining(before: Ranking, after: Ranking) -> tuple[Positions, Sequence[str]]:
    """The docs of `before` that did not leave the ranking, and their places in it."""
    if len(before.doc_ids) == len(after.doc_ids):
        return np.arange(len(before.doc_ids)), before.doc_ids
    stayed = set(after.doc_ids)
    places = [place for place, doc_id in enumerate(before.doc_ids) if doc_id in stayed]
    return np.array(places, np.int64), [before.doc_ids[place] for place in places]


def _scores(doc_ids: Sequence[str], after: Ranking) -> Floats:
    """The stage's own score of each candidate; NaN without one."""
    place_of = {doc_id: place for place, doc_id in enumerate(doc_ids)}
    scores = np.full(len(doc_ids), np.nan)
    scores[[place_of[doc_id] for doc_id in after.doc_ids[: after.scored]]] = after.own_scores
    return scores


def _depth_positions(scores: Floats, heads: Positions, docs: Positions) -> Positions:
    """Positions if only the first `heads` candidates had been scored, by score; the others keep
    their order below.
    """
    mine = scores[docs, None]
    # ahead[j, c]: candidate c is above doc j if both are scored. Nothing is above or below a doc
    # without a score.
    ahead = (scores > mine) | ((scores == mine) & (np.arange(len(scores)) < docs[:, None]))
    above = np.concatenate([np.zeros((len(docs), 1), np.int64), np.cumsum(ahead, axis=1)], axis=1)
    scored = np.concatenate([[0], np.cumsum(~np.isnan(scores))])
    below = scored[heads] + docs[:, None] - scored[np.minimum(docs[:, None], heads)] + 1
    return np.where((docs[:, None] < heads) & ~np.isnan(mine), above[:, heads] + 1, below)


def _combined_positions(
    scores: Callable[[int], Floats], heads: Positions, docs: Positions
) -> Positions:
    """The same by scores that depend on how many of the first candidates are scored."""
    columns = [np.argsort(order(scores(head)))[docs] + 1 for head in heads]
    return np.array(columns, np.int64).reshape(len(heads), len(docs)).T


def _positions(scores: Floats, docs: Positions) -> Positions:
    """Positions of some candidates by each row of scores, ties by place. int64[j, series]."""
    mine = scores[:, docs, None]
    ties = (scores[:, None, :] == mine) & (np.arange(scores.shape[1]) < docs[:, None])[None]
    return np.asarray(((scores[:, None, :] > mine) | ties).sum(axis=2).T + 1)


def _first(order: Positions, count: int) -> Positions:
    """The order of opponents among the first `count` candidates only. int64[count, count - 1]."""
    head = order[:count]
    return head[head < count].reshape(count, -1) if count else head


class Opponent(NamedTuple):
    """A doc that a doc was compared with, and the log-odds of being more relevant than it."""

    doc_id: str
    log_odds: float

    def __str__(self) -> str:
        return f"{self.doc_id} (log-odds against it {self.log_odds:+.2f})"


def opponents(part: Table, query_id: str) -> dict[str, dict[str, Any]]:
    """The `strongest` opponent of each doc that was compared, and the `weakest`: by the log-odds
    against them.
    """
    compared, scores = matrices(part).get(query_id, ([], np.empty((0, 0), np.float32)))
    z = scores.astype(np.float64)
    np.fill_diagonal(z, np.nan)
    return {
        doc_id: {
            name: Opponent(compared[place], float(row[place]))
            for name, place in (
                ("strongest", int(np.nanargmin(row))),
                ("weakest", int(np.nanargmax(row))),
            )
        }
        for doc_id, row in zip(compared, z, strict=True)
        if not np.isnan(row).all()
    }
