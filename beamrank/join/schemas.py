"""The tables of a shard: the Parquet schema of each stage's parts, its candidates, its queries with
their tokens.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.records import BM25_TEXT, INSTRUCTION, SpecialTokens


def required(**columns: Any) -> Any:
    """A schema of columns without nulls."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


# One row: a topic, with the number of its shard; in the order of the shards, those of a shard by
# query_id.
TOPICS = pa.schema({"shard": pa.int32(), "query_id": pa.string(), "text": pa.string()})
INSTRUCTION_TOKENS = "instruction_tokens"

# One row: a shard of rows of a file; the file as in `beamrank.storage.digested.DigestedFile`.
_FILE = dict.fromkeys(("url", "version", "sha256"), pa.string())
FILE_ROWS = pa.schema({"shard": pa.int32(), **_FILE, "start": pa.int64(), "end": pa.int64()})

# One row: a candidate; sorted by query_id, rank.
CANDIDATES = required(query_id=pa.string(), doc_id=pa.string(), rank=pa.int32(), score=pa.float32())

# One row: a candidate, or one of its segments; rank is the previous stage's; score is the log-odds
# z = logit1 - logit0.
MONO = required(
    query_id=pa.string(),
    doc_id=pa.string(),
    segment=pa.int16(),
    rank=pa.int32(),
    score=pa.float32(),
)

# One row: a query. scores is the n*n row-major matrix of log-odds z_ij, NaN for a pair that was not
# scored.
DUO = required(query_id=pa.string(), doc_ids=pa.list_(pa.string()), scores=pa.list_(pa.float32()))


def token_type(vocab_size: int) -> Any:
    """The narrowest unsigned type that holds every id of a vocabulary."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def topics_like(table: Any) -> Any:
    """`TOPICS`, with the columns of instructions and of BM25's texts that a table of topics has."""
    own = [name for name in (INSTRUCTION, BM25_TEXT) if name in table.column_names]
    return pa.schema([*TOPICS, *((name, pa.string()) for name in own)])


def tokenized(vocab_size: int, instructions: bool = False) -> Any:
    """One row: a query with its ranked candidates; token ids without special tokens."""
    tokens = pa.list_(token_type(vocab_size))
    return required(
        query_id=pa.string(),
        query_tokens=tokens,
        doc_ids=pa.list_(pa.string()),
        ranks=pa.list_(pa.int32()),
        doc_tokens=pa.list_(tokens),
        **({INSTRUCTION_TOKENS: tokens} if instructions else {}),
    )


class Vocabulary(Protocol):
    """The facts about a tokenizer that the parts that it made carry: `digest` covers everything
    that decides an id.
    """

    @property
    def vocab_size(self) -> int: ...
    @property
    def special(self) -> SpecialTokens: ...
    @property
    def digest(self) -> str: ...


def candidates_table(
    query_ids: Sequence[str], doc_ids: Sequence[Sequence[str]], scores: Sequence[Any] | None = None
) -> pa.Table:
    """The candidates of some queries as `CANDIDATES`, in that order; ranks count from 1.

    Args:
        query_ids: the queries.
        doc_ids: the candidates of each query, best first.
        scores: the scores of each query's candidates; by default minus the rank, for a run of which
            only the order counts.
    """
    queries = np.repeat(np.arange(len(doc_ids)), [len(each) for each in doc_ids])
    ranks = np.arange(len(queries)) - np.searchsorted(queries, queries) + 1
    flat = -ranks if scores is None else np.concatenate([np.empty(0), *scores])
    ids = (
        pa.array(query_ids).take(pa.array(queries)),
        [doc_id for each in doc_ids for doc_id in each],
    )
    return pa.table([*ids, ranks, flat.astype(np.float32)], schema=CANDIDATES)


def tokenized_schema(vocabulary: Vocabulary) -> pa.Schema:
    """`tokenized`, with the tokenizer's digest and special tokens as metadata."""
    special = {name: str(token_id) for name, token_id in vocabulary.special._asdict().items()}
    return tokenized(vocabulary.vocab_size).with_metadata(
        {"tokenizer": vocabulary.digest, **special}
    )


def special_tokens(schema: pa.Schema) -> SpecialTokens:
    """The special tokens in the metadata of a tokenized part."""
    return SpecialTokens(*(int(schema.metadata[name.encode()]) for name in SpecialTokens._fields))


def tokenized_table(
    schema: pa.Schema,
    query_ids: Sequence[str],
    query_tokens: pa.ListArray,
    candidates: pa.Table,
    doc_tokens: pa.ListArray,
    rows: npt.NDArray[np.int64],
) -> pa.Table:
    """The queries of a shard with the tokens of their candidates.

    Args:
        schema: `tokenized`, with the metadata of the table.
        query_ids: the queries; a query without candidates keeps its row.
        query_tokens: their tokens, in the same order.
        candidates: `CANDIDATES`, the queries in the same order, each one's candidates by rank.
        doc_tokens: the tokens of some docs.
        rows: int64[c], which of `doc_tokens` each candidate has.
    """
    number_of = {query_id: number for number, query_id in enumerate(query_ids)}
    numbers = np.array(
        [number_of[query_id] for query_id in candidates["query_id"].to_pylist()], np.int64
    )
    counts = np.bincount(numbers, minlength=len(query_ids))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    flat = (
        candidates["doc_id"].combine_chunks(),
        candidates["rank"].combine_chunks(),
        doc_tokens.take(pa.array(rows)),
    )
    lists = [pa.ListArray.from_arrays(offsets, values) for values in flat]
    return pa.table([query_ids, query_tokens, *lists], schema=schema)
