"""Pools from topics, qrels and a run: relevant docs, and candidates that are not relevant."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.formats.notes import first_few
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import read_topics
from beamrank.storage.documents import hashes64
from models.tokenizers.bert import BertTokenizer
from models.training.config import DataConfig, FoldsConfig
from models.training.data.arrays import Hashes, Indices, Rows, is_in, judgments, run_rows
from models.training.data.collection import scan_docs
from models.training.data.pools import Lists, Pools
from models.training.data.teacher import check_teacher
from models.training.data.tokens import DOCS, EMPTY, QUERIES, HashedTexts, TokenWriter

_BLOCK_TOPICS = 100_000


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

    Returns:
        The pools, and lines that report the omissions.

    Raises:
        PreflightError: a file is missing or invalid, the corpus lacks docs, or the teacher's scores are ranks.
    """
    assert data.qrels
    assert data.run
    assert data.corpus
    query_ids, hashes, queries = _read_topics(data, folds, TokenWriter(folder, QUERIES, tokenizer, max_tokens))
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
    docs = HashedTexts(TokenWriter(folder, DOCS, tokenizer, max_tokens))
    wanted = _distinct(relevant.docs, candidates.docs)
    rows: Indices = np.zeros(0, np.int64)
    lines: list[str] = []
    if len(wanted):
        rows, lines = scan_docs(data.corpus, wanted, data.max_bad_rows, docs.add, lambda: _doc_ids(data))
    texts = docs.close()
    known = relevant._replace(queries=queries).pairs(texts[rows[np.searchsorted(wanted, relevant.docs)]])
    known.sort()
    builder = _Builder(wanted, rows, texts, queries, known, left_out, data.teacher is not None)
    blocks = builder.blocks(positives, candidates)
    usable = np.concatenate([block.usable for block in blocks] or [np.zeros(0, np.bool_)])
    empty = np.concatenate([block.without_text for block in blocks] or [np.zeros(0, np.bool_)])
    left_out.note("whose positives have no text", empty)
    left_out.note("without negatives", (candidates.counts > 0) & ~usable & ~empty)
    left_out.shared_texts(queries, usable)
    # Tens of millions of pairs do not fit into memory as pools beside what these are made from.
    del judged, relevant, positives, candidates, both, wanted, rows, docs, texts, known, builder
    return _join(blocks, usable, queries), lines + left_out.lines()


def _distinct(one: Hashes, other: Hashes) -> Hashes:
    both = np.concatenate([one, other])
    both.sort()
    return both[np.concatenate([[True], both[1:] != both[:-1]])] if len(both) else both


def _doc_ids(data: DataConfig) -> list[str]:
    """The doc_ids that the data names, for an error."""
    assert data.qrels
    assert data.run
    named = [*read_qrels(data.qrels).relevance.values(), *read_run(data.run).order.values()]
    return list({doc_id for doc_ids in named for doc_id in doc_ids})


def _read_topics(data: DataConfig, folds: FoldsConfig | None, writer: TokenWriter) -> tuple[pa.Array, Hashes, Hashes]:
    """Writes the topics' token ids; returns their ids, string[n], and the hashes of these and of their texts."""
    assert data.topics
    assert data.qrels
    topics = [topic for topic in read_topics(data.topics) if folds is None or not folds.holds_out(topic.query_id)]
    if data.topics.only_judged:
        judged = np.sort(judgments(data.qrels).queries)
        known = is_in(hashes64(topic.query_id for topic in topics), judged)
        topics = [topic for topic, each in zip(topics, known, strict=True) if each]
    texts = HashedTexts(writer)
    texts.add([topic.text for topic in topics])
    query_ids = [topic.query_id for topic in topics]
    return pa.array(query_ids, pa.string()), hashes64(query_ids), texts.close()


@dataclass
class _LeftOut:
    """What cannot be trained on: topics by reason, and counts of docs."""

    query_ids: pa.Array
    reasons: list[str] = field(default_factory=list)
    docs: dict[str, int] = field(default_factory=dict)

    def note(self, reason: str, which: NDArray[np.bool_]) -> None:
        """Notes the topics, bool[topics], that a reason leaves out."""
        count = int(np.count_nonzero(which))
        if count:
            ids = first_few(self.query_ids[int(at)].as_py() for at in np.flatnonzero(which)[:4])
            self.reasons.append(f"topics {reason}: {count:,} of {len(which):,} ({ids}); ignored")

    def count(self, what: str, which: NDArray[np.bool_]) -> None:
        """Counts docs, bool[docs]."""
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
        shared = np.flatnonzero(usable)[counts[which] > 1]
        if len(shared):
            ids = first_few(self.query_ids[int(at)].as_py() for at in shared[:4])
            self.reasons.append(
                f"topics with the text of another: {len(shared):,} of {len(queries):,} ({ids}); what is relevant to "
                "one is no negative of another"
            )

    def lines(self) -> list[str]:
        """A line per reason."""
        return self.reasons + [f"{what}: {count:,}" for what, count in self.docs.items() if count]


@dataclass(frozen=True)
class _Builder:
    """Makes pools, some topics at a time.

    Attributes:
        wanted: uint64[n], the hashes of the docs, sorted.
        rows: int64[n], their rows of token ids.
        texts: uint64[n], by row, the hashes of their texts.
        queries: uint64[topics], the hashes of the queries' texts.
        relevant: uint64, sorted, the hashes of each query's text with that of a relevant doc.
        left_out: counts what cannot be trained on.
        taught: whether values are scores of a teacher, and kept.
    """

    wanted: Hashes
    rows: Indices
    texts: Hashes
    queries: Hashes
    relevant: Hashes
    left_out: _LeftOut
    taught: bool

    def blocks(self, positives: Rows, candidates: Rows) -> "list[_Block]":
        """The pools of some topics each."""
        starts = range(0, len(self.queries), _BLOCK_TOPICS)
        queries = (self.queries[start : start + _BLOCK_TOPICS] for start in starts)
        return list(map(self._block, queries, positives.blocks(_BLOCK_TOPICS), candidates.blocks(_BLOCK_TOPICS)))

    def _block(self, queries: Hashes, positives: Rows, candidates: Rows) -> "_Block":
        positive_rows, candidate_rows = (
            self.rows[np.searchsorted(self.wanted, each.docs)] for each in (positives, candidates)
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
        return Lists(rows[chosen].astype(np.int32), scores, np.cumsum(kept.counts[usable]))


@dataclass(frozen=True)
class _Block:
    """Some topics, bool[topics] which of them are usable or lack texts of positives, and the lists of the usable."""

    usable: NDArray[np.bool_]
    without_text: NDArray[np.bool_]
    positives: Lists
    candidates: Lists
    negatives: Lists
    relevant: NDArray[np.bool_]


def _join(blocks: "list[_Block]", usable: NDArray[np.bool_], queries: Hashes) -> Pools:
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
    ends = [part.ends + start for part, start in zip(parts, starts, strict=False)]
    empty = Lists(np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int64))
    parts = [*parts, empty]
    return Lists(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.scores for part in parts]),
        np.concatenate([*ends, empty.ends]),
    )
