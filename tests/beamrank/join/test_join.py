"""The join, without Beam: what is looked up, and how a shard is put together."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from beamrank.errors import DataError
from beamrank.join import schemas
from beamrank.join.join import JoinedShard, by_shard, candidate_keys, doc_tokens, doc_tokens_schema, join_shard

IDS = st.lists(st.integers(0, 30).map(str), max_size=20)
TOKEN = pa.uint16()


def docs(*rows: tuple[str, int, int, list[int], bool]) -> pa.Table:
    names = ["doc_id", "unit", "position", "tokens", "truncated"]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=doc_tokens_schema(TOKEN))


def candidates(*rows: tuple[str, str, int]) -> pa.Table:
    rows_with_scores = [{"query_id": q, "doc_id": d, "rank": r, "score": 1.0} for q, d, r in rows]
    return pa.Table.from_pylist(rows_with_scores, schema=schemas.CANDIDATES)


def join(found: pa.Table, corpus: pa.Table, query_ids: tuple[str, ...] = ("q1", "q2")) -> JoinedShard:
    queries = pa.array([[9] * number for number, _ in enumerate(query_ids, 1)], pa.list_(TOKEN))
    return join_shard(
        schemas.tokenized(30522), query_ids, queries, found, corpus, lambda unit, at: f"file {unit} byte {at}"
    )


def test_rows_of_docs_are_cut_by_shard_in_their_order() -> None:
    schema, tokens = doc_tokens_schema(TOKEN), pa.array([[1], [2, 3], []], pa.list_(TOKEN))
    first = doc_tokens(schema, ["a", "b", "c"], 4, [0, 7, 9], tokens, [False, True, False])
    a, b, c = (
        dict(zip(schema.names, row, strict=True))
        for row in (("a", 4, 0, [1], False), ("b", 4, 7, [2, 3], True), ("c", 4, 9, [], False))
    )
    assert first.to_pylist() == [a, b, c]
    assert first.schema == schema
    shards = [*np.random.default_rng(0).integers(0, 5, (40, 3), np.uint32), np.array([7], np.uint32)]
    found = [(shard, batch.to_pylist()) for shard, batch in by_shard([first] * 40 + [first.slice(0, 1)], shards)]
    rows = [(shard, row) for each in shards for shard, row in zip(each.tolist(), (a, b, c), strict=False)]
    assert found == [(shard, [row for each, row in rows if each == shard]) for shard in (0, 1, 2, 3, 4, 7)]
    assert list(by_shard([], [])) == []


def test_candidates_of_a_corpus_are_found_by_query_and_doc() -> None:
    found = candidates(("q1", "a", 1), ("q2", "a", 1))
    assert [candidate_keys(found, of_queries) for of_queries in (False, True)] == [["a", "a"], ["q1 a", "q2 a"]]


def test_candidates_meet_their_tokens_in_rank_order() -> None:
    found = candidates(("q1", "b", 1), ("q1", "a", 2), ("q2", "b", 1))
    joined = join(found, docs(("a", 0, 0, [1, 2], True), ("z", 0, 5, [8], True), ("b", 1, 0, [3], False)))
    assert joined.table.to_pylist() == [
        {"query_id": "q1", "query_tokens": [9], "doc_ids": ["b", "a"], "ranks": [1, 2], "doc_tokens": [[3], [1, 2]]},
        {"query_id": "q2", "query_tokens": [9, 9], "doc_ids": ["b"], "ranks": [1], "doc_tokens": [[3]]},
    ]
    assert joined.truncated_docs == 1
    assert joined.missing == ()


def test_join_keeps_queries_without_candidates_and_empty_passages() -> None:
    assert join(candidates(("q2", "a", 1)), docs(("a", 0, 0, [], False))).table["doc_tokens"].to_pylist() == [[], [[]]]
    empty = join(candidates(), docs())
    assert (empty.table["doc_tokens"].to_pylist(), empty.missing, empty.truncated_docs) == ([[], []], (), 0)


def test_missing_docs_are_dropped_and_listed_once() -> None:
    joined = join(candidates(("q1", "x", 1), ("q1", "a", 2), ("q2", "x", 1)), docs(("a", 0, 0, [1], False)))
    assert (joined.missing, joined.truncated_docs) == ((("x", "q1"),), 0)
    assert joined.table["ranks"].to_pylist() == [[2], []]


def test_duplicate_needed_doc_names_both_places() -> None:
    corpus = docs(("a", 3, 77, [1], False), ("a", 1, 5, [1], False))
    with pytest.raises(DataError, match="'a' appears twice in the corpus: file 1 byte 5 and file 3 byte 77"):
        join(candidates(("q1", "a", 1)), corpus)


def test_duplicate_of_an_unneeded_doc_is_accepted() -> None:
    corpus = docs(("z", 0, 0, [1], False), ("z", 0, 1, [1], False), ("a", 0, 2, [1], False))
    assert join(candidates(("q1", "a", 1)), corpus).table["doc_tokens"].to_pylist() == [[[1]], []]
