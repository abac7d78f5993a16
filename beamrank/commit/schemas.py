"""The tables of a shard: the Parquet schema of each stage's parts, its candidates, its queries with
their tokens.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.records import BM25_TEXT, INSTRUCTION, SpecialTokens
from beamrank.storage.documents import TEXT_DIGEST_BYTES, text_digests


def required(**columns: Any) -> Any:
    """A schema of columns without nulls."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


# One row: a topic, with the number of its shard; sorted by shard and query_id.
TOPICS = pa.schema({"shard": pa.int32(), "query_id": pa.string(), "text": pa.string()})
INSTRUCTION_TOKENS = "instruction_tokens"
INSTRUCTION_DIGEST = "instruction_digest"
# Of a text as the tokenizer receives it.
TEXT_DIGEST = pa.binary(TEXT_DIGEST_BYTES)

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


# The place of what is stored of docs among the columns of `tokenized` and of `TEXTS`.
DOCS = 4


def token_type(vocab_size: int) -> Any:
    """The narrowest unsigned type that holds every id of a vocabulary."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def topics_like(table: Any) -> Any:
    """`TOPICS`, with the columns of instructions and of BM25's texts that a table of topics has."""
    optional = [name for name in (INSTRUCTION, BM25_TEXT) if name in table.column_names]
    return pa.schema([*TOPICS, *((name, pa.string()) for name in optional)])


def tokenized(vocab_size: int, instructions: bool = False) -> Any:
    """One row: a query with its ranked candidates; token ids without special tokens.

    Digests and lengths name the contents of the texts: `models.scoring.answers`.
    """
    tokens = pa.list_(token_type(vocab_size))
    of_topics = {INSTRUCTION_TOKENS: tokens, INSTRUCTION_DIGEST: TEXT_DIGEST}
    return required(
        query_id=pa.string(),
        query_tokens=tokens,
        doc_ids=pa.list_(pa.string()),
        ranks=pa.list_(pa.int32()),
        doc_tokens=pa.list_(tokens),
        query_digest=TEXT_DIGEST,
        doc_digests=pa.list_(TEXT_DIGEST),
        doc_lengths=pa.list_(pa.int32()),
        **(of_topics if instructions else {}),
    )


# One row: a query with its ranked candidates and their texts, cut; digests are of texts that are
# not cut, and lengths in bytes.
TEXTS = required(
    query_id=pa.string(),
    query=pa.large_string(),
    doc_ids=pa.list_(pa.string()),
    ranks=pa.list_(pa.int32()),
    doc_texts=pa.list_(pa.large_string()),
    query_digest=TEXT_DIGEST,
    doc_digests=pa.list_(TEXT_DIGEST),
    doc_lengths=pa.list_(pa.int32()),
)


class Texts(NamedTuple):
    """The stored form of n texts: their token ids as a list array or strings, and
    TEXT_DIGEST[n].
    """

    contents: Any
    digests: Any

    @classmethod
    def of(cls, contents: Any, texts: Sequence[str]) -> Self:
        """Texts with what is stored of them."""
        return cls(contents, pa.array(text_digests(texts), TEXT_DIGEST))

    @property
    def lengths(self) -> Any:
        """int32[n], in tokens or bytes."""
        strings = pa.types.is_large_string(self.contents.type)
        lengths = (pc.binary_length if strings else pc.list_value_length)(self.contents)
        return lengths.cast(pa.int32())

    def take(self, rows: Any) -> "Texts":
        """The texts of some rows."""
        return Texts(*(column.take(rows) for column in self))


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
    queries = np.repeat(np.arange(len(doc_ids)), [len(ids) for ids in doc_ids])
    ranks = np.arange(len(queries)) - np.searchsorted(queries, queries) + 1
    flat = -ranks if scores is None else np.concatenate([np.empty(0), *scores])
    ids = (
        pa.array(query_ids).take(pa.array(queries)),
        [doc_id for ids in doc_ids for doc_id in ids],
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
    queries: "Texts",
    candidates: pa.Table,
    docs: "Texts",
    rows: npt.NDArray[np.int64],
) -> pa.Table:
    """The queries of a shard with the tokens, or texts, of their candidates.

    Args:
        schema: `tokenized`, with the metadata of the table, or `TEXTS`.
        query_ids: the queries; a query without candidates keeps its row.
        queries: their texts, in the same order.
        candidates: `CANDIDATES`, the queries in the same order, each one's candidates by rank.
        docs: the texts of some docs.
        rows: int64[c], which of `docs` each candidate has.
    """
    number_of = {query_id: number for number, query_id in enumerate(query_ids)}
    numbers = np.array(
        [number_of[query_id] for query_id in candidates["query_id"].to_pylist()], np.int64
    )
    counts = np.bincount(numbers, minlength=len(query_ids))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    docs = docs.take(pa.array(rows))
    doc_ids, ranks = (candidates[name].combine_chunks() for name in ("doc_id", "rank"))
    of_docs = (
        pa.ListArray.from_arrays(offsets, values)
        for values in (doc_ids, ranks, docs.contents, docs.digests, docs.lengths)
    )
    doc_ids, ranks, contents, *named = of_docs
    columns = [query_ids, queries.contents, doc_ids, ranks, contents, queries.digests, *named]
    return pa.table(columns, schema=schema)
