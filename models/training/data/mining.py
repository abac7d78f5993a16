"""Pools from topics, qrels and a run: relevant docs, and candidates that are not relevant."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.digests import hashes64
from beamrank.formats.problems import first_few
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import read_topics
from models.tokenizer.bert import BertTokenizer
from models.training.config import DataConfig, FoldsConfig
from models.training.data.arrays import Hashes, Indices, Rows, is_in, judgments, run_rows
from models.training.data.collection import scan_docs
from models.training.data.pools import Lists, Pools
from models.training.data.tokens import DOCS, QUERIES, HashedTexts, TokenWriter

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

    Left out and counted: topics without positives or without negatives, negatives with the text of a positive or of
    another candidate, and docs that the teacher did not score. The token ids of all texts are written to a folder.

    Returns:
        The pools, and lines that report the omissions.

    Raises:
        PreflightError: a file is missing or invalid, or the corpus lacks docs.
    """
    assert data.qrels
    assert data.run
    assert data.corpus
    query_ids, hashes = _read_topics(data, folds, TokenWriter(folder, QUERIES, tokenizer, max_tokens))
    judged = judgments(data.qrels).of(hashes)
    positives = judged.where(judged.values >= data.min_relevance)
    candidates = run_rows(data.run, ranks).of(hashes)
    left_out = _LeftOut(query_ids)
    if data.teacher is not None:
        taught = run_rows(data.teacher).of(hashes)
        positives, candidates = (left_out.unscored(each, taught) for each in (positives, candidates))
        del taught
    left_out.note("without positives", positives.counts == 0)
    left_out.note("without candidates", (positives.counts > 0) & (candidates.counts == 0))
    both = (positives.counts > 0) & (candidates.counts > 0)
    positives, candidates = (each.where(np.repeat(both, each.counts)) for each in (positives, candidates))
    docs = HashedTexts(TokenWriter(folder, DOCS, tokenizer, max_tokens), _normal)
    wanted = _distinct(positives.docs, candidates.docs)
    rows: Indices = np.zeros(0, np.int64)
    lines: list[str] = []
    if len(wanted):
        rows, lines = scan_docs(data.corpus, wanted, data.max_bad_rows, docs.add, lambda: _doc_ids(data))
    blocks = _Builder(wanted, rows, docs.close(), left_out, data.teacher is not None).blocks(positives, candidates)
    usable = np.concatenate([block.usable for block in blocks] or [np.zeros(0, np.bool_)])
    left_out.note("without negatives", (candidates.counts > 0) & ~usable)
    # Tens of millions of pairs do not fit into memory as pools beside what these are made from.
    del judged, positives, candidates, both, wanted, rows, docs
    return _join(blocks, usable), lines + left_out.lines()


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


def _read_topics(data: DataConfig, folds: FoldsConfig | None, writer: TokenWriter) -> tuple[pa.Array, Hashes]:
    """Writes the topics' token ids; returns their ids, string[n], and the hashes of these."""
    assert data.topics
    assert data.qrels
    topics = [topic for topic in read_topics(data.topics) if folds is None or not folds.holds_out(topic.query_id)]
    if data.topics.only_judged:
        judged = np.sort(judgments(data.qrels).queries)
        known = is_in(hashes64(topic.query_id for topic in topics), judged)
        topics = [topic for topic, each in zip(topics, known, strict=True) if each]
    writer.add([topic.text for topic in topics])
    writer.close()
    query_ids = [topic.query_id for topic in topics]
    return pa.array(query_ids, pa.string()), hashes64(query_ids)


def _normal(text: str) -> str:
    """A text, letter case and white space aside."""
    return " ".join(text.casefold().split())


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
        left_out: counts what cannot be trained on.
        taught: whether values are scores of a teacher, and kept.
    """

    wanted: Hashes
    rows: Indices
    texts: Hashes
    left_out: _LeftOut
    taught: bool

    def blocks(self, positives: Rows, candidates: Rows) -> "list[_Block]":
        """The pools of some topics each."""
        return list(map(self._block, positives.blocks(_BLOCK_TOPICS), candidates.blocks(_BLOCK_TOPICS)))

    def _block(self, positives: Rows, candidates: Rows) -> "_Block":
        positive_rows, candidate_rows = (
            self.rows[np.searchsorted(self.wanted, each.docs)] for each in (positives, candidates)
        )
        relevant = is_in(candidates.pairs(candidates.docs), np.sort(positives.pairs(positives.docs)))
        topic_texts = candidates.pairs(self.texts[candidate_rows])
        copies = ~relevant & is_in(topic_texts, np.sort(positives.pairs(self.texts[positive_rows])))
        others = np.flatnonzero(~copies)
        kept = np.zeros(len(relevant), np.bool_)
        kept[others[np.unique(topic_texts[others], return_index=True)[1]]] = True
        self.left_out.count("negatives with the text of a positive, ignored", copies)
        self.left_out.count("candidates with the text of another, ignored", ~copies & ~kept)
        usable = candidates.where(kept & ~relevant).counts > 0
        kept &= np.repeat(usable, candidates.counts)
        return _Block(
            usable,
            self._lists(positives, np.repeat(usable, positives.counts), positive_rows, usable),
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
    """Some topics, bool[topics] which of them are usable, and the lists of those."""

    usable: NDArray[np.bool_]
    positives: Lists
    candidates: Lists
    negatives: Lists
    relevant: NDArray[np.bool_]


def _join(blocks: "list[_Block]", usable: NDArray[np.bool_]) -> Pools:
    """The pools of all topics."""
    return Pools(
        topics=np.flatnonzero(usable).astype(np.int32),
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
