"""Groups from topics, qrels and a run: a relevant doc, and negatives from the other candidates."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from beamrank.errors import PreflightError
from beamrank.formats.problems import first_few
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import read_topics
from beamrank.records import Topic
from models.training.config import DataConfig, FoldsConfig, SamplingConfig
from models.training.data.collection import read_texts
from models.training.data.examples import Group, Position, shuffled

_NEGATIVES = 1


@dataclass(frozen=True)
class Pool:
    """The docs that a topic can be trained on, by doc_id; no two candidates have the same text.

    Attributes:
        topic: the query.
        positives: relevant docs, retrieved or not.
        candidates: docs of the run between the ranks, best first, relevant or not.
        negatives: the candidates that are not relevant and do not have the text of a relevant doc.
    """

    topic: Topic
    positives: tuple[str, ...]
    candidates: tuple[str, ...]
    negatives: tuple[str, ...]


@dataclass
class Mined:
    """Pools with their texts, and lines that report the omissions."""

    pools: list[Pool]
    texts: Mapping[str, str]
    teacher: Mapping[str, Mapping[str, float]] | None = None
    lines: list[str] = field(default_factory=list)


class MinedSource:
    """Groups drawn from pools; `SamplingConfig` describes the modes."""

    def __init__(self, mined: Mined, sampling: SamplingConfig, seed: int) -> None:
        """Lists the groups of an epoch.

        Raises:
            PreflightError: there are none.
        """
        self._mined = mined
        self._seed = seed
        self._negatives = sampling.negatives or _NEGATIVES
        self._balanced = sampling.mode == "balanced"
        self._units = list(_UNITS[sampling.mode](mined, sampling.negatives))
        if not self._units:
            raise PreflightError("the mined set is empty: " + "; ".join(mined.lines or ["no topic has candidates"]))
        self.docs_per_group = 1 + self._negatives if self._balanced else len(self._units[0][1])
        self.groups_per_epoch: int | None = len(self._units)

    def stream(self, position: Position) -> Iterator[tuple[Group, Position]]:
        for epoch, place, number in shuffled(len(self._units), self._seed, position):
            pool, doc_ids = self._units[number]
            if self._balanced:
                rng = np.random.default_rng([self._seed, epoch, number])
                short = len(pool.negatives) < self._negatives
                drawn = rng.choice(len(pool.negatives), self._negatives, replace=short)
                doc_ids = (*doc_ids, *(pool.negatives[each] for each in drawn))
            yield self._group(pool, doc_ids), {"epoch": epoch, "index": place + 1}

    def notes(self, _position: Position) -> list[str]:
        return self._mined.lines

    def _group(self, pool: Pool, doc_ids: Sequence[str]) -> Group:
        taught = self._mined.teacher
        scores = None if taught is None else tuple(taught[pool.topic.query_id][doc_id] for doc_id in doc_ids)
        docs = tuple(self._mined.texts[doc_id] for doc_id in doc_ids)
        return Group(pool.topic.text, docs, tuple(doc_id in pool.positives for doc_id in doc_ids), scores)


def mine(data: DataConfig, sampling: SamplingConfig, folds: FoldsConfig | None = None) -> Mined:
    """Reads topics, qrels, run and corpus, and finds the positives and negatives of each topic that is not held out.

    Left out and counted: topics without positives or without negatives, negatives with the text of a positive or of
    another candidate, and docs that the teacher did not score.

    Raises:
        PreflightError: a file is missing or invalid, or the corpus lacks docs.
    """
    assert data.topics
    assert data.qrels
    assert data.corpus
    relevance = read_qrels(data.qrels).relevance
    topics = [topic for topic in read_topics(data.topics) if folds is None or not folds.holds_out(topic.query_id)]
    if data.topics.only_judged:
        topics = [topic for topic in topics if topic.query_id in relevance]
    taught = None if data.teacher is None else _scores(data.teacher)
    left_out = _LeftOut(len(topics))
    found = list(_judged(topics, relevance, data, sampling.ranks, taught, left_out))
    needed = {doc_id for _, positives, candidates in found for doc_id in (*positives, *candidates)}
    texts, lines = read_texts(data.corpus, needed, data.max_bad_rows) if needed else ({}, [])
    pools = [_pool(topic, positives, candidates, texts, left_out.counts) for topic, positives, candidates in found]
    left_out.topics["without negatives"] = [pool.topic.query_id for pool in pools if not pool.negatives]
    return Mined([pool for pool in pools if pool.negatives], texts, taught, lines + left_out.lines())


@dataclass
class _LeftOut:
    """Topics that cannot be trained on, by reason, and counts of docs."""

    total: int
    topics: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """A line per reason."""
        lines = []
        for reason, query_ids in self.topics.items():
            if query_ids:
                ids = first_few(query_ids)
                lines.append(f"topics {reason}: {len(query_ids):,} of {self.total:,} ({ids}); ignored")
        return lines + [f"{what}: {count:,}" for what, count in self.counts.items()]


def _judged(
    topics: Sequence[Topic],
    relevance: Mapping[str, Mapping[str, int]],
    data: DataConfig,
    ranks: tuple[int, int],
    taught: Mapping[str, Mapping[str, float]] | None,
    left_out: _LeftOut,
) -> Iterator[tuple[Topic, list[str], list[str]]]:
    """Yields topics with positives and candidates, with the positives and the candidates between the ranks."""
    assert data.run
    ranked = read_run(data.run, ties="rank").order
    for topic in topics:
        judged = relevance.get(topic.query_id, {})
        positives = [doc_id for doc_id, level in judged.items() if level >= data.min_relevance]
        candidates = ranked.get(topic.query_id, [])[ranks[0] - 1 : ranks[1]]
        if taught is not None:
            scores = taught.get(topic.query_id, {})
            positives, candidates = _taught(scores, positives, candidates, left_out.counts)
        if not positives:
            left_out.topics.setdefault("without positives", []).append(topic.query_id)
        elif not candidates:
            left_out.topics.setdefault("without candidates", []).append(topic.query_id)
        else:
            yield topic, positives, candidates


def _scores(url: str) -> dict[str, dict[str, float]]:
    run = read_run(url)
    return {
        query_id: dict(zip(doc_ids, run.scores[query_id].tolist(), strict=True))
        for query_id, doc_ids in run.order.items()
    }


def _taught(
    scores: Mapping[str, float], positives: list[str], candidates: list[str], counts: Counter[str]
) -> tuple[list[str], list[str]]:
    """Keeps the docs that the teacher scored."""
    kept = [[doc_id for doc_id in docs if doc_id in scores] for docs in (positives, candidates)]
    missing = len(positives) + len(candidates) - len(kept[0]) - len(kept[1])
    if missing:
        counts["docs without a teacher's score, ignored"] += missing
    return kept[0], kept[1]


def _pool(
    topic: Topic, positives: list[str], candidates: list[str], texts: Mapping[str, str], counts: Counter[str]
) -> Pool:
    of_positives = {_plain(texts[doc_id]) for doc_id in positives}
    seen: set[str] = set()
    kept, negatives = [], []
    for doc_id in candidates:
        text = _plain(texts[doc_id])
        if doc_id not in positives and text in of_positives:
            counts["negatives with the text of a positive, ignored"] += 1
        elif text in seen:
            counts["candidates with the text of another, ignored"] += 1
        else:
            seen.add(text)
            kept.append(doc_id)
            if doc_id not in positives:
                negatives.append(doc_id)
    return Pool(topic, tuple(positives), tuple(kept), tuple(negatives))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


_Units = Iterator[tuple[Pool, tuple[str, ...]]]


def _balanced(mined: Mined, _: int | None) -> _Units:
    for pool in mined.pools:
        for positive in pool.positives:
            yield pool, (positive,)


def _natural(mined: Mined, _: int | None) -> _Units:
    for pool in mined.pools:
        for doc_id in pool.candidates:
            yield pool, (doc_id,)


def _triplets(mined: Mined, limit: int | None) -> _Units:
    """Mass et al. 2019, section 4.2: each of the m positives is in n/m triplets, with different negatives."""
    for pool in mined.pools:
        share = max(1, len(pool.negatives) // len(pool.positives))
        for number, positive in enumerate(pool.positives):
            own = pool.negatives[number % len(pool.negatives) :: len(pool.positives)]
            for negative in own[:share][:limit]:
                yield pool, (positive, negative)


_UNITS = {"balanced": _balanced, "natural": _natural, "triplets": _triplets}
