"""Pools from topics, qrels and a run: relevant docs, and candidates that are not relevant.

Ids and texts are 64-bit hashes here, so that tens of millions of pairs fit into memory.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.columns import column_names
from beamrank.formats.files import find_files
from beamrank.formats.notes import first_few
from beamrank.formats.qrels import QrelsConfig, QrelsFiles, read_qrels
from beamrank.formats.runs import iterate_run, read_run
from beamrank.formats.topics import read_topics
from beamrank.storage.documents import hash64, hashes64
from models.tokenizers.bert import BertTokenizer
from models.training.config import DataConfig, FoldsConfig
from models.training.data.pools import Lists, Pools
from models.training.data.texts import EMPTY, Hashes, Indices, TextWriter, is_in, scan_docs

_MIX = np.uint64(0x9E3779B97F4A7C15)
_BLOCK_TOPICS = 100_000
# Of a teacher: topics that are checked; docs of a topic whose grades may follow one another by chance.
_CHECKED_TOPICS, _LEAST_DOCS = 1000, 4


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

    def pairs(self, others: Hashes) -> Hashes:
        """uint64[n], a hash of each row's query with something else."""
        mixed: Hashes = np.repeat(self.queries * _MIX, self.counts)
        mixed ^= others
        return mixed

    def where(self, chosen: NDArray[np.bool_]) -> "Rows":
        """Some of the rows; the queries stay."""
        places = np.repeat(np.arange(len(self.queries), dtype=np.int32), self.counts)
        counts = np.bincount(places[chosen], minlength=len(self.queries))
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


class _RowsBuilder:
    """Collects rows in flat arrays."""

    def __init__(self) -> None:
        self._queries, self._counts = array("Q"), array("q")
        self._docs, self._values = array("Q"), array("f")

    def add(self, query_id: str, doc_ids: Sequence[str], values: Iterable[float]) -> None:
        self._queries.append(hash64(query_id))
        self._counts.append(len(doc_ids))
        self._docs.frombytes(hashes64(doc_ids).tobytes())
        self._values.extend(values)

    def rows(self) -> Rows | None:
        """The rows so far, to which nothing can be added afterwards; None if a query was added more than once."""
        queries = np.frombuffer(self._queries, np.uint64)
        if len(np.unique(queries)) < len(queries):
            return None
        counts, docs = np.frombuffer(self._counts, np.int64), np.frombuffer(self._docs, np.uint64)
        return Rows(queries, counts, docs, np.frombuffer(self._values, np.float32))


def judgments(qrels: QrelsFiles) -> Rows:
    """All judgments; one file is in memory at a time, unless two judge the same query."""
    columns = column_names(qrels.columns) if isinstance(qrels, QrelsConfig) else {}
    for files in ((read_qrels(url, columns) for url in find_files(qrels)), (read_qrels(qrels) for _ in range(1))):
        builder = _RowsBuilder()
        for each in files:
            for query_id, levels in each.relevance.items():
                builder.add(query_id, list(levels), levels.values())
        rows = builder.rows()
        if rows is not None:
            return rows
    raise AssertionError("read_qrels gives each query once")


def run_rows(url: str, ranks: tuple[int, int] | None = None, notes: list[str] | None = None) -> Rows:
    """The rows of a run in its order, ties by rank: those between two ranks, or all.

    A line about rows whose rank disagrees with their score is added to `notes`.
    """
    chosen = slice(None) if ranks is None else slice(ranks[0] - 1, ranks[1])
    builder = _RowsBuilder()
    disagreements = 0
    for query_id, doc_ids, scores, count in iterate_run(url, ties="rank"):
        disagreements += count
        builder.add(query_id, doc_ids[chosen], scores[chosen].tolist())
    if notes is not None and disagreements:
        notes.append(
            f"rows of {url} whose rank disagrees with the scores: {disagreements:,}; the scores decide, the rank "
            "column is not read"
        )
    rows = builder.rows()
    if rows is None:
        run = read_run(url, ties="rank")
        builder = _RowsBuilder()
        for query_id, ordered in run.order.items():
            builder.add(query_id, ordered[chosen], run.scores[query_id][chosen].tolist())
        rows = builder.rows()
    assert rows is not None
    return rows


def check_teacher(taught: Rows, url: str) -> list[str]:
    """Returns a line where the scores of a teacher are all between 0 and 1.

    Raises:
        PreflightError: the scores are ranks, as in a run that was written without its scores: they count up or down in
            every topic, or are the same in every topic.
    """
    topics = [np.sort(rows.values)[::-1] for rows in next(taught.blocks(_CHECKED_TOPICS), taught).blocks(1)]
    topics = [values for values in topics if len(values) > 1]
    longest = max(topics, key=len, default=np.zeros(0, np.float32))
    counting = all((values % 1 == 0).all() and (np.diff(values) == -1).all() for values in topics)
    repeated = len(topics) > 1 and all(np.array_equal(values, longest[: len(values)]) for values in topics)
    if len(longest) >= _LEAST_DOCS and (counting or repeated):
        first = ", ".join(f"{value:g}" for value in longest[:3].tolist())
        raise PreflightError(
            f"data.teacher: the scores of {url} are ranks, or depend on ranks alone ({first}, ... in each topic), and "
            "the objectives that distil learn from the differences of log-odds or cosines. Give a run with the "
            "teacher's own scores"
        )
    if not len(taught.values) or taught.values.min() < 0 or taught.values.max() > 1:
        return []
    return [
        f"the scores of the teacher {url} are all between 0 and 1, and the objectives learn from their differences: if "
        "they are probabilities, give log-odds (logits); if they are cosines, a temperature of 10 or more"
    ]


def mine(
    data: DataConfig,
    ranks: tuple[int, int],
    folds: FoldsConfig | None,
    tokenizer: BertTokenizer,
    max_tokens: int,
    folder: Path,
) -> tuple[Pools, list[str]]:
    """Reads topics, qrels, run and corpus, and finds the positives and negatives of each topic that is not held out.

    Left out and counted: topics without positives or without negatives, empty texts, negatives with the text of a
    positive of the same query or of another candidate, and docs that the teacher did not score. Queries of the same
    text are one, whatever their ids. The token ids of all texts are written to a folder.

    Raises:
        PreflightError: a file is missing or invalid, the corpus lacks docs, or the teacher's scores are ranks.
    """
    assert data.qrels
    assert data.run
    assert data.corpus
    writer = TextWriter(folder, tokenizer, max_tokens)
    query_ids, hashes, queries = _read_topics(data, folds, writer)
    judged = judgments(data.qrels).of(hashes)
    relevant = positives = judged.where(judged.values >= data.min_relevance)
    left_out = _LeftOut(query_ids)
    candidates = run_rows(data.run, ranks, left_out.reasons).of(hashes)
    if data.teacher is not None:
        taught = run_rows(data.teacher).of(hashes)
        left_out.reasons += check_teacher(taught, data.teacher)
        positives, candidates = (left_out.unscored(each, taught) for each in (positives, candidates))
        del taught
    left_out.note("without a text", queries == EMPTY)
    left_out.note("without positives", positives.counts == 0)
    left_out.note("without candidates", (positives.counts > 0) & (candidates.counts == 0))
    both = (positives.counts > 0) & (candidates.counts > 0) & (queries != EMPTY)
    positives, candidates = (each.where(np.repeat(both, each.counts)) for each in (positives, candidates))
    # A doc that the teacher did not score, or that is relevant to another topic of this text, is no less relevant.
    relevant = relevant.where(np.repeat(is_in(queries, np.unique(queries[both])), relevant.counts))
    docs = _distinct(relevant.docs, candidates.docs)
    rows, first_doc = np.zeros(0, np.int64), writer.rows
    lines: list[str] = []
    if len(docs):
        rows, lines = scan_docs(data.corpus, docs, data.max_bad_rows, writer.add, lambda: _doc_ids(data))
    texts = writer.hashes()
    writer.close()
    known = relevant._replace(queries=queries).pairs(texts[rows[np.searchsorted(docs, relevant.docs)]])
    known.sort()
    builder = _Builder(docs, rows, texts, known, left_out, data.teacher is not None, first_doc)
    starts = range(0, len(queries), _BLOCK_TOPICS)
    parts = (queries[start : start + _BLOCK_TOPICS] for start in starts)
    blocks = list(map(builder.block, parts, positives.blocks(_BLOCK_TOPICS), candidates.blocks(_BLOCK_TOPICS)))
    usable = np.concatenate([block.usable for block in blocks] or [np.zeros(0, np.bool_)])
    empty = np.concatenate([block.without_text for block in blocks] or [np.zeros(0, np.bool_)])
    left_out.note("whose positives have no text", empty)
    left_out.note("without negatives", (candidates.counts > 0) & ~usable & ~empty)
    left_out.shared_texts(queries, usable)
    # Tens of millions of pairs do not fit into memory as pools beside what these are made from.
    del judged, relevant, positives, candidates, both, docs, rows, texts, known, builder
    return _join(blocks, usable, queries), lines + left_out.lines()


def _distinct(one: Hashes, other: Hashes) -> Hashes:
    """Sorted; `np.unique` needs more memory."""
    both = np.concatenate([one, other])
    both.sort()
    return both[np.concatenate([[True], both[1:] != both[:-1]])] if len(both) else both


def _doc_ids(data: DataConfig) -> list[str]:
    """The doc_ids that the data names, for an error."""
    assert data.qrels
    assert data.run
    named = [*read_qrels(data.qrels).relevance.values(), *read_run(data.run).order.values()]
    return list({doc_id for doc_ids in named for doc_id in doc_ids})


def _read_topics(data: DataConfig, folds: FoldsConfig | None, writer: TextWriter) -> tuple[pa.Array, Hashes, Hashes]:
    """Writes the topics' token ids; returns their ids, string[n], and the hashes of these and of their texts."""
    assert data.topics
    assert data.qrels
    topics = [topic for topic in read_topics(data.topics) if folds is None or not folds.holds_out(topic.query_id)]
    if data.topics.only_judged:
        judged = np.sort(judgments(data.qrels).queries)
        known = is_in(hashes64(topic.query_id for topic in topics), judged)
        topics = [topic for topic, each in zip(topics, known, strict=True) if each]
    writer.add([topic.text for topic in topics])
    query_ids = [topic.query_id for topic in topics]
    return pa.array(query_ids, pa.string()), hashes64(query_ids), writer.hashes()


@dataclass
class _LeftOut:
    """What cannot be trained on: topics by reason, and counts of docs."""

    query_ids: pa.Array
    reasons: list[str] = field(default_factory=list)
    docs: dict[str, int] = field(default_factory=dict)

    def note(self, reason: str, which: NDArray[np.bool_], then: str = "ignored") -> None:
        count = int(np.count_nonzero(which))
        if count:
            ids = first_few(self.query_ids[int(at)].as_py() for at in np.flatnonzero(which)[:4])
            self.reasons.append(f"topics {reason}: {count:,} of {len(which):,} ({ids}); {then}")

    def count(self, what: str, which: NDArray[np.bool_]) -> None:
        self.docs[what] = self.docs.get(what, 0) + int(np.count_nonzero(which))

    def unscored(self, rows: Rows, taught: Rows) -> Rows:
        """The rows that the teacher scored, with its scores as values."""
        pairs = taught.pairs(taught.docs)
        order = np.argsort(pairs)
        pairs, own = pairs[order], rows.pairs(rows.docs)
        known = is_in(own, pairs)
        self.count("docs without a teacher's score, ignored", ~known)
        return rows.where(known)._replace(values=taught.values[order][np.searchsorted(pairs, own[known])])

    def shared_texts(self, queries: Hashes, usable: NDArray[np.bool_]) -> None:
        """Notes the usable topics that have the text of another one, by the hashes of their texts."""
        _, which, counts = np.unique(queries[usable], return_inverse=True, return_counts=True)
        shared = np.zeros(len(usable), np.bool_)
        shared[np.flatnonzero(usable)[counts[which] > 1]] = True
        self.note("with the text of another", shared, "what is relevant to one is no negative of another")

    def lines(self) -> list[str]:
        return self.reasons + [f"{what}: {count:,}" for what, count in self.docs.items() if count]


class _Block(NamedTuple):
    """Some topics, bool[topics] which of them are usable or lack texts of positives, and the lists of the usable."""

    usable: NDArray[np.bool_]
    without_text: NDArray[np.bool_]
    positives: Lists
    candidates: Lists
    negatives: Lists
    relevant: NDArray[np.bool_]


@dataclass(frozen=True)
class _Builder:
    """Makes pools, some topics at a time.

    Attributes:
        docs: uint64[n], the hashes of the docs, sorted.
        rows: int64[n], their rows of token ids, from `first_doc`.
        texts: uint64[n], by row, the hashes of their texts.
        relevant: uint64, sorted, the hashes of each query's text with that of a relevant doc.
        taught: whether values are scores of a teacher, and kept.
    """

    docs: Hashes
    rows: Indices
    texts: Hashes
    relevant: Hashes
    left_out: _LeftOut
    taught: bool
    first_doc: int

    def block(self, queries: Hashes, positives: Rows, candidates: Rows) -> _Block:
        positive_rows, candidate_rows = (
            self.rows[np.searchsorted(self.docs, each.docs)] for each in (positives, candidates)
        )
        relevant = is_in(candidates.pairs(candidates.docs), np.sort(positives.pairs(positives.docs)))
        texts = self.texts[candidate_rows]
        full, positive_full = texts != EMPTY, self.texts[positive_rows] != EMPTY
        copies = full & ~relevant & is_in(candidates._replace(queries=queries).pairs(texts), self.relevant)
        topic_texts = candidates.pairs(texts)
        others = np.flatnonzero(full & ~copies)
        kept = np.zeros(len(relevant), np.bool_)
        kept[others[np.unique(topic_texts[others], return_index=True)[1]]] = True
        self.left_out.count("positives without a text, ignored", ~positive_full)
        self.left_out.count("candidates without a text, ignored", ~full)
        self.left_out.count("negatives with the text of a positive, ignored", copies)
        self.left_out.count("candidates with the text of another, ignored", full & ~copies & ~kept)
        with_text = positives.where(positive_full).counts > 0
        usable = with_text & (candidates.where(kept & ~relevant).counts > 0)
        kept &= np.repeat(usable, candidates.counts)
        return _Block(
            usable,
            (positives.counts > 0) & ~with_text,
            self._lists(positives, positive_full & np.repeat(usable, positives.counts), positive_rows, usable),
            self._lists(candidates, kept, candidate_rows, usable),
            self._lists(candidates, kept & ~relevant, candidate_rows, usable),
            relevant[kept],
        )

    def _lists(self, found: Rows, chosen: NDArray[np.bool_], rows: Indices, usable: NDArray[np.bool_]) -> Lists:
        kept = found.where(chosen)
        scores = kept.values if self.taught else np.zeros(0, np.float32)
        return Lists((rows[chosen] + self.first_doc).astype(np.int32), scores, np.cumsum(kept.counts[usable]))


def _join(blocks: list[_Block], usable: NDArray[np.bool_], queries: Hashes) -> Pools:
    """The pools of all topics."""
    return Pools(
        topics=np.flatnonzero(usable).astype(np.int32),
        queries=queries[usable],
        positives=_joined([block.positives for block in blocks]),
        candidates=_joined([block.candidates for block in blocks]),
        negatives=_joined([block.negatives for block in blocks]),
        relevant=np.concatenate([block.relevant for block in blocks] or [np.zeros(0, np.bool_)]),
    )


def _joined(parts: Sequence[Lists]) -> Lists:
    """The lists of all blocks, one after the other."""
    starts = np.cumsum([0, *(len(part.rows) for part in parts)]).tolist()
    moved = [part._replace(ends=part.ends + start) for part, start in zip(parts, starts, strict=False)]
    moved.append(Lists(np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int64)))
    return Lists(*(np.concatenate(each) for each in zip(*moved, strict=True)))
