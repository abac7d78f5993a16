"""Pools from topics, qrels and a run: relevant docs, and candidates that are not relevant.

Ids and texts are 64-bit hashes here, so that tens of millions of pairs fit into memory.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

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
from models.training.config import DataConfig, FoldsConfig
from models.training.data.pools import Lists, Pools
from models.training.data.texts import EMPTY, Hashes, Indices, TextWriter, is_in, scan_docs

_MIX = np.uint64(0x9E3779B97F4A7C15)
_BLOCK_TOPICS = 100_000
# Of a teacher: topics that are checked; docs of a topic whose grades may follow one another by chance.
_CHECKED_TOPICS, _LEAST_DOCS = 1000, 4


class Pairs(NamedTuple):
    """Pairs of a topic and a doc, those of a topic one after the other.

    Attributes:
        topics: int32[n], the places of the topics, ascending.
        docs: uint64[n], the hashes of the doc_ids.
        values: float32[n], levels or scores.
    """

    topics: NDArray[np.int32]
    docs: Hashes
    values: NDArray[np.float32]

    def where(self, chosen: NDArray[Any] | slice) -> "Pairs":
        """Some of the pairs."""
        return Pairs(self.topics[chosen], self.docs[chosen], self.values[chosen])

    def hashes(self) -> Hashes:
        """uint64[n], of the pairs."""
        return _hashes(self.topics, self.docs)

    def blocks(self) -> Iterator[slice]:
        """The pairs of some topics at a time, as memory for all of them is short."""
        topics = np.arange(0, int(self.topics[-1]) + _BLOCK_TOPICS + 1 if len(self.topics) else 0, _BLOCK_TOPICS)
        yield from (slice(*each) for each in pairwise(np.searchsorted(self.topics, topics).tolist()))


def _hashes(one: NDArray[Any], other: Hashes) -> Hashes:
    mixed = one.astype(np.uint64)
    mixed *= _MIX
    mixed ^= other
    return mixed


class _Collected:
    """Pairs in flat arrays, with the hashes of the query_ids in place of topics."""

    def __init__(self, rows: Iterable[tuple[str, Collection[str], Iterable[float]]]) -> None:
        queries, counts, docs, values = array("Q"), array("q"), array("Q"), array("f")
        for query_id, doc_ids, of_docs in rows:
            queries.append(hash64(query_id))
            counts.append(len(doc_ids))
            docs.frombytes(hashes64(doc_ids).tobytes())
            values.extend(of_docs)
        self.queries = np.frombuffer(queries, np.uint64)
        self.is_split = len(np.unique(self.queries)) < len(queries)
        self._counts, self._docs = np.frombuffer(counts, np.int64), np.frombuffer(docs, np.uint64)
        self._values = np.frombuffer(values, np.float32)

    def of(self, queries: Hashes) -> Pairs:
        """The pairs of some queries."""
        order = np.argsort(queries)
        is_topic = is_in(self.queries, queries[order])
        places = np.full(len(is_topic), -1, np.int32)
        places[is_topic] = order[np.searchsorted(queries[order], self.queries[is_topic])]
        pairs = Pairs(np.repeat(places, self._counts), self._docs, self._values)
        if not is_topic.all():
            pairs = pairs.where(pairs.topics >= 0)
        is_sorted = (pairs.topics[:-1] <= pairs.topics[1:]).all()
        return pairs if is_sorted else pairs.where(np.argsort(pairs.topics, kind="stable"))


def _judgments(qrels: QrelsFiles) -> _Collected:
    """All judgments; one file is in memory at a time, unless two judge the same query."""
    columns = column_names(qrels.columns) if isinstance(qrels, QrelsConfig) else {}
    files = (read_qrels(url, columns).relevance for url in find_files(qrels))
    found = _Collected((each, docs, docs.values()) for file in files for each, docs in file.items())
    if not found.is_split:
        return found
    return _Collected((each, docs, docs.values()) for each, docs in read_qrels(qrels).relevance.items())


def run_pairs(url: str, queries: Hashes, ranks: tuple[int, int] | None = None) -> tuple[Pairs, list[str]]:
    """The pairs of some queries in a run, in its order, ties by rank: those between two ranks, or all.

    Also returns a line about rows whose rank disagrees with their score.
    """
    chosen = slice(None) if ranks is None else slice(ranks[0] - 1, ranks[1])
    disagreements = 0

    def rows() -> Iterator[tuple[str, list[str], list[float]]]:
        nonlocal disagreements
        for query_id, doc_ids, scores, count in iterate_run(url, ties="rank"):
            disagreements += count
            yield query_id, doc_ids[chosen], scores[chosen].tolist()

    found = _Collected(rows())
    if found.is_split:
        run = read_run(url, ties="rank")
        found = _Collected((each, docs[chosen], run.scores[each][chosen].tolist()) for each, docs in run.order.items())
    line = f"rows of {url} whose rank disagrees with the scores: {disagreements:,}; the scores decide, the rank"
    return found.of(queries), [f"{line} column is not read"] if disagreements else []


def check_teacher(taught: Pairs, url: str) -> list[str]:
    """Returns a line where the scores of a teacher are all between 0 and 1.

    Raises:
        PreflightError: the scores are ranks, as in a run that was written without its scores: they count up or down in
            every topic, or are the same in every topic.
    """
    first = taught.where(slice(int(np.searchsorted(np.cumsum(np.diff(taught.topics) != 0), _CHECKED_TOPICS)) + 1))
    lists = np.split(first.values, np.flatnonzero(np.diff(first.topics)) + 1)
    topics = [np.sort(values)[::-1] for values in lists if len(values) > 1]
    longest = max(topics, key=len, default=np.zeros(0, np.float32))
    counting = all((values % 1 == 0).all() and (np.diff(values) == -1).all() for values in topics)
    repeated = len(topics) > 1 and all(np.array_equal(values, longest[: len(values)]) for values in topics)
    if len(longest) >= _LEAST_DOCS and (counting or repeated):
        shown = ", ".join(f"{value:g}" for value in longest[:3].tolist())
        raise PreflightError(
            f"data.teacher: the scores of {url} are ranks, or depend only on ranks ({shown}, ... in each topic), and "
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
    data: DataConfig, ranks: tuple[int, int], folds: FoldsConfig | None, writer: TextWriter
) -> tuple[Pools, list[str]]:
    """Reads topics, qrels, run and corpus, and finds the positives and negatives of each topic that is not held out.

    Left out and counted: topics without positives or without negatives, empty texts, negatives with the text of a
    positive of the same query or of another candidate, and docs that the teacher did not score. Queries of the same
    text are one, whatever their ids.

    Raises:
        PreflightError: a file is missing or invalid, the corpus lacks docs, or the teacher's scores are ranks.
    """
    assert data.topics
    assert data.qrels
    assert data.run
    assert data.corpus
    judgments, topics = _judgments(data.qrels), list(read_topics(data.topics))
    if data.topics.only_judged:
        judged = is_in(hashes64(topic.query_id for topic in topics), np.sort(judgments.queries))
        topics = [topic for topic, each in zip(topics, judged, strict=True) if each]
    topics = [topic for topic in topics if folds is None or not folds.holds_out(topic.query_id)]
    writer.add([topic.text for topic in topics])
    queries, ids = writer.hashes(), hashes64(topic.query_id for topic in topics)
    left_out = _LeftOut(pa.array([topic.query_id for topic in topics], pa.string()))
    del topics
    relevant = judgments.of(ids)
    relevant = positives = relevant.where(relevant.values >= data.min_relevance)
    candidates, left_out.lines = run_pairs(data.run, ids, ranks)
    if data.teacher is not None:
        taught = run_pairs(data.teacher, ids)[0]
        left_out.lines += check_teacher(taught, data.teacher)
        positives, candidates = (left_out.taught(each, taught) for each in (positives, candidates))
        del taught
    both = left_out.usable(positives, candidates, queries != EMPTY)
    positives, candidates = (each.where(both[each.topics]) for each in (positives, candidates))
    # A doc that the teacher did not score, or that is relevant to another topic of this text, is no less relevant.
    relevant = relevant.where(is_in(queries, np.unique(queries[both]))[relevant.topics])
    docs = np.concatenate([relevant.docs, candidates.docs])
    docs.sort()
    # `np.unique` needs more memory.
    docs = docs[np.concatenate([[True], docs[1:] != docs[:-1]])] if len(docs) else docs
    rows, lines = np.zeros(0, np.int64), list[str]()
    first_doc = writer.rows
    if len(docs):
        rows, lines = scan_docs(data.corpus, docs, data.max_bad_rows, writer.add, lambda: _doc_ids(data))
    found = _Docs(docs, rows, writer.hashes(), first_doc)
    writer.close()
    copies = _hashes(queries[relevant.topics], found.texts_of(relevant))
    copies.sort()
    pools = _pools(positives, candidates, found, queries, copies, left_out, data.teacher is not None)
    return pools, [*lines, *left_out.lines, *(f"{what}: {count:,}" for what, count in left_out.docs.items() if count)]


def _doc_ids(data: DataConfig) -> list[str]:
    """The doc_ids that the data names, for an error."""
    assert data.qrels
    assert data.run
    named = [*read_qrels(data.qrels).relevance.values(), *read_run(data.run).order.values()]
    return list({doc_id for doc_ids in named for doc_id in doc_ids})


class _Docs(NamedTuple):
    """The docs in the corpus.

    Attributes:
        docs: uint64[n], the hashes of the doc_ids, sorted.
        rows: int64[n], their rows of token ids, from `first_doc`.
        texts: uint64[n], by row, the hashes of their texts.
    """

    docs: Hashes
    rows: Indices
    texts: Hashes
    first_doc: int

    def rows_of(self, pairs: Pairs) -> Indices:
        return self.rows[np.searchsorted(self.docs, pairs.docs)]

    def texts_of(self, pairs: Pairs) -> Hashes:
        return self.texts[self.rows_of(pairs)]

    def lists(self, pairs: Pairs, topics: NDArray[np.bool_], taught: bool) -> Lists:
        """The pairs of some topics as lists of rows."""
        scores = pairs.values if taught else np.zeros(0, np.float32)
        rows = np.concatenate([np.zeros(0, np.int32), *(self._rows(pairs.where(part)) for part in pairs.blocks())])
        return Lists(rows, scores, np.cumsum(np.bincount(pairs.topics, minlength=len(topics))[topics]))

    def _rows(self, pairs: Pairs) -> NDArray[np.int32]:
        return (self.rows_of(pairs) + self.first_doc).astype(np.int32)


@dataclass
class _LeftOut:
    """What cannot be trained on: lines about topics, and counts of docs."""

    query_ids: pa.Array
    lines: list[str] = field(default_factory=list)
    docs: dict[str, int] = field(default_factory=dict)

    def note(self, reason: str, which: NDArray[np.bool_], then: str = "ignored") -> None:
        count = int(np.count_nonzero(which))
        if count:
            ids = first_few(self.query_ids[int(at)].as_py() for at in np.flatnonzero(which)[:4])
            self.lines.append(f"topics {reason}: {count:,} of {len(which):,} ({ids}); {then}")

    def count(self, what: str, which: NDArray[np.bool_]) -> None:
        self.docs[what] = self.docs.get(what, 0) + int(np.count_nonzero(which))

    def having(self, pairs: Pairs) -> NDArray[np.bool_]:
        """bool[topics], which topics have pairs."""
        return np.bincount(pairs.topics, minlength=len(self.query_ids)) > 0

    def taught(self, pairs: Pairs, taught: Pairs) -> Pairs:
        """The pairs that the teacher scored, with its scores as values."""
        hashes, own = taught.hashes(), pairs.hashes()
        order = np.argsort(hashes)
        hashes = hashes[order]
        scored = is_in(own, hashes)
        self.count("docs without a teacher's score, ignored", ~scored)
        return pairs.where(scored)._replace(values=taught.values[order][np.searchsorted(hashes, own[scored])])

    def usable(self, positives: Pairs, candidates: Pairs, with_text: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The topics that have positives, candidates and a text."""
        with_positives, with_candidates = self.having(positives), self.having(candidates)
        self.note("without a text", ~with_text)
        self.note("without positives", ~with_positives)
        self.note("without candidates", with_positives & ~with_candidates)
        return with_positives & with_candidates & with_text

    def shared_texts(self, queries: Hashes, usable: NDArray[np.bool_]) -> None:
        """Notes the usable topics that have the text of another one, by the hashes of their texts."""
        _, which, counts = np.unique(queries[usable], return_inverse=True, return_counts=True)
        shared = np.zeros(len(usable), np.bool_)
        shared[np.flatnonzero(usable)[counts[which] > 1]] = True
        self.note("with the text of another", shared, "what is relevant to one is no negative of another")


def _pools(
    positives: Pairs, candidates: Pairs, docs: _Docs, queries: Hashes, copies: Hashes, left_out: _LeftOut, taught: bool
) -> Pools:
    """The pools of the topics that have a positive and a negative with texts.

    `copies`, sorted, has the hash of each query's text with that of a relevant doc.
    """
    relevant, kept = (np.zeros(len(candidates.topics), np.bool_) for _ in range(2))
    of_positives = np.sort(positives.hashes())
    for part in candidates.blocks():
        block = candidates.where(part)
        texts = docs.texts_of(block)
        relevant[part] = is_relevant = is_in(block.hashes(), of_positives)
        full = texts != EMPTY
        copied = full & ~is_relevant & is_in(_hashes(queries[block.topics], texts), copies)
        others = np.flatnonzero(full & ~copied)
        first = others[np.unique(_hashes(block.topics, texts)[others], return_index=True)[1]]
        kept[part][first] = True
        left_out.count("candidates without a text, ignored", ~full)
        left_out.count("negatives with the text of a positive, ignored", copied)
        left_out.count("candidates with the text of another, ignored", full & ~copied & ~kept[part])
    full = docs.texts_of(positives) != EMPTY
    left_out.count("positives without a text, ignored", ~full)
    empty = left_out.having(positives) & ~left_out.having(positives.where(full))
    usable = left_out.having(positives.where(full)) & left_out.having(candidates.where(kept & ~relevant))
    left_out.note("whose positives have no text", empty)
    left_out.note("without negatives", left_out.having(candidates) & ~usable & ~empty)
    left_out.shared_texts(queries, usable)
    full &= usable[positives.topics]
    kept &= usable[candidates.topics]
    return Pools(
        topics=np.flatnonzero(usable).astype(np.int32),
        queries=queries[usable],
        positives=docs.lists(positives.where(full), usable, taught),
        candidates=docs.lists(candidates.where(kept), usable, taught),
        relevant=relevant[kept],
    )
