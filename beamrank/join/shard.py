"""The two tables of a shard that every stage reads: its candidates, and its queries with their candidates' tokens."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.join import schemas
from beamrank.records import SpecialTokens


class Vocabulary(Protocol):
    """The facts about a tokenizer that the parts that it made carry."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""

    @property
    def special(self) -> SpecialTokens:
        """The special tokens around texts."""

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides an id."""


def candidates_table(
    query_ids: Sequence[str], doc_ids: Sequence[Sequence[str]], scores: Sequence[Any] | None = None
) -> pa.Table:
    """The candidates of some queries; ranks count from 1.

    Args:
        query_ids: the queries.
        doc_ids: the candidates of each query, best first.
        scores: the scores of each query's candidates; by default minus the rank, for a run of which only the order
            counts.

    Returns:
        A table of `schemas.CANDIDATES`, in the order given.
    """
    counts = [len(each) for each in doc_ids]
    ranks = np.concatenate([np.empty(0, np.int32), *(np.arange(1, count + 1, dtype=np.int32) for count in counts)])
    flat_scores = (
        -ranks.astype(np.float32)
        if scores is None
        else np.concatenate([np.empty(0, np.float32), *(np.asarray(each, np.float32) for each in scores)])
    )
    queries = pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
    columns = [
        pa.array(query_ids, pa.string()).take(queries),
        pa.array([doc_id for each in doc_ids for doc_id in each], pa.string()),
        pa.array(ranks),
        pa.array(flat_scores),
    ]
    return pa.Table.from_arrays(columns, schema=schemas.CANDIDATES)


def as_mono(candidates: pa.Table) -> pa.Table:
    """A table of `schemas.MONO`, as if monoBERT had given the candidates their scores."""
    segments = pa.array(np.zeros(candidates.num_rows, np.int16))
    return candidates.append_column(schemas.MONO.field("segment"), segments).select(schemas.MONO.names)


def tokenized_schema(vocabulary: Vocabulary) -> pa.Schema:
    """`schemas.tokenized`, with the tokenizer's digest and special tokens as metadata."""
    special = {name: str(token_id) for name, token_id in vocabulary.special._asdict().items()}
    return schemas.tokenized(vocabulary.vocab_size).with_metadata({"tokenizer": vocabulary.digest, **special})


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
        schema: `schemas.tokenized`, with the metadata of the table.
        query_ids: the queries; a query without candidates keeps its row.
        query_tokens: their tokens, in the same order.
        candidates: `schemas.CANDIDATES`, the queries in the same order, each one's candidates by rank.
        doc_tokens: the tokens of some docs.
        rows: int64[c], which of `doc_tokens` each candidate has.

    Returns:
        A table of `schema`.
    """
    offsets = _offsets(query_ids, candidates["query_id"].to_pylist())
    return pa.table(
        [
            pa.array(query_ids, pa.string()),
            query_tokens,
            pa.ListArray.from_arrays(offsets, candidates["doc_id"].combine_chunks()),
            pa.ListArray.from_arrays(offsets, candidates["rank"].combine_chunks()),
            pa.ListArray.from_arrays(offsets, doc_tokens.take(pa.array(rows))),
        ],
        schema=schema,
    )


def _offsets(query_ids: Sequence[str], candidate_query_ids: Sequence[str]) -> pa.Array:
    number_of = {query_id: number for number, query_id in enumerate(query_ids)}
    numbers = np.array([number_of[query_id] for query_id in candidate_query_ids], np.int64)
    counts = np.bincount(numbers, minlength=len(query_ids))
    return pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
