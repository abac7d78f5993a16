"""Qrels and runs as arrays of 64-bit hashes of ids, so that tens of millions of pairs fit into memory."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.formats.folders import find_files
from beamrank.formats.names import given_columns
from beamrank.formats.qrels import QrelsConfig, QrelsFiles, read_qrels
from beamrank.formats.runs import iterate_run, read_run
from beamrank.storage.documents import hash64, hashes64

Hashes: TypeAlias = NDArray[np.uint64]
Indices: TypeAlias = NDArray[np.int64]

_MIX = np.uint64(0x9E3779B97F4A7C15)


class Rows(NamedTuple):
    """Rows of qrels or of a run, those of a query one after the other.

    Attributes:
        queries: uint64[q], the hashes of the query_ids, distinct.
        counts: int64[q], how many rows each query has.
        docs: uint64[n], the hashes of the doc_ids.
        values: float32[n], levels or scores.
    """

    queries: Hashes
    counts: Indices
    docs: Hashes
    values: NDArray[np.float32]

    @property
    def places(self) -> NDArray[np.int32]:
        """int32[n], the query of each row."""
        return np.repeat(np.arange(len(self.queries), dtype=np.int32), self.counts)

    def pairs(self, others: Hashes) -> Hashes:
        """uint64[n], a hash of each row's query with something else."""
        mixed: Hashes = np.repeat(self.queries * _MIX, self.counts)
        mixed ^= others
        return mixed

    def where(self, chosen: NDArray[np.bool_]) -> "Rows":
        """Some of the rows; the queries stay."""
        counts = np.bincount(self.places[chosen], minlength=len(self.queries))
        return Rows(self.queries, counts, self.docs[chosen], self.values[chosen])

    def of(self, queries: Hashes) -> "Rows":
        """The rows of some queries, in their order; a query may have none."""
        if not len(self.queries):
            return Rows(queries, np.zeros(len(queries), np.int64), self.docs, self.values)
        order = np.argsort(self.queries)
        at = order[np.minimum(np.searchsorted(self.queries, queries, sorter=order), len(order) - 1)]
        counts = np.where(self.queries[at] == queries, self.counts[at], 0)
        moved = (np.cumsum(self.counts) - self.counts)[at] - (np.cumsum(counts) - counts)
        index = np.repeat(moved, counts)
        index += np.arange(len(index))
        return Rows(queries, counts, self.docs[index], self.values[index])

    def blocks(self, queries: int) -> "Iterator[Rows]":
        """The rows in blocks of so many queries."""
        starts = np.concatenate([[0], np.cumsum(self.counts)])
        for start in range(0, len(self.queries), queries):
            end = min(start + queries, len(self.queries))
            rows = slice(starts[start], starts[end])
            yield Rows(self.queries[start:end], self.counts[start:end], self.docs[rows], self.values[rows])


def is_in(values: NDArray[Any], among: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value is among others, which are sorted."""
    if not len(among):
        return np.zeros(values.shape, np.bool_)
    return np.asarray(among[np.minimum(np.searchsorted(among, values), len(among) - 1)] == values)


def judgments(qrels: QrelsFiles) -> Rows:
    """All judgments; one file is in memory at a time, unless two judge the same query.

    Raises:
        PreflightError: see `read_qrels`.
    """
    builder = _Builder()
    columns = given_columns(qrels.columns) if isinstance(qrels, QrelsConfig) else {}
    for url in find_files(qrels):
        builder.add_judgments(read_qrels(url, columns).relevance)
    if builder.queries_are_apart():
        builder = _Builder()
        builder.add_judgments(read_qrels(qrels).relevance)
    return builder.rows()


def run_rows(url: str, ranks: tuple[int, int] | None = None, notes: list[str] | None = None) -> Rows:
    """The rows of a run in its order, ties by rank: those between two ranks, or all.

    A line about rows whose rank disagrees with their score is added to `notes`.

    Raises:
        PreflightError: see `read_run`.
    """
    chosen = slice(None) if ranks is None else slice(ranks[0] - 1, ranks[1])
    builder = _Builder()
    disagreements = 0
    for query_id, doc_ids, scores, count in iterate_run(url, ties="rank"):
        disagreements += count
        builder.add(query_id, doc_ids[chosen], scores[chosen].tolist())
    if notes is not None and disagreements:
        notes.append(
            f"rows of {url} whose rank disagrees with the scores: {disagreements:,}; the scores decide, the rank "
            "column is not read"
        )
    if builder.queries_are_apart():
        run = read_run(url, ties="rank")
        builder = _Builder()
        for query_id, doc_ids in run.order.items():
            builder.add(query_id, doc_ids[chosen], run.scores[query_id][chosen].tolist())
    return builder.rows()


class _Builder:
    """Collects rows in flat arrays."""

    def __init__(self) -> None:
        self._queries, self._counts = array("Q"), array("q")
        self._docs, self._values = array("Q"), array("f")

    def add(self, query_id: str, doc_ids: Sequence[str], values: Iterable[float]) -> None:
        """Appends the rows of a query."""
        self._queries.append(hash64(query_id))
        self._counts.append(len(doc_ids))
        self._docs.frombytes(hashes64(doc_ids).tobytes())
        self._values.extend(values)

    def add_judgments(self, relevance: Mapping[str, Mapping[str, int]]) -> None:
        """Appends judgments by query_id and doc_id."""
        for query_id, levels in relevance.items():
            self.add(query_id, list(levels), levels.values())

    def queries_are_apart(self) -> bool:
        """Whether a query was added more than once."""
        return len(np.unique(np.frombuffer(self._queries, np.uint64))) < len(self._queries)

    def rows(self) -> Rows:
        """The rows so far; nothing can be added afterwards."""
        return Rows(
            np.frombuffer(self._queries, np.uint64),
            np.frombuffer(self._counts, np.int64),
            np.frombuffer(self._docs, np.uint64),
            np.frombuffer(self._values, np.float32),
        )
