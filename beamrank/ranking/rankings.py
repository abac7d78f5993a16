"""From the tables of the stages to final rankings: the head of each stage, then the tail in the previous order.

The tables are those of beamrank/tables/schemas.py, of one shard or of all. A ranking holds each query's doc_ids and
run scores, best first; beamrank/formats/run_writer.py makes the scores strictly decreasing. A query without candidates
has no ranking. A candidate that a stage did not score, for any reason, is in the tail: none is lost.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from beamrank.errors import DataError
from beamrank.ranking.aggregation import Matrix, aggregate, restrict, simulate_sample
from beamrank.tables.schemas import DUO

Ranking: TypeAlias = list[tuple[str, float]]
Table: TypeAlias = Any


def bm25_ranking(candidates: Table) -> dict[str, Ranking]:
    """The candidates of each query in their order, with the first stage's scores.

    Args:
        candidates: a table of schemas.CANDIDATES.
    """
    rankings: dict[str, Ranking] = {}
    by_rank = candidates.sort_by([("query_id", "ascending"), ("rank", "ascending")])
    for query_id, doc_id, score in _rows(by_rank, "query_id", "doc_id", "score"):
        rankings.setdefault(query_id, []).append((doc_id, score))
    return rankings


def mono_ranking(candidates: Table, mono: Table) -> dict[str, Ranking]:
    """What monoBERT scored, best first, then the other candidates in the first stage's order.

    Ties go to the better rank of the first stage.

    Args:
        candidates: a table of schemas.CANDIDATES.
        mono: a table of schemas.MONO for the same queries, one row a candidate (see `pool_segments`).

    Raises:
        DataError: mono scored a doc that is no candidate of its query.
    """
    rankings = bm25_ranking(candidates)
    scores: dict[str, dict[str, float]] = {}
    for query_id, doc_id, score in _rows(mono, "query_id", "doc_id", "score"):
        scores.setdefault(query_id, {})[doc_id] = score
    for query_id, docs in scores.items():
        previous = rankings.get(query_id, [])
        strangers = docs.keys() - {doc_id for doc_id, _ in previous}
        if strangers:
            raise DataError(
                f"query {query_id!r}: mono scored doc {min(strangers)!r}, which is no candidate of that query: "
                "the two stages belong to different runs; start again in an empty output folder"
            )
        in_order = [(doc_id, docs[doc_id]) for doc_id, _ in previous if doc_id in docs]
        rankings[query_id] = _join(_by_score(in_order), [row for row in previous if row[0] not in docs])
    return rankings


def duo_ranking(candidates: Table, mono: Table, duo: Table, aggregation: str) -> dict[str, Ranking]:
    """What duoBERT compared, by aggregated score, then mono's ranking below it; ties go to mono's better rank.

    Args:
        candidates: a table of schemas.CANDIDATES.
        mono: a table of schemas.MONO for the same queries, one row a candidate.
        duo: a table of schemas.DUO for the same queries.
        aggregation: see beamrank.ranking.aggregation.aggregate.

    Raises:
        ConfigError: there is no such aggregation.
        DataError: duo's docs are not the first of mono's ranking, or the aggregation needs pairs that were not asked.
    """
    rankings = mono_ranking(candidates, mono)
    compared = set()
    for query_id, doc_ids, z in _matrices(duo):
        compared.add(query_id)
        previous = rankings.get(query_id, [])
        if [doc_id for doc_id, _ in previous[: len(doc_ids)]] != list(doc_ids):
            raise DataError(
                f"query {query_id!r}: the {len(doc_ids)} docs that duo compared are not mono's first: "
                "the two stages belong to different runs; start again in an empty output folder"
            )
        if doc_ids:
            scores = _aggregate(query_id, z, aggregation)
            head = _by_score(list(zip(doc_ids, scores, strict=True)))
            rankings[query_id] = _join(head, previous[len(doc_ids) :])
    missing = rankings.keys() - compared
    if missing:
        raise DataError(f"query {min(missing)!r} has candidates, but duo has no row for it: its part is not whole")
    return rankings


def restrict_duo(duo: Table, k1: int) -> Table:
    """The duo table of a smaller k1 at the same k0."""
    return _map_matrices(duo, lambda _, doc_ids, z: (doc_ids[:k1], restrict(z, k1)))


def sample_duo(duo: Table, opponents: int, seed: int) -> Table:
    """The duo table as SAMPLE(m) would have left it."""
    return _map_matrices(
        duo, lambda query_id, doc_ids, z: (doc_ids, simulate_sample(z, query_id, doc_ids, opponents, seed))
    )


def _by_score(in_order: Ranking) -> Ranking:
    """Best first; equal scores keep their order."""
    return sorted(in_order, key=lambda row: -row[1])


def _join(head: Ranking, tail: Ranking) -> Ranking:
    """The tail below the head: shifted to start 1 below it, its own spacing kept."""
    if not head or not tail:
        return head or tail
    shift = head[-1][1] - 1 - tail[0][1]
    return head + [(doc_id, score + shift) for doc_id, score in tail]


def _aggregate(query_id: str, z: Matrix, aggregation: str) -> list[float]:
    try:
        scores: list[float] = aggregate(z, aggregation).tolist()
    except DataError as error:
        raise DataError(f"query {query_id!r}: {error}") from error
    return scores


def _rows(table: Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(column).to_pylist() for column in columns), strict=True)


def _matrices(duo: Table) -> Iterator[tuple[str, Sequence[str], Matrix]]:
    """Each query's docs and its log-odds, float32[n, n]."""
    for query_id, doc_ids, scores in _rows(duo, "query_id", "doc_ids", "scores"):
        count = len(doc_ids)
        if len(scores) != count * count:
            raise DataError(f"query {query_id!r}: {count} docs need {count * count} pairwise scores, not {len(scores)}")
        yield query_id, doc_ids, np.array(scores, dtype=np.float32).reshape(count, count)


def _map_matrices(duo: Table, function: Callable[[str, Sequence[str], Matrix], tuple[Sequence[str], Matrix]]) -> Table:
    changed: Iterable[tuple[str, tuple[Sequence[str], Matrix]]] = (
        (query_id, function(query_id, doc_ids, z)) for query_id, doc_ids, z in _matrices(duo)
    )
    rows = [{"query_id": query_id, "doc_ids": doc_ids, "scores": z.reshape(-1)} for query_id, (doc_ids, z) in changed]
    return pa.Table.from_pylist(rows, schema=DUO)
