"""The report of a run: one pass over its parts, and one scan of its corpus."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.status import read_receipts, read_status
from beamrank.config.run import RunConfig, stored_config
from beamrank.errors import PreflightError
from beamrank.evaluation.positions import supported
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.report.report import JUDGED, Execution, Report, ReportSettings, chosen_baseline
from beamrank.report.stored.curves import Curves, CurveSettings
from beamrank.report.stored.depths import DepthSettings, depth_points
from beamrank.report.stored.distributions import ScoreDistributions
from beamrank.report.stored.drift import DriftPass, EarlierRun
from beamrank.report.stored.rank_changes import CandidateView, LargestChanges, candidate_views, shown_views
from beamrank.report.stored.scores import StoredQuery, finished_stages, iter_stored, ranked_texts
from beamrank.report.stored.stage_measures import StageMeasures, stored_aggregations
from beamrank.report.stored.truncation import truncated_docs


def gather(plan: Plan, config: RunConfig, settings: ReportSettings, pairs: Plan | None = None) -> Report:
    """Reads what a run has finished, and the corpus at most once.

    Args:
        plan: of the run.
        config: its configuration.
        settings: what is shown.
        pairs: the plan of the pairs of figure 4, finished.

    Raises:
        ConfigError: the baseline is not a run of a finished stage.
    """
    report = _empty(plan, config, settings)
    qrels = _read_qrels(report, plan, config)
    pass_over = _Pass(report, plan, config, qrels, settings)
    for queries in iter_stored(plan, config):
        pass_over.add(queries)
    pass_over.finish()
    if pairs is not None and qrels is not None:
        keys, (fast, _) = pairs.stages[-1].keys, supported(config.measures)
        wanted = DepthSettings.of(config, keys["k0s"], settings.k1s or (keys["k"],))
        report.points += depth_points(plan, config, pairs, qrels, fast, wanted)
    report.test_differences()
    chosen = report.largest_differences(settings.queries, list(report.topics))
    views = _views(report, plan, config, chosen, {} if qrels is None else qrels.relevance)
    report.views = {query_id: shown_views(views[query_id], settings.docs) for query_id in chosen if query_id in views}
    _mark_truncated(report, plan)
    if settings.texts:
        report.texts = _texts(report, plan, config)
    return report


def query_candidates(plan: Plan, config: RunConfig, query_id: str) -> list[CandidateView]:
    """The candidates of one query; reads its shard alone."""
    runs = finished_runs(plan, config)
    relevance = {} if config.qrels is None else read_qrels(config.qrels).relevance
    judgments = relevance.get(query_id, {})
    views = [
        candidate_views(query, judgments, runs, stored_aggregations(config))
        for queries in iter_stored(plan, config, {query_id})
        for query in queries
        if query.query_id == query_id
    ]
    found = views[0] if views else []
    truncated = truncated_docs(plan, {(query_id, view.doc_id) for view in found})
    return [view.with_truncation(truncated) for view in found]


def finished_runs(plan: Plan, config: RunConfig) -> list[str]:
    """The names of the runs that the finished stages give, in the order of `stage_orders`."""
    finished = finished_stages(plan)
    found = [finished["candidates"][0].run_name or "candidates"] if "candidates" in finished else []
    found += ["mono"] if found and "mono" in finished else []
    found += [f"duo-{name}" for name in stored_aggregations(config)] if len(found) == 2 and "duo" in finished else []
    return found


def report_measures(config: RunConfig) -> list[str]:
    """The configured measures, and how many of the first ten docs are judged."""
    return list(dict.fromkeys([*config.measures, JUDGED]))


def _steps(runs: Sequence[str], config: RunConfig) -> list[str]:
    """One run a stage: of the aggregations, the configured one."""
    if config.duo is None or len(runs) <= 2:
        return list(runs[:2])
    return [*runs[:2], f"duo-{config.duo.aggregation}"]


def _earlier(output: str) -> EarlierRun:
    plan = read_plan(output)
    config = stored_config(plan.config, output)
    return EarlierRun(plan, config, _steps(finished_runs(plan, config), config))


def _empty(plan: Plan, config: RunConfig, settings: ReportSettings) -> Report:
    runs = finished_runs(plan, config)
    steps = _steps(runs, config)
    statuses = read_status(plan)
    report = Report(
        title=f"{plan.run_tag}: {plan.output}",
        runs=runs,
        steps=steps,
        last=steps[-1] if steps else "",
        baseline=chosen_baseline(settings.baseline, runs, plan.output),
        measures=config.measures,
        topics={topic.query_id: topic.text for topic in plan.topics},
        trial=f" (a trial: the first {len(plan.topics):,} topics alone, topics.limit)" if plan.limited else "",
        execution=Execution(plan, config, statuses, read_receipts(plan)),
    )
    report.missing += [
        f"{each.stage} is not finished ({each.done:,} of {each.shards:,} shards): what needs it is left out. "
        "Run the same `beamrank run` again, which resumes"
        for each in statuses
        if not each.finished
    ]
    return report


def _read_qrels(report: Report, plan: Plan, config: RunConfig) -> Qrels | None:
    if config.qrels is None:
        report.missing.append(
            "The run has no qrels: measures, tests, curves and rank changes of judged docs need judgments. Give "
            "`qrels` in the configuration, or --qrels"
        )
        return None
    qrels = read_qrels(config.qrels)
    return qrels.of_topics(set(report.topics)) if plan.limited else qrels


class _Pass:
    """Takes the stored scores of a run, a shard at a time, and fills in what a report has of all queries."""

    def __init__(
        self, report: Report, plan: Plan, config: RunConfig, qrels: Qrels | None, settings: ReportSettings
    ) -> None:
        self._report, self._settings = report, settings
        self._relevance = {} if qrels is None else qrels.relevance
        self._chosen = [] if config.duo is None else [config.duo.aggregation]
        self._scores = ScoreDistributions()
        self._changes = LargestChanges(itertools.pairwise(report.steps), settings.changes)
        self._measures: StageMeasures | None = None
        self._curves: Curves | None = None
        fast, report.not_drawn = supported(config.measures)
        if qrels is not None:
            aggregations = stored_aggregations(config)
            self._measures = StageMeasures(qrels, report_measures(config), report.runs, aggregations)
            if settings.curves:
                wanted = CurveSettings.of(config, settings.k0s, settings.k1s, settings.opponents, settings.trials)
                self._curves = Curves(qrels, fast, wanted)
        self._drift: DriftPass | None = None
        if settings.earlier is not None:
            self._drift = DriftPass(_earlier(settings.earlier), plan, config, report.steps)
            if qrels is not None:
                self._drift.measure(qrels, report_measures(config))

    def add(self, queries: list[StoredQuery]) -> None:
        """Takes a shard."""
        for query in queries:
            judgments = self._relevance.get(query.query_id, {})
            scores = (query.first_scores, query.mono_scores)
            by_run = {run: each for run, each in zip(self._report.runs, scores, strict=False) if each is not None}
            self._scores.add(query.doc_ids, judgments, by_run)
            if judgments and self._settings.changes:
                self._changes.add(candidate_views(query, judgments, self._report.steps, self._chosen, judgments))
        for taker in (self._measures, self._curves, self._drift):
            if taker is not None:
                taker.add(queries)

    def finish(self) -> None:
        """Fills in the report."""
        report = self._report
        report.scores = self._scores.found()
        report.changes = list(self._changes.found())
        if self._measures is not None and report.runs:
            report.evaluations = self._measures.evaluations(report.topics)
        if self._curves is not None:
            report.points = list(self._curves.points())
        if self._drift is not None:
            report.drift = self._drift.found()


def _views(
    report: Report, plan: Plan, config: RunConfig, chosen: list[str], relevance: Mapping[str, Mapping[str, int]]
) -> dict[str, list[CandidateView]]:
    """All candidates of the chosen queries; reads their shards alone."""
    wanted, aggregations = set(chosen), stored_aggregations(config)
    return {
        query.query_id: candidate_views(query, relevance.get(query.query_id, {}), report.runs, aggregations)
        for queries in iter_stored(plan, config, wanted)
        for query in queries
        if query.query_id in wanted
    }


def _mark_truncated(report: Report, plan: Plan) -> None:
    truncated = truncated_docs(plan, {(view.query_id, view.doc_id) for view in _shown(report)})
    report.changes = [change.with_truncation(truncated) for change in report.changes]
    report.views = {
        query_id: [view.with_truncation(truncated) for view in views] for query_id, views in report.views.items()
    }


def _texts(report: Report, plan: Plan, config: RunConfig) -> Mapping[str, str]:
    try:
        return ranked_texts(plan, config, {view.doc_id for view in _shown(report)})
    except PreflightError as error:
        report.missing.append(f"No passages are shown: {error}")
        return {}


def _shown(report: Report) -> Iterator[CandidateView]:
    yield from (change.candidate for change in report.changes)
    for views in report.views.values():
        yield from views
