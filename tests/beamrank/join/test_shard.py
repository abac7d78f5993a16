"""The tables of a shard: candidates, and queries with the tokens of their candidates."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from beamrank.join import schemas
from beamrank.join.schemas import candidates_table, special_tokens, tokenized_schema, tokenized_table
from beamrank.records import SpecialTokens


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
        names = ("query_id", "query_tokens", "doc_ids", "ranks", "doc_tokens", "instruction_tokens")
        of_query, of_docs = pa.list_(token), [pa.list_(each) for each in (pa.string(), pa.int32(), pa.list_(token))]
        types = dict(zip(names, (pa.string(), of_query, *of_docs, of_query), strict=True))
        assert schemas.tokenized(size, instructions=True) == schemas.required(**types)
        assert schemas.tokenized(size).names == list(names[:-1])
    assert schemas.scores(pa.int64()) == pa.schema({"id": pa.int64(), "score": pa.float32()})
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
    table = tokenized_table(schema, ["q1", "q2", "q3"], tokens, candidates, tokens, np.array([1, 0, 1]))
    assert table.schema.equals(schema, check_metadata=True)
    assert [list(row.values()) for row in table.to_pylist()] == [
        ["q1", [1], ["b", "a"], [1, 2], [[2, 3], [1]]],
        ["q2", [2, 3], [], [], []],
        ["q3", [], ["b"], [1], [[2, 3]]],
    ]


def test_special_tokens_are_read_from_part_metadata() -> None:
    schema = tokenized_schema(_Vocabulary(vocab_size=1 << 20, special=SpecialTokens(101, 102, 7)))
    assert special_tokens(schema) == SpecialTokens(cls_id=101, sep_id=102, pad_id=7)
    assert schema.metadata[b"tokenizer"] == b"abc"
    assert set(schema.metadata) == {b"tokenizer", b"cls_id", b"sep_id", b"pad_id"}
    assert schema.field("query_tokens").type.value_type == pa.uint32()
