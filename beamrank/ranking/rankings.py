"""From the tables of the stages to rankings: the scored candidates, then the others in the previous order.

The tables are those of beamrank/join/schemas.py, of one shard or of all. A ranking holds the doc_ids and scores of a
query, best first; beamrank/formats/run_writer.py makes the scores strictly decreasing. A query without candidates has
no ranking. A candidate that a stage did not score, for any reason, keeps its place below those that it scored.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from beamrank.errors import DataError
from beamrank.ranking.aggregation import Matrix, aggregate, simulate_sample

Ranking: TypeAlias = list[tuple[str, float]]
Table: TypeAlias = Any

_SCORED = pa.schema({"query_id": pa.string(), "doc_id": pa.string(), "rank": pa.int32(), "score": pa.float64()})


def first_stage_ranking(candidates: Table) -> dict[str, Ranking]:
    """The candidates of each query in the first stage's order, with its scores.

    Args:
        candidates: a table of schemas.CANDIDATES.
    """
    return _by_query(candidates.sort_by([("query_id", "ascending"), ("rank", "ascending")]))


def mono_ranking(candidates: Table, mono: Table) -> dict[str, Ranking]:
    """The candidates that mono scored, best first, then the others in the first stage's order.

    Args:
        candidates: a table of schemas.CANDIDATES.
        mono: a table of schemas.MONO for the same queries, one row a candidate (see `pool_segments`).

    Raises:
        DataError: mono scored a doc that is not a candidate of its query.
    """
    return _rerank(first_stage_ranking(candidates), mono, "mono")


def duo_ranking(
    mono: Mapping[str, Ranking],
    duo: Table,
    aggregation: str,
    *,
    k1: int | None = None,
    opponents: int | None = None,
    seed: int = 0,
) -> dict[str, Ranking]:
    """The docs that duo compared, by aggregated score, then the others in mono's order.

    Args:
        mono: the rankings of `mono_ranking` for the same queries.
        duo: a table of schemas.DUO for the same queries.
        aggregation: see beamrank.ranking.aggregation.aggregate.
        k1: how many of mono's best docs are compared; by default all that duo compared.
        opponents: how many opponents of a doc SAMPLE draws from a full matrix; by default the matrix is used as it is.
        seed: decides which are drawn.

    Raises:
        ConfigError: the aggregation does not exist.
        DataError: duo compared a doc that is not a candidate of its query, has no row for a query, or the aggregation
            needs pairs that were not scored.
    """
    missing = mono.keys() - set(duo["query_id"].to_pylist())
    if missing:
        raise DataError(f"query {min(missing)!r} has candidates, but duo has no row for it: its part is incomplete")
    rows: list[tuple[str, str, int, float]] = []
    for query_id, doc_ids, z in _matrices(duo, k1):
        sampled = z if opponents is None else simulate_sample(z, query_id, doc_ids, opponents, seed)
        scores = _aggregate(query_id, sampled, aggregation)
        # The rank is the position in mono's order.
        rows += zip([query_id] * len(doc_ids), doc_ids, range(len(doc_ids)), scores, strict=True)
    scored = pa.Table.from_pylist([dict(zip(_SCORED.names, row, strict=True)) for row in rows], schema=_SCORED)
    return _rerank(mono, scored, "duo")


def without_dropped(candidates: Table, mono: Table, k: int) -> Table:
    """The candidates without those that mono was to score but whose doc the corpus lacks (on_missing_doc: drop)."""
    scored = set(zip(mono["query_id"].to_pylist(), mono["doc_id"].to_pylist(), strict=True))
    rows = zip(*(candidates[name].to_pylist() for name in ("query_id", "doc_id", "rank")), strict=True)
    return candidates.filter(
        pa.array([rank > k or (query_id, doc_id) in scored for query_id, doc_id, rank in rows], pa.bool_())
    )


def by_score(scored: Table) -> Table:
    """Rows sorted by query_id, score (best first) and rank. This alone decides the order of what a stage scored.

    Args:
        scored: a table with the columns query_id, rank (in the previous stage's order) and score.
    """
    return scored.sort_by([("query_id", "ascending"), ("score", "descending"), ("rank", "ascending")])


def doc_orders(rankings: Mapping[str, Ranking]) -> Iterator[tuple[str, list[str]]]:
    """Each query's doc_ids, best first, for evaluation."""
    for query_id, ranking in rankings.items():
        yield query_id, [doc_id for doc_id, _ in ranking]


def _rerank(previous: Mapping[str, Ranking], scored: Table, stage: str) -> dict[str, Ranking]:
    rankings = dict(previous)
    for query_id, head in _by_query(by_score(scored)).items():
        docs, before = {doc_id for doc_id, _ in head}, previous.get(query_id, [])
        strangers = docs.difference(doc_id for doc_id, _ in before)
        if strangers:
            raise DataError(
                f"query {query_id!r}: {stage} scored doc {min(strangers)!r}, which is not a candidate of that query: "
                "the two stages belong to different runs; start again in an empty output folder"
            )
        rankings[query_id] = _join(head, [row for row in before if row[0] not in docs])
    return rankings


def _join(head: Ranking, tail: Ranking) -> Ranking:
    """The tail below the head: shifted to start 1 below it, its own spacing kept."""
    if not head or not tail:
        return head or tail
    shift = head[-1][1] - 1 - tail[0][1]
    return head + [(doc_id, score + shift) for doc_id, score in tail]


def _aggregate(query_id: str, z: Matrix, aggregation: str) -> list[float]:
    try:
        return list(aggregate(z, aggregation).tolist())
    except DataError as error:
        raise DataError(f"query {query_id!r}: {error}") from error


def _by_query(table: Table) -> dict[str, Ranking]:
    rankings: dict[str, Ranking] = {}
    for query_id, doc_id, score in _rows(table, "query_id", "doc_id", "score"):
        rankings.setdefault(query_id, []).append((doc_id, score))
    return rankings


def _rows(table: Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(column).to_pylist() for column in columns), strict=True)


def _matrices(duo: Table, k1: int | None) -> Iterator[tuple[str, Sequence[str], Matrix]]:
    """The first k1 docs of each query, and their log-odds, float32[k1, k1]."""
    for query_id, doc_ids, scores in _rows(duo, "query_id", "doc_ids", "scores"):
        count = len(doc_ids)
        if len(scores) != count * count:
            raise DataError(f"query {query_id!r}: {count} docs need {count * count} pairwise scores, not {len(scores)}")
        z = np.array(scores, dtype=np.float32).reshape(count, count)
        yield query_id, doc_ids[:k1], z[:k1, :k1]
