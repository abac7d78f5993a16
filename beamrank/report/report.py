"""The content of a report of a run, or of other folders: all that its sections get.

A run is read in a pass over its parts, the parts of the queries that are shown, and one scan of its
corpus.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation.compare import NOT_TESTED
from beamrank.evaluation.evaluate import Evaluation, Evaluator
from beamrank.evaluation.measures import by_position
from beamrank.evaluation.significance import Comparison, compare_evaluations, corrected
from beamrank.formats.qrels import Qrels
from beamrank.ranking.rankings import doc_orders
from beamrank.ranking.variants import Depths
from beamrank.records import Relevance
from beamrank.report.curves import CurvePoint, Curves
from beamrank.report.runs import (
    CandidateView,
    LargestChanges,
    PlanRuns,
    RankChange,
    Scores,
    ScoresByLabel,
    candidate_views,
    of_query,
    read_judgments,
    shown_views,
)
from beamrank.report.stage_rows import StageReader, StageRow
from beamrank.report.warnings import StageWarning, find_warnings

_JUDGED = "Judged@10"
# The docs in the section of a query, beside relevant ones further below.
_DOCS = 10
_NO_QRELS = (
    "The run has no qrels: measures, tests, curves and rank changes of judged docs need "
    "judgments. Give `qrels` in the configuration, or --qrels"
)


@dataclass(frozen=True)
class ReportSettings:
    """The choices of the user.

    Attributes:
        baseline: the run that others are compared with; by default the first.
        changes: how many rank changes of each step are shown.
        queries: how many queries have a section of their own.
        texts: whether passages are shown, for which the corpus is scanned.
        curves: whether curves are made, which takes most of the time.
        depths: the points of curves.
    """

    baseline: str | None = None
    changes: int = 10
    queries: int = 30
    texts: bool = True
    curves: bool = True
    depths: Depths = field(default_factory=Depths)


class Tested(NamedTuple):
    """A measure of a run beside the baseline's; the corrected p-value is None unless the run is one
    of the steps.
    """

    run: str
    measure: str
    comparison: Comparison
    corrected_p_value: float | None


@dataclass(frozen=True, eq=False)
class Report:
    """One run with its stages, or folders of something else.

    Attributes:
        title: the run tag and the folder, or the names of the folders.
        runs: the names of all runs: one for each finished stage and aggregation.
        steps: the runs that are shown side by side: one a stage.
        baseline: the run that others are compared with.
        measures: their names; the first decides the order of topics and is drawn.
        settings: what the user chose.
        topics: their texts by query_id.
        execution: the run; None for folders.
        qrels: the judgments, if there are any.
        folders: the folders without a run that a section of a plugin shows.
        missing: what the report lacks, and why, a line each.
        stages: a row for each finished stage that ranks.
        evaluations: of each run; empty without qrels.
        trial: words for a heading if only the first topics were run; else empty.
        curves: their points, by the name of the stage.
        not_drawn: measures that curves cannot have.
        changes: the largest rank changes.
        views: the candidates of the queries that have a section, by query_id.
        scores: by run and label.
        texts: of the docs that are shown.
    """

    title: str
    runs: Sequence[str] = ()
    steps: Sequence[str] = ()
    baseline: str = ""
    measures: Sequence[str] = ()
    settings: ReportSettings = ReportSettings()
    topics: Mapping[str, str] = field(default_factory=dict)
    execution: PlanRuns | None = None
    qrels: Qrels | None = None
    folders: Sequence[str] = ()
    missing: Sequence[str] = ()
    stages: Sequence[StageRow] = ()
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    trial: str = ""
    curves: Mapping[str, Sequence[CurvePoint]] = field(default_factory=dict)
    not_drawn: Sequence[str] = ()
    changes: Sequence[RankChange] = ()
    views: Mapping[str, Sequence[CandidateView]] = field(default_factory=dict)
    scores: Mapping[str, Scores] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def executed(self) -> PlanRuns:
        """The run, which reports of folders lack."""
        assert self.execution is not None
        return self.execution

    @property
    def last(self) -> str:
        """The run whose differences from the baseline are shown by topic; empty without runs."""
        return next(reversed(self.steps), "")

    @cached_property
    def warnings(self) -> list[StageWarning]:
        """The warnings about its stages."""
        return find_warnings(self.stages)

    @property
    def main_measure(self) -> str | None:
        """The first measure; None without qrels."""
        return self.measures[0] if self.evaluations else None

    @property
    def relevance(self) -> Relevance:
        """The judgments by query_id; empty without qrels."""
        return {} if self.qrels is None else self.qrels.relevance

    @cached_property
    def differences(self) -> dict[str, float]:
        """The last run minus the baseline by the main measure, for each judged topic, smallest
        first.
        """
        if self.main_measure is None or self.last == self.baseline:
            return {}
        last, base = (self.evaluations[run].per_query for run in (self.last, self.baseline))
        values = last.of(self.main_measure) - base.of(self.main_measure)
        differences = zip(last.ids.to_pylist(), values.tolist(), strict=True)
        return dict(sorted(differences, key=lambda difference: difference[::-1]))

    @cached_property
    def tested(self) -> list[Tested]:
        """Each measure of each run beside the baseline's. The p-values of the steps are corrected
        together.

        The other runs are further aggregations of the same pairs, which nobody chose.
        """
        compared = [
            (run, measure, comparison)
            for run, evaluation in self.evaluations.items()
            if run != self.baseline
            for measure, comparison in compare_evaluations(
                evaluation, self.evaluations[self.baseline]
            ).items()
            if not measure.startswith(NOT_TESTED)
        ]
        p_values = [
            comparison.p_value if run in self.steps else None for run, _, comparison in compared
        ]
        rows = zip(compared, corrected(p_values, "holm"), strict=True)
        return [Tested(*comparison, p_value) for comparison, p_value in rows]

    def largest_differences(self) -> list[str]:
        """The topics with the largest differences, in the order of the table."""
        by_size = sorted(self.differences, key=lambda one: (-abs(self.differences[one]), one))
        largest = set(by_size[: self.settings.queries])
        return [query_id for query_id in self.differences if query_id in largest]


def gather(runs: PlanRuns, settings: ReportSettings) -> Report:
    """Reads what a run has finished, and the corpus at most once.

    Raises:
        ConfigError: the baseline is not a run of a finished stage.
    """
    plan, measures = runs.plan, runs.config.measures
    fast, not_drawn = by_position(measures) if measures else ({}, ())
    evaluators: dict[str, Evaluator] = {}
    qrels = read_judgments(plan, runs.config)
    missing: list[str] = []
    trial = ""
    if plan.limited:
        trial = f" (a trial: the first {len(plan.topics):,} topics only, topics.limit)"
    for status in runs.statuses:
        if not status.finished:
            missing.append(
                f"{status.stage} is not finished ({status.done:,} of {status.shards:,} shards): "
                "what needs it is left out. Run the same `beamrank run` again, which resumes"
            )
    if qrels is None:
        missing.append(_NO_QRELS)
    else:
        names = list(dict.fromkeys([*measures, _JUDGED]))
        evaluators = {run: Evaluator(qrels, names, fast=True) for run in runs.all}
    report = Report(
        title=f"{plan.run_tag}: {plan.output}",
        runs=list(runs.all),
        steps=runs.steps,
        baseline=_baseline(settings.baseline, list(runs.all), plan.output),
        measures=measures,
        settings=settings,
        topics=plan.topics.texts,
        trial=trial,
        execution=runs,
        qrels=qrels,
        missing=missing,
        not_drawn=not_drawn,
    )
    # The score of a pair is of two docs.
    of_docs = [
        str(stage.run_name) for stage in runs.finished if plan.stage(stage.name).input_docs < 2
    ]
    reader = StageReader(plan, runs.finished, report.relevance)
    drawn = runs.finished if evaluators and settings.curves else ()
    curves = Curves(report.relevance, fast, drawn, settings.depths)
    report = _read(report, runs, of_docs, evaluators, curves, reader)
    stages = reader.rows(runs.statuses, report.evaluations)
    for row in stages:
        row.gain = curves.gain(row.stage, row.measure)
    report = replace(report, stages=stages, curves=curves.found())
    if not settings.texts:
        return report
    shown = {change.candidate.doc_id for change in report.changes}
    shown |= {view.doc_id for view in itertools.chain(*report.views.values())}
    try:
        return replace(report, texts=runs.texts(shown))
    except PreflightError as error:
        return replace(report, missing=[*report.missing, f"No passages are shown: {error}"])


def _read(
    report: Report,
    runs: PlanRuns,
    of_docs: Sequence[str],
    evaluators: Mapping[str, Evaluator],
    curves: Curves,
    reader: StageReader,
) -> Report:
    """Fills a report in a pass over all parts, and one over the parts of the queries that are
    shown.

    Args:
        report: what is known without them.
        runs: the run.
        of_docs: the runs whose scores by label are shown.
        evaluators: by run; none without qrels.
        curves: takes the parts too.
        reader: takes the parts too.
    """
    settings, relevance = report.settings, report.relevance
    changes = LargestChanges(itertools.pairwise(runs.steps), settings.changes)
    scores = ScoresByLabel()
    for parts in runs.shards():
        rankings = {run: runs.rankings(parts, run) for run in (evaluators or report.steps)}
        for run, evaluator in evaluators.items():
            evaluator.add(doc_orders(rankings[run]))
        in_steps = {run: rankings[run] for run in report.steps}
        for query_id in dict.fromkeys(itertools.chain.from_iterable(in_steps.values())):
            judgments = relevance.get(query_id, {})
            ranked = of_query(in_steps, query_id)
            for run in of_docs:
                if run in ranked:
                    scores.add(run, ranked[run], judgments)
            if judgments and settings.changes:
                changes.add(candidate_views(query_id, ranked, judgments, judgments))
        reader.add(parts)
        curves.add(parts)
    topics = runs.plan.topics.query_ids
    report = replace(
        report,
        evaluations={run: evaluator.evaluation(topics) for run, evaluator in evaluators.items()},
        changes=changes.found(),
        scores=scores.found(),
    )
    # Without qrels, the first ones.
    chosen = report.largest_differences() or list(itertools.islice(report.topics, settings.queries))
    of_changes: dict[str, list[CandidateView]] = {}
    for change in report.changes:
        of_changes.setdefault(change.candidate.query_id, []).append(change.candidate)
    views: dict[str, list[CandidateView]] = {}
    changed: dict[tuple[str, str], CandidateView] = {}
    for parts in runs.shards({*chosen, *of_changes}):
        rankings = {run: runs.rankings(parts, run) for run in runs.all}
        for query_id in dict.fromkeys(itertools.chain.from_iterable(rankings.values())):
            if query_id in chosen:
                ranked = of_query(rankings, query_id)
                candidates = candidate_views(query_id, ranked, relevance.get(query_id, {}))
                views[query_id] = runs.complete(parts, query_id, shown_views(candidates, _DOCS))
            for view in runs.complete(parts, query_id, of_changes.get(query_id, [])):
                changed[query_id, view.doc_id] = view
    return replace(
        report,
        views={query_id: views[query_id] for query_id in chosen if query_id in views},
        changes=[
            change._replace(candidate=changed[change.candidate.query_id, change.candidate.doc_id])
            for change in report.changes
        ],
    )


def _baseline(name: str | None, runs: Sequence[str], where: str) -> str:
    """The run that others are compared with, by default the first; empty if there is none."""
    baseline = name or next(iter(runs), "")
    if baseline and baseline not in runs:
        names = ", ".join(runs) or "none: no stage is finished"
        raise ConfigError(f"--baseline {baseline!r} is not a run of {where}; its runs are {names}")
    return baseline
