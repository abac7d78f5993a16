"""Groups from topics, qrels and a run: relevant docs, and candidates that are not relevant.

Ids and texts are 64-bit hashes here, so that tens of millions of pairs fit into memory.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.qrels import read_qrels
from beamrank.formats.run_order import RunNotes
from beamrank.formats.run_writer import FORMATS
from beamrank.formats.runs import read_run
from beamrank.formats.topics import read_topics
from beamrank.notes import first_few
from beamrank.storage.documents import hash64, hashes64
from models.training.config import DataConfig, FoldsConfig, SamplingConfig
from models.training.data.groups import GroupArrays
from models.training.data.texts import (
    EMPTY,
    MISSING,
    Hashes,
    TextWriter,
    distinct,
    is_in,
    places_in,
    scan_docs,
)

_MIX = np.uint64(0x9E3779B97F4A7C15)
# Of a teacher: scores that are checked; docs of a topic whose grades may follow one another by
# chance.
_CHECKED_PAIRS, _LEAST_DOCS = 1_000_000, 4


class Pairs(NamedTuple):
    """Pairs of a topic and a doc, a topic's pairs one after the other.

    Attributes:
        topics: int32[n], the places of the topics, ascending.
        docs: uint64[n], the hashes of the doc_ids; or int32[n], the docs' places in the order of
            the corpus.
        values: float32[n], levels or scores.
    """

    topics: NDArray[np.int32]
    docs: NDArray[Any]
    values: NDArray[np.float32]

    def where(self, chosen: NDArray[Any] | slice) -> "Pairs":
        """Some of the pairs."""
        return Pairs(self.topics[chosen], self.docs[chosen], self.values[chosen])

    def hashes(self) -> Hashes:
        """uint64[n], of the pairs."""
        return _mixed(self.topics, self.docs)

    def counts(self, topics: int) -> NDArray[np.int64]:
        """int64[topics], the pairs of each topic."""
        return np.bincount(self.topics, minlength=topics)


def _mixed(one: NDArray[Any], other: NDArray[Any]) -> Hashes:
    mixed = one.astype(np.uint64)
    mixed *= _MIX
    mixed ^= other.astype(np.uint64, copy=False)
    return mixed


def _collected(rows: Iterable[tuple[str, Collection[str], Iterable[float]]], ids: Hashes) -> Pairs:
    """The pairs of the queries with these hashes of ids."""
    queries, counts, docs, values = array("Q"), array("q"), array("Q"), array("f")
    for query_id, doc_ids, of_docs in rows:
        queries.append(hash64(query_id))
        counts.append(len(doc_ids))
        docs.frombytes(hashes64(doc_ids).tobytes())
        values.extend(of_docs)
    places = places_in(np.frombuffer(queries, np.uint64), ids).astype(np.int32)
    topics = np.repeat(places, np.frombuffer(counts, np.int64))
    by_topic = np.argsort(topics, kind="stable")[np.count_nonzero(topics < 0) :]
    pairs = Pairs(topics, np.frombuffer(docs, np.uint64), np.frombuffer(values, np.float32))
    return pairs.where(by_topic)


def run_pairs(url: str, ids: Hashes, chosen: slice) -> tuple[Pairs, RunNotes]:
    """The chosen pairs of some queries in a run, in its order, ties by rank; and facts about the
    run.
    """
    run = read_run(url, ties="rank")
    rows = (
        (query_id, doc_ids[chosen], run.scores[query_id][chosen].tolist())
        for query_id, doc_ids in run.order.items()
    )
    # Ties are by rank here.
    return _collected(rows, ids), replace(run.notes, tied_scores=0)


def check_teacher(taught: Pairs, url: str, run_format: str) -> list[str]:
    """Returns a line where the scores of a teacher are all between 0 and 1.

    A run without scores is refused, and so are ranks in their place, as in a run that was written
    without them: they count up or down in every topic, or are the same in every topic.
    """
    if "score" not in FORMATS[run_format].columns:
        raise PreflightError(
            f"data.teacher: {url} has ranks, and no scores, and the objectives that distil learn "
            "from the differences of log-odds or cosines. Give a run with the teacher's own scores",
            kind="column-missing",
            file=url,
        )
    topics, values = taught.topics[:_CHECKED_PAIRS], taught.values[:_CHECKED_PAIRS]
    starts = np.flatnonzero(np.diff(topics, prepend=-1))
    ranks = np.arange(len(topics)) - starts.repeat(np.diff(starts, append=len(topics)))
    later = np.flatnonzero(ranks)
    counting = ((values[later] - values[later - 1] == -1) & (values[later] % 1 == 0)).all()
    of_ranks = values[np.unique(ranks, return_index=True)[1]]
    repeated = len(starts) > 1 and np.array_equal(values, of_ranks[ranks])
    if len(of_ranks) >= _LEAST_DOCS and (counting or repeated):
        longest = values[int(ranks.argmax()) + 1 - len(of_ranks) :]
        shown = ", ".join(f"{value:g}" for value in longest[:3].tolist())
        raise PreflightError(
            f"data.teacher: the scores of {url} are ranks, or depend only on ranks ({shown}, ... "
            "in each topic), and the objectives that distil learn from the differences of "
            "log-odds or cosines. Give a run with the teacher's own scores"
        )
    if not len(taught.values) or taught.values.min() < 0 or taught.values.max() > 1:
        return []
    return [
        f"the scores of the teacher {url} are all between 0 and 1, and the objectives learn from "
        "their differences: if they are probabilities, give log-odds (logits); if they are "
        "cosines, a temperature of 10 or more"
    ]


class _LeftOut:
    """Lines about what cannot be trained on."""

    def __init__(self, query_ids: pa.ChunkedArray) -> None:
        self._query_ids, self.lines = query_ids, list[str]()

    def topics(self, reason: str, which: NDArray[np.bool_], then: str = "ignored") -> None:
        if count := int(np.count_nonzero(which)):
            ids = first_few(self._query_ids[int(at)].as_py() for at in np.flatnonzero(which)[:4])
            self.lines.append(f"topics {reason}: {count:,} of {len(which):,} ({ids}); {then}")

    def docs(self, what: str, *which: NDArray[np.bool_]) -> None:
        if count := sum(int(np.count_nonzero(docs)) for docs in which):
            self.lines.append(f"{what}: {count:,}")


def mine(
    data: DataConfig, sampling: SamplingConfig, folds: FoldsConfig | None, writer: TextWriter
) -> tuple[GroupArrays, list[str]]:
    """Reads topics, qrels, run and corpus, and finds the groups of each topic that is not held out.

    Left out and counted: topics without positives or without negatives, empty texts, negatives with
    the text of a positive of the same query or of another candidate, and docs that the teacher did
    not score. Queries of the same text are one, whatever their ids.
    """
    assert data.topics
    assert data.qrels
    assert data.run
    assert data.corpus
    judged, topics = read_qrels(data.qrels).relevance, read_topics(data.topics)
    if data.topics.only_judged:
        topics = topics.of_queries(judged)
    if folds is not None:
        topics = topics.of_queries(
            [query_id for query_id in topics.query_ids.to_pylist() if not folds.holds_out(query_id)]
        )
    # A topic's place is the row of its text.
    writer.add([topic.text for topic in topics])
    keys, ids = writer.keys(), hashes64(topics.query_ids.to_pylist())
    queries, left_out = distinct(keys), _LeftOut(topics.query_ids)
    relevant = _collected(
        ((query_id, docs, docs.values()) for query_id, docs in judged.items()), ids
    )
    relevant = positives = relevant.where(relevant.values >= data.min_relevance)
    candidates, notes = run_pairs(data.run, ids, slice(sampling.ranks[0] - 1, sampling.ranks[1]))
    left_out.lines = [f"{data.run}: {line}" for line in notes.lines()]
    if data.teacher is not None:
        scored, notes = run_pairs(data.teacher, ids, slice(None))
        left_out.lines += check_teacher(scored, data.teacher, notes.format)
        (positives, one), (candidates, other) = (
            _taught(pairs, scored) for pairs in (positives, candidates)
        )
        left_out.docs("docs without a teacher's score, ignored", ~one, ~other)
        del scored
    with_positives, with_candidates = (
        pairs.counts(len(ids)) > 0 for pairs in (positives, candidates)
    )
    left_out.topics("without a text", queries == EMPTY)
    left_out.topics("without positives", ~with_positives)
    left_out.topics("without candidates", with_positives & ~with_candidates)
    usable = with_positives & with_candidates & (queries != EMPTY)
    positives, candidates = (pairs.where(usable[pairs.topics]) for pairs in (positives, candidates))
    # A doc that the teacher did not score, or that is relevant to another topic of this text, is no
    # less relevant.
    relevant = relevant.where(is_in(queries, np.unique(queries[usable]))[relevant.topics])
    docs = np.concatenate([relevant.docs, candidates.docs])
    docs.sort()
    # `np.unique` needs more memory.
    docs = docs[np.append(docs[1:] != docs[:-1], True)[: len(docs)]]
    places, lines = scan_docs(
        data.corpus, docs, data.max_bad_rows, writer.add, lambda: _doc_ids(data)
    )
    texts, places = distinct(writer.keys()), places.astype(np.int32)
    relevant, positives, candidates = (
        pairs._replace(docs=places[np.searchsorted(docs, pairs.docs)])
        for pairs in (relevant, positives, candidates)
    )
    positives, candidates, is_relevant = _chosen(
        relevant, positives, candidates, queries, texts, usable, left_out
    )
    negatives, taught = candidates.where(~is_relevant), data.teacher is not None
    lines += [*left_out.lines, *_notes(positives, candidates, negatives, sampling, taught)]
    ends = np.cumsum(negatives.counts(len(ids)))
    pools = np.stack([ends - negatives.counts(len(ids)), ends], axis=1)[positives.topics]
    parts, marks = [positives], [True]
    if sampling.mode == "natural":
        parts, marks = [candidates], []
    elif sampling.mode == "triplets":
        one, other = _triplets(positives, pools, sampling.negatives).T
        parts, marks = [positives.where(one), negatives.where(other)], [True, False]
    groups = len(parts[0].topics)
    return GroupArrays(
        queries=parts[0].topics,
        docs=np.stack([part.docs for part in parts], axis=1) + np.int32(len(ids)),
        relevant=np.broadcast_to(marks, (groups, len(marks))) if marks else is_relevant[:, None],
        texts=np.unique(keys[usable]),
        scores=np.stack([part.values for part in parts], axis=1)[: None if taught else 0],
        pools=pools[: None if sampling.drawn else 0],
        negatives=negatives.docs + np.int32(len(ids)),
        negative_scores=negatives.values[: None if taught else 0],
    ), lines


def _taught(pairs: Pairs, taught: Pairs) -> tuple[Pairs, NDArray[np.bool_]]:
    """The pairs that the teacher scored, with its scores as values; and which these are."""
    places = places_in(pairs.hashes(), taught.hashes())
    scored = places != MISSING
    return pairs.where(scored)._replace(values=taught.values[places[scored]]), scored


def _doc_ids(data: DataConfig) -> list[str]:
    """The doc_ids that the data names, for an error."""
    assert data.qrels
    assert data.run
    named = [*read_qrels(data.qrels).relevance.values(), *read_run(data.run).order.values()]
    return list({doc_id for doc_ids in named for doc_id in doc_ids})


def _chosen(
    relevant: Pairs,
    positives: Pairs,
    candidates: Pairs,
    queries: Hashes,
    texts: Hashes,
    usable: NDArray[np.bool_],
    left_out: _LeftOut,
) -> tuple[Pairs, Pairs, NDArray[np.bool_]]:
    """The positives and candidates of topics that have a positive and a negative with texts; which
    are relevant.

    `queries` and `texts` have the hashes of the topics' and docs' texts; other topics are taken out
    of `usable`.
    """
    topics = len(queries)
    is_relevant = is_in(candidates.hashes(), np.sort(positives.hashes()))
    of_docs = texts[candidates.docs]
    full = of_docs != EMPTY
    copies = np.sort(_mixed(queries[relevant.topics], texts[relevant.docs]))
    copied = full & ~is_relevant & is_in(_mixed(queries[candidates.topics], of_docs), copies)
    others = np.flatnonzero(full & ~copied)
    kept = np.zeros(len(full), np.bool_)
    kept[
        others[np.unique(_mixed(candidates.topics[others], of_docs[others]), return_index=True)[1]]
    ] = True
    left_out.docs("candidates without a text, ignored", ~full)
    left_out.docs("negatives with the text of a positive, ignored", copied)
    left_out.docs("candidates with the text of another, ignored", full & ~copied & ~kept)
    full = texts[positives.docs] != EMPTY
    left_out.docs("positives without a text, ignored", ~full)
    empty = (positives.counts(topics) > 0) & (positives.where(full).counts(topics) == 0)
    usable &= ~empty & (candidates.where(kept & ~is_relevant).counts(topics) > 0)
    left_out.topics("whose positives have no text", empty)
    left_out.topics("without negatives", (candidates.counts(topics) > 0) & ~usable & ~empty)
    _, which, counts = np.unique(queries[usable], return_inverse=True, return_counts=True)
    shared = np.zeros(topics, np.bool_)
    shared[np.flatnonzero(usable)[counts[which] > 1]] = True
    left_out.topics(
        "with the text of another", shared, "what is relevant to one is no negative of another"
    )
    if not usable.any():
        raise PreflightError(
            "the mined set is empty: " + "; ".join(left_out.lines or ["no topic has candidates"])
        )
    kept &= usable[candidates.topics]
    return (
        positives.where(full & usable[positives.topics]),
        candidates.where(kept),
        is_relevant[kept],
    )


def _triplets(positives: Pairs, pools: NDArray[np.int64], limit: int | None) -> NDArray[np.int64]:
    """int64[n, 2], places of positives and negatives.

    Mass et al. 2019, section 4.2: each of the m positives is in n/m triplets, with different
    negatives.
    """
    triplets, counts = array("q"), positives.counts(int(positives.topics[-1]) + 1)
    firsts = np.cumsum(counts) - counts
    for place, (topic, (start, end)) in enumerate(
        zip(positives.topics.tolist(), pools.tolist(), strict=True)
    ):
        number, count = place - int(firsts[topic]), int(counts[topic])
        share = max(1, (end - start) // count)
        for negative in range(start + number % (end - start), end, count)[:share][:limit]:
            triplets.extend((place, negative))
    return np.frombuffer(triplets, np.int64).reshape(-1, 2)


def _notes(
    positives: Pairs, candidates: Pairs, negatives: Pairs, sampling: SamplingConfig, taught: bool
) -> Iterator[str]:
    """Lines about topics from which a model learns little, or the wrong thing."""
    topics = int(positives.topics[-1]) + 1
    usable = positives.counts(topics) > 0
    count, fewest = int(np.count_nonzero(usable)), negatives.counts(topics)[usable]
    without = int(np.count_nonzero(fewest == candidates.counts(topics)[usable]))
    if sampling.mode == "natural" and without == count:
        raise PreflightError(
            "sampling.mode natural takes only candidates, and none of them is relevant, so "
            "nothing can be learned: give a run with relevant docs within sampling.ranks, or mode "
            "balanced, which has the positives of qrels"
        )
    if sampling.mode == "natural" and without:
        yield f"topics whose candidates are all negatives: {without:,} of {count:,}"
    needed = sampling.drawn
    if few := int(np.count_nonzero(fewest < needed)):
        yield (
            f"topics with fewer than {needed:,} negatives: {few:,} of {count:,}, the fewest "
            f"{int(fewest.min()):,}; theirs are drawn several times in a group"
        )
    one, other = (
        np.bincount(pairs.topics, pairs.values, topics)[usable] for pairs in (positives, negatives)
    )
    below = (
        int(np.count_nonzero(one / positives.counts(topics)[usable] < other / fewest))
        if taught
        else 0
    )
    if 2 * below > count:
        yield (
            "topics whose relevant docs the teacher scores below the others, on average: "
            f"{below:,} of {count:,}; if its scores are distances, or logits of not relevant, the "
            "model learns them upside down: negate them"
        )
