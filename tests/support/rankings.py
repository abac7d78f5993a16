"""Rankings, and the docs that a stage receives, from the tables of a shard whose docs the corpus
has.
"""

from typing import Any

from beamrank.ranking.rankings import (
    Rankings,
    order,
    rank_candidates,
    rank_docs,
    rank_pairs,
    rows_by_query,
)


def first_docs(tokens: Any, k: int) -> dict[str, list[str]]:
    """The first k candidates of each query of a tokenized table."""
    rows = zip(tokens["query_id"].to_pylist(), tokens["doc_ids"].to_pylist(), strict=True)
    return {query_id: doc_ids[:k] for query_id, doc_ids in rows}


def best_docs(mono: Any, k: int) -> dict[str, list[str]]:
    """The best k docs of each query by the scores of a table of schemas.MONO, a row a doc."""
    by_rank = mono.sort_by([("query_id", "ascending"), ("rank", "ascending")])
    doc_ids, scores = by_rank["doc_id"].to_pylist(), by_rank["score"].to_numpy()
    return {
        query_id: [doc_ids[rows][place] for place in order(scores[rows])[:k].tolist()]
        for query_id, rows in rows_by_query(by_rank).items()
    }


def mono_ranking(candidates: Any, mono: Any) -> Rankings:
    """The candidates that mono scored, best first, then the others."""
    return rank_docs(rank_candidates(candidates), mono, 0)


def duo_ranking(
    by_mono: Rankings,
    duo: Any,
    aggregation: str,
    *,
    k1: int | None = None,
    drawn: tuple[int, int] | None = None,
) -> Rankings:
    """The docs that duo compared, by aggregated score, then the others."""
    return rank_pairs(by_mono, duo, 0, aggregation, k=k1, drawn=drawn)
