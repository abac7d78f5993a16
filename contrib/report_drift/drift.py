"""Changes since an earlier run of the same job: top tens, rankings, scores and measures."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamrank.commit.parts import ShardParts
from beamrank.evaluation.compare import DocIds, kendalls_tau, mean, rank_biased_overlap
from beamrank.evaluation.evaluate import Evaluator
from beamrank.evaluation.significance import Comparison, compare_evaluations
from beamrank.evaluation.tables import Column, Table, comma_separated
from beamrank.formats.id_places import missing_ids
from beamrank.formats.qrels import Qrels
from beamrank.ranking.rankings import Ranking, Rankings
from beamrank.report.report import Report
from beamrank.report.runs import PlanRuns
from beamrank.storage import files as storage
from pipelines.commands.arguments import open_runs

CUTOFF = 10
_JUDGED = f"Judged@{CUTOFF}"
CAUSES = NEW_TOPIC, NEW_DOC, LOST_DOC, NEW_SCORE = "new topic", "new doc", "lost doc", "new score"
_NONE = Ranking((), np.empty(0), 0)


class TopicChange(NamedTuple):
    """A topic whose first ten docs differ in a run.

    Attributes:
        causes: `new doc`: one of the ten was not a candidate before; `lost doc`: one of the earlier
            ten is not a candidate any more; `new score`: a doc of the ten has a different score;
            `new topic` only.
        rbo: rank-biased overlap of the two rankings; None for a new topic.
        tau: Kendall's tau of the docs that both rank; None if there are fewer than two.
    """

    run: str
    query_id: str
    causes: tuple[str, ...]
    rbo: float | None
    tau: float | None


class RunDrift:
    """How far a run is from the same stage's run in the earlier output; topics arrive one by one.

    Attributes:
        run, before: the names of both.
        changes: the topics whose first ten docs differ, new ones included.
    """

    def __init__(self, run: str, before: str, qrels: Qrels | None, measures: Sequence[str]) -> None:
        self.run, self.before = run, before
        self.changes: list[TopicChange] = []
        self._agreements: list[tuple[float | None, float | None]] = []
        self._score_changes: list[NDArray[np.float32]] = [np.empty(0, np.float32)]
        self._evaluators = (
            [Evaluator(qrels, measures, fast=True) for _ in range(2)] if qrels else []
        )

    def add(
        self, query_id: str, new: Ranking, old: Ranking, candidates: tuple[DocIds, DocIds]
    ) -> None:
        """Takes a topic of both runs, with its candidates in each."""
        now, before = (dict(list(ranking)[: ranking.scored]) for ranking in (new, old))
        differences = [now[doc_id] - before[doc_id] for doc_id in now if doc_id in before]
        self._score_changes.append(np.array(differences, np.float32))
        rbo = rank_biased_overlap(new.doc_ids, old.doc_ids) if new.doc_ids and old.doc_ids else None
        tau = kendalls_tau(new.doc_ids, old.doc_ids)
        self._agreements.append((rbo, tau))
        top, top_before = new.doc_ids[:CUTOFF], old.doc_ids[:CUTOFF]
        if top != top_before:
            scored = [
                doc_id for doc_id in {*top, *top_before} if doc_id in now and doc_id in before
            ]
            causes = {
                NEW_DOC: not set(top).issubset(candidates[1]),
                LOST_DOC: not set(top_before).issubset(candidates[0]),
                NEW_SCORE: any(now[doc_id] != before[doc_id] for doc_id in scored),
            }
            reasons = tuple(cause for cause, holds in causes.items() if holds)
            self.changes.append(TopicChange(self.run, query_id, reasons, rbo, tau))
        for evaluator, ranking in zip(self._evaluators, (new, old), strict=False):
            evaluator.add([(query_id, ranking.doc_ids)])

    @property
    def topics(self) -> int:
        """How many topics both have."""
        return len(self._agreements)

    @property
    def rbo(self) -> float | None:
        """The mean over the topics for which it is defined; None without any."""
        return mean([rbo for rbo, _ in self._agreements])

    @property
    def tau(self) -> float | None:
        """The mean over the topics for which it is defined; None without any."""
        return mean([tau for _, tau in self._agreements])

    @cached_property
    def score_changes(self) -> NDArray[np.float32]:
        """float32[p], the new score minus the earlier one of each doc that both scored."""
        return np.concatenate(self._score_changes)

    @cached_property
    def comparisons(self) -> Mapping[str, Comparison]:
        """Of each measure over the judged topics of both; empty without qrels."""
        if not self._evaluators:
            return {}
        new, old = (evaluator.evaluation() for evaluator in self._evaluators)
        return compare_evaluations(new, old)


class Drift(NamedTuple):
    """Changes since an earlier output: of each stage that both have finished; `gone` are its other
    topics.
    """

    output: str
    runs: Sequence[RunDrift]
    gone: Sequence[str]


def is_output(baseline: str) -> bool:
    """Whether a baseline is the output of an earlier run, and no run."""
    return storage.is_folder(storage.absolute(baseline))


@lru_cache(maxsize=1)
def find_drift(report: Report, baseline: str | None) -> Drift | None:
    """The changes since the earlier output that is the baseline; None where it is none.

    Two sections of a report ask.
    """
    if baseline is None or not is_output(baseline):
        return None
    runs = report.execution
    if runs is None:
        return None
    measures = list(dict.fromkeys([*report.measures, _JUDGED]))
    drift = _Comparison(runs, open_runs(storage.absolute(baseline)), report.qrels, measures)
    for parts in runs.shards():
        drift.add(parts)
    return drift.found()


class _Comparison:
    """Compares the stored rankings of two outputs, a shard at a time.

    A stage is compared with the earlier one of its name, and the first with the first.
    """

    def __init__(
        self, runs: PlanRuns, earlier: PlanRuns, qrels: Qrels | None, measures: Sequence[str]
    ) -> None:
        """Takes both runs; measures are compared over the judged topics of both: other means would
        not compare them.
        """
        self._runs, self._earlier = runs, earlier
        topics = [output.plan.topics.query_ids.to_pylist() for output in (runs, earlier)]
        self._shared = set(topics[0]).intersection(topics[1])
        names = {stage.name: str(stage.run_name) for stage in earlier.finished}
        before = [*earlier.steps[:1], *(names.get(stage.name, "") for stage in runs.finished[1:])]
        judged = None if qrels is None else qrels.of_topics(self._shared)
        judged = judged if judged and judged.relevance else None
        pairs = zip(runs.steps, before, strict=False)
        self._found = [RunDrift(run, other, judged, measures) for run, other in pairs if other]
        self._seen: set[str] = set()

    def add(self, parts: ShardParts) -> None:
        """Takes a shard."""
        rankings = {run: self._runs.rankings(parts, run) for run in self._runs.steps}
        queries = set(rankings[self._runs.steps[0]])
        self._seen |= queries
        self._compare(queries, rankings)

    def found(self) -> Drift:
        """The changes."""
        self._compare(self._shared - self._seen, {run: {} for run in self._runs.steps})
        gone = missing_ids(self._earlier.plan.topics.query_ids, self._shared)
        return Drift(self._earlier.plan.output, self._found, sorted(gone))

    def _compare(self, queries: Collection[str], rankings: Mapping[str, Rankings]) -> None:
        """Compares some queries; reads the shards of the earlier run that have them."""
        shared = self._shared.intersection(queries)
        earlier: dict[str, dict[str, Ranking]] = {run: {} for run in self._earlier.steps}
        for parts in self._earlier.shards(shared) if shared else ():
            for run in earlier:
                earlier[run] |= self._earlier.rankings(parts, run)
        first, first_before = (next(iter(of_run.values()), {}) for of_run in (rankings, earlier))
        for drift in self._found:
            new, old = rankings[drift.run], earlier[drift.before]
            for query_id in sorted(queries):
                if query_id in shared:
                    candidates = (
                        first.get(query_id, _NONE).doc_ids,
                        first_before.get(query_id, _NONE).doc_ids,
                    )
                    drift.add(
                        query_id, new.get(query_id, _NONE), old.get(query_id, _NONE), candidates
                    )
                else:
                    drift.changes.append(TopicChange(drift.run, query_id, (NEW_TOPIC,), None, None))


def write_drift(drift: Drift) -> bytes:
    """`drift.csv`: a row for each topic and run whose first ten docs differ."""
    rows = [
        [change.run, change.query_id, "; ".join(change.causes), *change[3:]]
        for run in drift.runs
        for change in run.changes
    ]
    columns = list(map(Column, TopicChange._fields))
    return comma_separated(Table(columns, rows)).encode("utf-8", "backslashreplace")
