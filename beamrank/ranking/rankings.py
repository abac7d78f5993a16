"""Rankings: how the part of each stage, its table of a shard, re-ranks what the stage before gave
(section 3 of the multi-stage paper).

One rule for every reader: `ranking = first.rank(None, part)`, then `ranking = stage.rank(ranking,
part)` for each later stage. `ShardParts` calls `Stage.rank`, and this calls `rank_candidates`,
`rank_docs` or `rank_pairs`. A stage puts the docs that it scored first, best first, and leaves the
others below in their order. A doc that it was to score and the corpus lacked (`on_missing_doc:
drop`) leaves the ranking there. Only `order` decides ties.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from beamrank.errors import DataError
from beamrank.ranking.aggregation import Matrix, aggregate, simulate_sample
from beamrank.ranking.combine import Combine
from beamrank.ranking.input_layout import SegmentPooling

Floats: TypeAlias = NDArray[np.float64]
Positions: TypeAlias = NDArray[np.int64]
Table: TypeAlias = Any


@dataclass(frozen=True)
class Ranking:
    """The n docs of a query, best first.

    Attributes:
        doc_ids: the docs.
        scores: float64[n], never increasing: first the scores of the last stage, then the scores
            of the stages before, shifted below them.
        scored: how many of the first docs the last stage scored; the next stage receives only the
            first of these.
        uncombined: the last stage's own scores of these, if it mixed them with those before.
    """

    doc_ids: tuple[str, ...]
    scores: Floats
    scored: int
    uncombined: Floats | None = None

    @property
    def own_scores(self) -> Floats:
        """The scores that the last stage gave, float64[scored]."""
        return self.scores[: self.scored] if self.uncombined is None else self.uncombined

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return zip(self.doc_ids, self.scores.tolist(), strict=True)


Rankings: TypeAlias = Mapping[str, Ranking]
"""By query_id; a query without candidates has none."""


def order(scores: Floats) -> Positions:
    """The places of scores, best first, int64[n]. Ties keep their order, NaN comes last.

    Nothing else orders what a stage scored.
    """
    return np.argsort(-scores, kind="stable")


def doc_orders(rankings: Rankings) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each query's doc_ids, best first, for evaluation."""
    for query_id, ranking in rankings.items():
        yield query_id, ranking.doc_ids


def rank_candidates(part: Table) -> Rankings:
    """The ranking of a first stage, from a table of `schemas.CANDIDATES`, sorted by query_id and
    rank.
    """
    doc_ids, scores = part["doc_id"].to_pylist(), part["score"].to_numpy().astype(np.float64)
    return {
        query_id: Ranking(tuple(doc_ids[rows]), scores[rows], rows.stop - rows.start)
        for query_id, rows in rows_by_query(part).items()
    }


def rank_docs(
    before: Rankings,
    part: Table,
    stage_k: int,
    pooling: SegmentPooling = "max",
    k: int | None = None,
    combine: Combine | None = None,
) -> Rankings:
    """The rankings after a stage that scores docs one by one, whose `part` is a table of
    `schemas.MONO`.

    It was to score `stage_k` docs of a query; with `k`, as if it had scored only so many. DataError
    if the part is not of the rankings before, or scores that are not finite would be combined.
    """
    pooled = pool_segments(part, pooling)
    doc_ids, scores, rows = (
        pooled["doc_id"].to_pylist(),
        pooled["score"].to_numpy(),
        rows_by_query(pooled),
    )
    for query_id in rows.keys() - before.keys():
        raise _foreign(query_id, doc_ids[rows[query_id].start])
    rankings = {}
    for query_id, ranking in before.items():
        place = rows.get(query_id, slice(0, 0))
        own_scores = scores[place].astype(np.float64)
        rankings[query_id] = rerank(
            query_id, ranking, doc_ids[place], own_scores, stage_k, k, combine
        )
    return rankings


def rank_pairs(
    before: Rankings,
    part: Table,
    stage_k: int,
    aggregation: str,
    *,
    k: int | None = None,
    drawn: tuple[int, int] | None = None,
) -> Rankings:
    """The rankings after a stage that compares docs in pairs, whose `part` is a table of
    `schemas.DUO`.

    It was to compare `stage_k` docs of a query; with `k`, as if it had compared only those among
    the first k. `drawn` are the m and the seed of SAMPLE, which draws from a full matrix; by
    default the matrix is used as it is.

    Raises:
        DataError: the part is not of these rankings, or the aggregation needs pairs that were not
            scored.
    """
    pairs = matrices(part)
    rankings = {}
    for query_id, ranking in before.items():
        if query_id not in pairs:
            raise DataError(
                f"query {query_id!r} has candidates, but no row in the part of a stage: it is "
                "incomplete"
            )
        doc_ids, z = pairs[query_id]
        if k is not None:
            count = compared_among(doc_ids, ranking, k)
            z = z[:count, :count]
        if drawn is not None:
            z = simulate_sample(z, query_id, doc_ids[: len(z)], *drawn)
        try:
            scores = np.asarray(aggregate(z, aggregation), np.float64)
        except DataError as error:
            raise DataError(f"query {query_id!r}: {error}") from error
        rankings[query_id] = rerank(query_id, ranking, doc_ids, scores, stage_k)
    return rankings


def compared_among(doc_ids: Sequence[str], before: Ranking, k: int) -> int:
    """How many of the docs that were compared, best first, are among the first k before."""
    if len(doc_ids) <= k and doc_ids == list(before.doc_ids[: len(doc_ids)]):
        return len(doc_ids)
    first = set(before.doc_ids[:k])
    return sum(doc_id in first for doc_id in doc_ids)


def received(rankings: Rankings, k: int) -> dict[str, Sequence[str]]:
    """The docs of each query that a stage with this `k` receives, best first: never of the tail."""
    return {
        query_id: ranking.doc_ids[: min(k, ranking.scored)]
        for query_id, ranking in rankings.items()
    }


def rerank(
    query_id: str,
    before: Ranking,
    doc_ids: Sequence[str],
    scores: Floats,
    stage_k: int,
    k: int | None = None,
    combine: Combine | None = None,
) -> Ranking:
    """One query's ranking after a stage; DataError if it scored a doc that is not in `before`.

    Args:
        query_id: the query, for messages.
        before: its ranking.
        doc_ids: the docs that the stage scored.
        scores: float64[at most len(doc_ids)], of the first of them; the others keep their places in
            `before`.
        stage_k: how many of the first docs of `before` the stage was to score. A doc that it was to
            score, and that is not among `doc_ids`, leaves the ranking.
        k: as if it had scored only those among the first k.
        combine: how scores are mixed with those of `before`, over the docs that it scored.
    """
    places = np.arange(len(doc_ids))
    # Without docs that the corpus lacks, they are the first ones.
    if tuple(doc_ids) != before.doc_ids[: len(doc_ids)]:
        place_of = {doc_id: place for place, doc_id in enumerate(before.doc_ids)}
        try:
            places = np.array([place_of[doc_id] for doc_id in doc_ids], np.int64)
        except KeyError as error:
            raise _foreign(query_id, error.args[0]) from error
    own = by_place = np.full(len(before.doc_ids), np.nan)
    own[places[: len(scores)]] = scores
    if combine is not None:
        by_place = combined(query_id, own, before.scores, combine, k)
    head = np.flatnonzero(~np.isnan(by_place[:k]))
    head = head[order(by_place[head])]
    stays = np.arange(len(by_place)) >= min(stage_k, before.scored)
    stays[places] = True
    stays[head] = False
    tail = np.flatnonzero(stays)
    below = before.scores[tail]
    if len(head) and len(tail):
        # The tail keeps its own spacing, and starts 1 below the head.
        below = below + (by_place[head[-1]] - 1 - below[0])
    ranked = tuple(np.array(before.doc_ids, object)[np.concatenate([head, tail])].tolist())
    return Ranking(ranked, np.concatenate([by_place[head], below]), len(head), own[head])


def combined(query_id: str, own: Floats, before: Floats, combine: Combine, k: int | None) -> Floats:
    """The scores of the first k docs in the order before, mixed with those before; NaN of others,
    and without one.
    """
    scored = np.flatnonzero(~np.isnan(own[:k]))
    mixed = np.full_like(own, np.nan)
    mixed[scored] = combine.mix(own[scored], before[scored])
    if not np.isfinite(mixed[scored]).all():
        raise DataError(
            f"query {query_id!r}: a score is not finite, so it cannot be combined with that of the "
            "stage before: the model overflowed; score again with dtype float32"
        )
    return mixed


def _foreign(query_id: str, doc_id: str) -> DataError:
    return DataError(
        f"query {query_id!r}: a stage scored doc {doc_id!r}, which is not a candidate of that "
        "query: the stages belong to different runs; start again in an empty output folder"
    )


def pool_segments(mono: Any, pooling: SegmentPooling) -> Any:
    """One row a candidate out of one a segment: `max` (MaxP), `first` or `mean` of the segments'
    scores.

    Both are tables of `schemas.MONO`; the result is sorted by query_id and rank, and has segment 0
    only.
    """
    ordered = mono.sort_by(
        [("query_id", "ascending"), ("rank", "ascending"), ("segment", "ascending")]
    )
    scores = ordered["score"].to_numpy()
    firsts = np.flatnonzero(ordered["segment"].to_numpy() == 0)
    if pooling == "max":
        pooled = np.maximum.reduceat(scores, firsts)
    elif pooling == "first":
        pooled = scores[firsts]
    else:
        counts = np.diff(firsts, append=len(scores))
        pooled = np.add.reduceat(scores.astype(np.float64), firsts) / counts
    column = ordered.schema.get_field_index("score")
    return ordered.take(pa.array(firsts)).set_column(
        column, ordered.schema.field(column), pa.array(pooled.astype(np.float32))
    )


def matrices(part: Table) -> dict[str, tuple[list[str], Matrix]]:
    """The docs of each query that were compared, and their log-odds, float32[n, n], in a table of
    `schemas.DUO`.

    Raises:
        DataError: a query does not have the scores of n * n pairs.
    """
    flat = pc.list_flatten(part["scores"]).to_numpy()
    lengths = pc.list_value_length(part["scores"]).to_pylist()
    by_query, start = {}, 0
    for query_id, docs, length in zip(
        part["query_id"].to_pylist(), part["doc_ids"].to_pylist(), lengths, strict=True
    ):
        count = len(docs)
        if length != count * count:
            raise DataError(
                f"query {query_id!r}: {count} docs need {count * count} pairwise scores, not "
                f"{length}"
            )
        by_query[query_id] = docs, flat[start : start + length].reshape(count, count)
        start += length
    return by_query


def rows_by_query(table: Table) -> dict[str, slice]:
    """The rows of each query of a table that is sorted by query_id."""
    codes = table["query_id"].combine_chunks().dictionary_encode()
    starts = np.flatnonzero(np.diff(codes.indices.to_numpy(), prepend=-1))
    ends = np.append(starts, len(codes))[1:]
    return {
        query_id: slice(start, end)
        for query_id, start, end in zip(
            codes.dictionary.to_pylist(), starts.tolist(), ends.tolist(), strict=True
        )
    }
