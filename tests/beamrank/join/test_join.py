"""The join, without Beam: what is looked up, and how a shard is put together."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from beamrank.commit import schemas
from beamrank.commit.schemas import (
    Texts,
    candidates_table,
    special_tokens,
    tokenized_schema,
    tokenized_table,
)
from beamrank.errors import DataError
from beamrank.join.join import (
    JoinedShard,
    by_shard,
    candidate_keys,
    join_shard,
    sent_docs,
)
from beamrank.records import SpecialTokens
from beamrank.storage.documents import text_digests

IDS = st.lists(st.integers(0, 30).map(str), max_size=20)
TOKEN = pa.uint16()


def docs(*rows: tuple[str, int, int, list[int], bool]) -> pa.Table:
    names = ["doc_id", "unit", "position", "contents0", "truncated0"]
    return pa.Table.from_pylist(
        [{**dict(zip(names, row, strict=True)), "digest": _digest(row[0])} for row in rows],
        schema=sent_docs(pa.list_(TOKEN)),
    )


def _digest(text: str) -> bytes:
    return text_digests([text])[0]


def candidates(*rows: tuple[str, str, int]) -> pa.Table:
    rows_with_scores = [{"query_id": q, "doc_id": d, "rank": r, "score": 1.0} for q, d, r in rows]
    return pa.Table.from_pylist(rows_with_scores, schema=schemas.CANDIDATES)


def join(
    found: pa.Table, corpus: pa.Table, query_ids: tuple[str, ...] = ("q1", "q2")
) -> JoinedShard:
    queries = pa.array([[9] * number for number, _ in enumerate(query_ids, 1)], pa.list_(TOKEN))
    return join_shard(
        schemas.tokenized(30522),
        query_ids,
        Texts.of(queries, query_ids),
        found,
        corpus,
        lambda unit, at: f"file {unit} byte {at}",
    )


def test_rows_of_docs_are_cut_by_shard_in_their_order() -> None:
    first = pa.RecordBatch.from_pylist(
        docs(
            ("a", 4, 0, [1], False), ("b", 4, 7, [2, 3], True), ("c", 4, 9, [], False)
        ).to_pylist(),
        sent_docs(pa.list_(TOKEN)),
    )
    a, b, c = first.to_pylist()
    shards = [
        *np.random.default_rng(0).integers(0, 5, (40, 3), np.uint32),
        np.array([7], np.uint32),
    ]
    found = [
        (shard, batch.to_pylist())
        for shard, batch in by_shard([first] * 40 + [first.slice(0, 1)], shards)
    ]
    rows = [
        (shard, row)
        for each in shards
        for shard, row in zip(each.tolist(), (a, b, c), strict=False)
    ]
    assert found == [
        (shard, [row for each, row in rows if each == shard]) for shard in (0, 1, 2, 3, 4, 7)
    ]
    assert list(by_shard([], [])) == []
    # A unit of a given run of which no row is of an open shard.
    assert list(by_shard([first.slice(0, 0)] * 2, [np.array([], np.uint32)] * 2)) == []


def test_candidates_of_a_corpus_are_found_by_query_and_doc() -> None:
    found = candidates(("q1", "a", 1), ("q2", "a", 1))
    assert [candidate_keys(found, of_queries) for of_queries in (False, True)] == [
        ["a", "a"],
        ["q1 a", "q2 a"],
    ]


def test_candidates_meet_their_tokens_in_rank_order() -> None:
    found = candidates(("q1", "b", 1), ("q1", "a", 2), ("q2", "b", 1))
    joined = join(
        found, docs(("a", 0, 0, [1, 2], True), ("z", 0, 5, [8], True), ("b", 1, 0, [3], False))
    )
    assert joined.table.to_pylist() == [
        {
            "query_id": "q1",
            "query_tokens": [9],
            "doc_ids": ["b", "a"],
            "ranks": [1, 2],
            "doc_tokens": [[3], [1, 2]],
            "query_digest": _digest("q1"),
            "doc_digests": [_digest("b"), _digest("a")],
            "doc_lengths": [1, 2],
        },
        {
            "query_id": "q2",
            "query_tokens": [9, 9],
            "doc_ids": ["b"],
            "ranks": [1],
            "doc_tokens": [[3]],
            "query_digest": _digest("q2"),
            "doc_digests": [_digest("b")],
            "doc_lengths": [1],
        },
    ]
    assert joined.truncated_docs == 1
    assert joined.missing == ()


def test_join_keeps_queries_without_candidates_and_empty_passages() -> None:
    assert join(candidates(("q2", "a", 1)), docs(("a", 0, 0, [], False))).table[
        "doc_tokens"
    ].to_pylist() == [[], [[]]]
    empty = join(candidates(), docs())
    assert (empty.table["doc_tokens"].to_pylist(), empty.missing, empty.truncated_docs) == (
        [[], []],
        (),
        0,
    )


def test_missing_docs_are_dropped_and_listed_once() -> None:
    joined = join(
        candidates(("q1", "x", 1), ("q1", "a", 2), ("q2", "x", 1)), docs(("a", 0, 0, [1], False))
    )
    assert (joined.missing, joined.truncated_docs) == ((("x", "q1"),), 0)
    assert joined.table["ranks"].to_pylist() == [[2], []]


def test_duplicate_needed_doc_names_both_places() -> None:
    corpus = docs(("a", 3, 77, [1], False), ("a", 1, 5, [1], False))
    with pytest.raises(DataError, match=r"'a' .*file 1 byte 5 .*file 3 byte 77"):
        join(candidates(("q1", "a", 1)), corpus)


def test_duplicate_of_an_unneeded_doc_is_accepted() -> None:
    corpus = docs(("z", 0, 0, [1], False), ("z", 0, 1, [1], False), ("a", 0, 2, [1], False))
    assert join(candidates(("q1", "a", 1)), corpus).table["doc_tokens"].to_pylist() == [[[1]], []]


@dataclass
class _Vocabulary:
    vocab_size: int = 30522
    special: SpecialTokens = field(default=SpecialTokens(101, 102, 0))
    digest: str = "abc"


def test_tables_of_shards_have_their_columns() -> None:
    assert schemas.required(a=pa.int8(), b=pa.string()) == pa.schema(
        [pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.string(), nullable=False)]
    )
    for size, token in ((1 << 16, pa.uint16()), ((1 << 16) + 1, pa.uint32())):
        tokens, digest = pa.list_(token), pa.binary(16)
        columns: dict[str, pa.DataType] = {
            "query_id": pa.string(),
            "query_tokens": tokens,
            "doc_ids": pa.list_(pa.string()),
            "ranks": pa.list_(pa.int32()),
            "doc_tokens": pa.list_(tokens),
            "query_digest": digest,
            "doc_digests": pa.list_(digest),
            "doc_lengths": pa.list_(pa.int32()),
        }
        assert schemas.tokenized(size) == schemas.required(**columns)
        columns |= {"instruction_tokens": tokens, "instruction_digest": digest}
        assert schemas.tokenized(size, instructions=True) == schemas.required(**columns)
    instructed = schemas.TOPICS.append(pa.field("instruction", pa.string()))
    assert [schemas.topics_like(each.empty_table()) for each in (instructed, schemas.TOPICS)] == [
        instructed,
        schemas.TOPICS,
    ]


def test_candidates_are_ranked_from_one_and_scores_become_float32() -> None:
    scores = [[0.1, -3.0], [], np.array([7], np.float32)]
    table = candidates_table(["q2", "none", "q1"], [["b", "a"], [], ["c"]], scores)
    assert table.schema == schemas.CANDIDATES
    assert table.to_pylist() == [
        {"query_id": "q2", "doc_id": "b", "rank": 1, "score": float(np.float32(0.1))},
        {"query_id": "q2", "doc_id": "a", "rank": 2, "score": -3.0},
        {"query_id": "q1", "doc_id": "c", "rank": 1, "score": 7.0},
    ]
    assert candidates_table(["q"], [["b", "a"]])["score"].to_pylist() == [-1.0, -2.0]
    assert candidates_table([], []).equals(schemas.CANDIDATES.empty_table())
    assert candidates_table([], [], []).equals(schemas.CANDIDATES.empty_table())


def test_tokenized_table_has_the_tokens_of_each_candidate() -> None:
    schema = tokenized_schema(_Vocabulary())
    tokens = pa.array([[1], [2, 3], []], schema.field("query_tokens").type)
    candidates = candidates_table(["q1", "q3"], [["b", "a"], ["b"]])
    query_ids = ["q1", "q2", "q3"]
    queries, texts = Texts.of(tokens, query_ids), Texts.of(tokens, ["a", "b", "c"])
    table = tokenized_table(schema, query_ids, queries, candidates, texts, np.array([1, 0, 1]))
    assert table.schema.equals(schema, check_metadata=True)
    a, b, *topics = map(_digest, ("a", "b", *query_ids))
    assert [list(row.values()) for row in table.to_pylist()] == [
        ["q1", [1], ["b", "a"], [1, 2], [[2, 3], [1]], topics[0], [b, a], [2, 1]],
        ["q2", [2, 3], [], [], [], topics[1], [], []],
        ["q3", [], ["b"], [1], [[2, 3]], topics[2], [b], [2]],
    ]


def test_special_tokens_are_read_from_part_metadata() -> None:
    schema = tokenized_schema(_Vocabulary(vocab_size=1 << 20, special=SpecialTokens(101, 102, 7)))
    assert special_tokens(schema) == SpecialTokens(cls_id=101, sep_id=102, pad_id=7)
    assert schema.metadata[b"tokenizer"] == b"abc"
    assert set(schema.metadata) == {b"tokenizer", b"cls_id", b"sep_id", b"pad_id"}
    assert schema.field("query_tokens").type.value_type == pa.uint32()
