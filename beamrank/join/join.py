"""The join of candidates with their docs: one scan of the corpus, one shuffle of tokens (docs/internals/join.md).

The needed docs are listed (`beamrank.join.doc_hashes`) with the query shards that need each. Every corpus
unit is filtered against them by binary search, and only tokens of needed docs travel to the shards, where they are
matched by doc_id exactly: a hash that collides costs a few bytes, never a wrong doc.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.errors import DataError
from beamrank.formats.texts.units import doc_keys, duplicate_doc
from beamrank.join.schemas import tokenized_table


class MissingDoc(NamedTuple):
    """A candidate that the corpus lacks, and the first query that has it."""

    doc_id: str
    query_id: str

    def __str__(self) -> str:
        return f"{self.doc_id!r} of query_id {self.query_id!r}"


@dataclass(frozen=True)
class JoinedShard:
    """A shard's queries with their candidates' tokens (schemas.tokenized), and counts."""

    table: pa.Table
    missing: tuple[MissingDoc, ...]
    truncated_docs: int


def doc_tokens_schema(token: pa.DataType) -> pa.Schema:
    """The rows of the shuffle: a needed doc's tokens, and its place in the corpus (unit number, position)."""
    return pa.schema(
        [
            pa.field("doc_id", pa.string(), nullable=False),
            pa.field("unit", pa.int32(), nullable=False),
            pa.field("position", pa.int64(), nullable=False),
            pa.field("tokens", pa.list_(token), nullable=False),
            pa.field("truncated", pa.bool_(), nullable=False),
        ]
    )


def doc_tokens(
    schema: pa.Schema, doc_ids: Sequence[str], unit: int, positions: Sequence[int], tokens: pa.Array, truncated: Any
) -> pa.RecordBatch:
    """The rows of some docs of one unit of the corpus: `doc_tokens_schema`."""
    units = pa.array(np.full(len(doc_ids), unit, np.int32))
    columns = [
        pa.array(doc_ids, pa.string()),
        units,
        pa.array(positions, pa.int64()),
        tokens,
        pa.array(truncated),
    ]
    return pa.record_batch(columns, schema=schema)


def by_shard(
    batches: Sequence[pa.RecordBatch], shards: Sequence[npt.NDArray[np.uint32]]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cuts rows into one batch a shard: thousands of small batches would be mostly headers.

    Args:
        batches: the rows.
        shards: of each batch, the shards that its rows are for.
    """
    if not batches:
        return
    shard_of = np.concatenate(shards)
    order = np.argsort(shard_of, kind="stable")
    table = pa.Table.from_batches(batches).combine_chunks().to_batches()[0].take(pa.array(order))
    found, starts = np.unique(shard_of[order], return_index=True)
    for shard, start, end in zip(found, starts, [*starts[1:], len(order)], strict=True):
        yield int(shard), table.slice(start, end - start)


def join_shard(
    schema: pa.Schema,
    query_ids: Sequence[str],
    query_tokens: pa.ListArray,
    candidates: pa.Table,
    docs: pa.Table,
    place: Callable[[int, int], str],
    of_queries: bool = False,
) -> JoinedShard:
    """Puts a shard's parts together.

    Args:
        schema: `schemas.tokenized`, with the metadata of the part.
        query_ids: the shard's queries, sorted; one without candidates keeps its row.
        query_tokens: their tokens, in the same order.
        candidates: `schemas.CANDIDATES`, sorted by query_id and rank.
        docs: `doc_tokens_schema`, in any order, docs that no candidate names (hash collisions) among them.
        place: puts a unit number and a position into words.
        of_queries: whether `docs` has `doc_keys` in place of doc_ids.

    Returns:
        The joined rows; candidates whose doc is not among `docs` are left out and listed as missing.

    Raises:
        DataError: a doc that is needed appears twice in the corpus.
    """
    keys = candidate_keys(candidates, of_queries)
    row_of = _rows_by_key(docs, set(keys), place)
    rows = np.array([row_of.get(key, -1) for key in keys], np.int64)
    found = candidates.filter(pa.array(rows >= 0))
    missing = _missing_docs(candidates.filter(pa.array(rows < 0)))
    rows = rows[rows >= 0]
    docs = docs.combine_chunks()
    used = np.unique(rows)
    table = tokenized_table(schema, query_ids, query_tokens, found, docs["tokens"].combine_chunks(), rows)
    truncated_docs = int(docs["truncated"].combine_chunks().take(pa.array(used)).true_count) if len(used) else 0
    return JoinedShard(table, missing, truncated_docs)


def candidate_keys(candidates: pa.Table, of_queries: bool) -> list[str]:
    """What the docs of `schemas.CANDIDATES` are found by: their doc_ids, or with `of_queries` their `doc_keys`."""
    doc_ids: list[str] = candidates["doc_id"].to_pylist()
    return doc_keys(candidates["query_id"].to_pylist(), doc_ids) if of_queries else doc_ids


def _missing_docs(candidates: pa.Table) -> tuple[MissingDoc, ...]:
    first: dict[str, str] = {}
    for doc_id, query_id in zip(candidates["doc_id"].to_pylist(), candidates["query_id"].to_pylist(), strict=True):
        first.setdefault(doc_id, query_id)
    return tuple(MissingDoc(doc_id, query_id) for doc_id, query_id in first.items())


def _rows_by_key(docs: pa.Table, needed: set[str], place: Callable[[int, int], str]) -> dict[str, int]:
    row_of: dict[str, int] = {}
    for row, doc_id in enumerate(docs["doc_id"].to_pylist()):
        if doc_id not in needed:
            continue
        if doc_id in row_of:
            first, second = sorted(
                (docs["unit"][each].as_py(), docs["position"][each].as_py()) for each in (row_of[doc_id], row)
            )
            raise DataError(duplicate_doc(doc_id, place(*first), place(*second)))
        row_of[doc_id] = row
    return row_of
