"""What changed since an earlier run of the same job: top tens, rankings, scores and measures."""

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamrank.commit.plan import Plan
from beamrank.config.run import RunConfig
from beamrank.evaluation.compare import kendalls_tau, rank_biased_overlap
from beamrank.evaluation.significance import Comparison, compare_evaluations
from beamrank.formats.qrels import Qrels
from beamrank.ranking.aggregation import aggregate
from beamrank.report.stored.scores import StoredQuery, iter_stored
from beamrank.report.stored.stage_measures import StageMeasures, stage_orders

CUTOFF = 10
NEW_TOPIC, NEW_DOC, LOST_DOC, NEW_SCORE = "new topic", "new doc", "lost doc", "new score"


class TopicChange(NamedTuple):
    """A topic whose first ten docs differ in a run.

    Attributes:
        causes: `new doc`: one of the ten was not a candidate before; `lost doc`: one of the earlier ten is not a
            candidate any more; `new score`: a doc of the ten has another score; `new topic` alone.
        rbo: rank-biased overlap of the two rankings; None for a new topic.
        tau: Kendall's tau of the docs that both rank; None if there are fewer than two.
    """

    run: str
    query_id: str
    causes: tuple[str, ...]
    rbo: float | None
    tau: float | None


@dataclass(frozen=True)
class RunDrift:
    """How far a run is from the run of the same stage in the earlier output.

    Attributes:
        run: its name.
        before: the name of the earlier run.
        topics: how many topics both have.
        changes: the topics whose first ten docs differ, new ones included.
        rbo: the mean over the topics of both; None without any.
        tau: the mean over those for which it is defined.
        score_changes: float32[p], the new score minus the earlier one of each doc that both scored.
        comparisons: of each measure over the judged topics of both; empty without qrels.
    """

    run: str
    before: str
    topics: int
    changes: Sequence[TopicChange]
    rbo: float | None
    tau: float | None
    score_changes: NDArray[np.float32]
    comparisons: Mapping[str, Comparison]


@dataclass(frozen=True)
class Drift:
    """What changed since an earlier run.

    Attributes:
        output: the earlier output.
        runs: one for each stage that both have finished.
        gone: topics that only the earlier run has.
    """

    output: str
    runs: Sequence[RunDrift]
    gone: Sequence[str]


@dataclass(frozen=True)
class EarlierRun:
    """The output that a run is compared with, and the names of its runs, one a stage."""

    plan: Plan
    config: RunConfig
    steps: Sequence[str]


class DriftPass:
    """Compares the stored scores of a run with those of an earlier one, a shard at a time."""

    def __init__(self, earlier: EarlierRun, plan: Plan, config: RunConfig, steps: Sequence[str]) -> None:
        """Takes the earlier run, and of the later one its plan, configuration and runs (one a stage)."""
        self._earlier = earlier
        self._topics = {topic.query_id for topic in plan.topics}
        self._shared = self._topics & {topic.query_id for topic in earlier.plan.topics}
        self._aggregations = (_aggregations(config), _aggregations(earlier.config))
        self._stages = [_StageDrift(run, before) for run, before in zip(steps, earlier.steps, strict=False)]
        self._measured: tuple[StageMeasures, ...] = ()
        self._seen: set[str] = set()

    def measure(self, qrels: Qrels, measures: Sequence[str]) -> None:
        """Compares measures too, over the judged topics of both runs: a mean over others would not compare them."""
        shared = qrels.of_topics(self._shared)
        runs = ([each.run for each in self._stages], [each.before for each in self._stages])
        if shared.relevance:
            both = zip(runs, self._aggregations, strict=True)
            self._measured = tuple(StageMeasures(shared, measures, *each) for each in both)

    def add(self, queries: Iterable[StoredQuery]) -> None:
        """Takes the stored scores of some queries."""
        found = {query.query_id: query for query in queries}
        self._seen |= found.keys()
        earlier = self._stored(found.keys() & self._shared)
        for query_id, query in found.items():
            self._add(query_id, _rankings(query, self._aggregations[0]), earlier.get(query_id))
        for measured, each in zip(self._measured, (found.values(), earlier.values()), strict=False):
            measured.add(query for query in each if query.query_id in self._shared)

    def found(self) -> Drift:
        """What changed."""
        lost = self._stored(self._shared - self._seen)
        for query_id, query in lost.items():
            self._add(query_id, [_Ranking([], {}, frozenset())] * len(self._stages), query)
        for measured in self._measured[1:]:
            measured.add(lost.values())
        evaluations = [each.evaluations(self._shared) for each in self._measured]
        comparisons: dict[str, dict[str, Comparison]] = {}
        if evaluations:
            new, old = evaluations
            comparisons = {each.run: compare_evaluations(new[each.run], old[each.before]) for each in self._stages}
        runs = [stage.found(len(self._shared), comparisons.get(stage.run, {})) for stage in self._stages]
        gone = {topic.query_id for topic in self._earlier.plan.topics} - self._shared
        return Drift(self._earlier.plan.output, runs, sorted(gone))

    def _stored(self, query_ids: Collection[str]) -> dict[str, StoredQuery]:
        """What the earlier run stored of some queries; reads their shards alone."""
        shards = iter_stored(self._earlier.plan, self._earlier.config, query_ids) if query_ids else ()
        return {query.query_id: query for shard in shards for query in shard if query.query_id in query_ids}

    def _add(self, query_id: str, rankings: Sequence["_Ranking"], earlier: StoredQuery | None) -> None:
        if query_id not in self._shared:
            for stage in self._stages:
                stage.changes.append(TopicChange(stage.run, query_id, (NEW_TOPIC,), None, None))
            return
        empty = [_Ranking([], {}, frozenset())] * len(self._stages)
        before = empty if earlier is None else _rankings(earlier, self._aggregations[1])
        for stage, new, old in zip(self._stages, rankings, before, strict=False):
            stage.add(query_id, new, old)


class _Ranking(NamedTuple):
    """A query's docs in a run's order, the scores of those that its model scored, and all candidates."""

    doc_ids: Sequence[str]
    scores: Mapping[str, float]
    candidates: frozenset[str]


class _StageDrift:
    """Adds up how a run differs from the earlier one, topic by topic."""

    def __init__(self, run: str, before: str) -> None:
        self.run, self.before = run, before
        self.changes: list[TopicChange] = []
        self._agreements: list[tuple[float | None, float | None]] = []
        self._score_changes: list[NDArray[np.float32]] = []

    def add(self, query_id: str, new: _Ranking, old: _Ranking) -> None:
        """Takes a topic of both runs."""
        scored = [doc_id for doc_id in new.scores if doc_id in old.scores]
        differences = np.array([new.scores[each] - old.scores[each] for each in scored], np.float32)
        self._score_changes.append(differences)
        rbo = rank_biased_overlap(new.doc_ids, old.doc_ids) if new.doc_ids and old.doc_ids else None
        tau = kendalls_tau(new.doc_ids, old.doc_ids)
        self._agreements.append((rbo, tau))
        if new.doc_ids[:CUTOFF] != old.doc_ids[:CUTOFF]:
            self.changes.append(TopicChange(self.run, query_id, _causes(new, old), rbo, tau))

    def found(self, topics: int, comparisons: Mapping[str, Comparison]) -> RunDrift:
        """How far the run is from the earlier one."""
        means = [_mean([each[place] for each in self._agreements]) for place in (0, 1)]
        score_changes = np.concatenate([*self._score_changes, np.empty(0, np.float32)])
        return RunDrift(self.run, self.before, topics, self.changes, means[0], means[1], score_changes, comparisons)


def write_drift(drift: Drift) -> bytes:
    """`drift.csv`: a row for each topic and run whose first ten docs differ."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(TopicChange._fields)
    for run in drift.runs:
        writer.writerows(change._replace(causes="; ".join(change.causes)) for change in run.changes)  # type: ignore[arg-type]
    return content.getvalue().encode("utf-8", "backslashreplace")


def _causes(new: _Ranking, old: _Ranking) -> tuple[str, ...]:
    first, earlier = new.doc_ids[:CUTOFF], old.doc_ids[:CUTOFF]
    scored = [doc_id for doc_id in {*first, *earlier} if doc_id in new.scores and doc_id in old.scores]
    holds = {
        NEW_DOC: any(doc_id not in old.candidates for doc_id in first),
        LOST_DOC: any(doc_id not in new.candidates for doc_id in earlier),
        NEW_SCORE: any(new.scores[doc_id] != old.scores[doc_id] for doc_id in scored),
    }
    return tuple(cause for cause, found in holds.items() if found)


def _aggregations(config: RunConfig) -> list[str]:
    return [] if config.duo is None else [config.duo.aggregation]


def _rankings(query: StoredQuery, aggregations: Sequence[str]) -> list[_Ranking]:
    """A query's rankings by the first stage, mono and duo, as far as they are finished."""
    by_stage = [(np.arange(len(query.doc_ids)), query.first_scores)]
    if query.mono_scores is not None:
        by_stage.append((np.flatnonzero(~np.isnan(query.mono_scores)), query.mono_scores[~np.isnan(query.mono_scores)]))
    if query.z is not None and query.compared is not None:
        by_stage += [(query.compared, aggregate(query.z, name)) for name in aggregations]
    candidates = frozenset(query.doc_ids)
    return [
        _Ranking(
            [query.doc_ids[place] for place in order.tolist()],
            {query.doc_ids[place]: score for place, score in zip(places.tolist(), scores.tolist(), strict=True)},
            candidates,
        )
        for order, (places, scores) in zip(stage_orders(query, aggregations), by_stage, strict=True)
    ]


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return float(np.mean(found)) if found else None
