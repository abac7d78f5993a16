"""The report of a run: one pass over its parts, and one scan of its corpus."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.status import read_receipts, read_status
from beamrank.config.run import RunConfig, stored_config
from beamrank.errors import PreflightError
from beamrank.evaluation.positions import supported
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.ranking.aggregation import aggregate
from beamrank.report.curves import Curves, CurveSettings
from beamrank.report.drift import DriftPass, EarlierRun
from beamrank.report.report import Execution, Report, ReportSettings, chosen_baseline
from beamrank.report.stored.scores import StoredQuery, finished_stages, iter_stored, ranked_texts
from beamrank.report.stored.stage_measures import StageMeasures, stage_orders, stored_aggregations
from beamrank.report.stored.truncation import truncated_docs
from beamrank.report.views import (
    CandidateView,
    LargestChanges,
    Opponent,
    Ranked,
    ScoresByLabel,
    candidate_views,
    shown_views,
)

_JUDGED = "Judged@10"


def gather(plan: Plan, config: RunConfig, settings: ReportSettings) -> Report:
    """Reads what a run has finished, and the corpus at most once.

    Raises:
        ConfigError: the baseline is not a run of a finished stage.
    """
    report, qrels = _empty(plan, config, settings), _read_qrels(plan, config)
    if qrels is None:
        missing = (
            "The run has no qrels: measures, tests, curves and rank changes of judged docs need judgments. Give "
            "`qrels` in the configuration, or --qrels"
        )
        report = replace(report, missing=[*report.missing, missing])
    pass_over = _Pass(report, plan, config, qrels, settings)
    for queries in iter_stored(plan, config):
        pass_over.add(queries)
    report = replace(report, qrels=qrels, **pass_over.found())
    relevance = {} if qrels is None else qrels.relevance
    views = _views(plan, config, report.largest_differences(list(report.topics)), relevance)
    views = {query_id: shown_views(each, settings.docs) for query_id, each in views.items()}
    report = _with_truncation(replace(report, views=views), plan)
    return _with_texts(report, plan, config) if settings.texts else report


def query_candidates(plan: Plan, config: RunConfig, query_id: str) -> list[CandidateView]:
    """The candidates of one query; reads its shard alone."""
    relevance = {} if config.qrels is None else read_qrels(config.qrels).relevance
    found = _views(plan, config, [query_id], relevance).get(query_id, [])
    return list(_truncated(plan, found).values())


def finished_runs(plan: Plan, config: RunConfig) -> list[str]:
    """The names of the runs that the finished stages give, in the order of `stage_orders`."""
    finished = finished_stages(plan)
    found = [finished["candidates"][0].run_name or "candidates"] if "candidates" in finished else []
    found += ["mono"] if found and "mono" in finished else []
    found += [f"duo-{name}" for name in stored_aggregations(config)] if len(found) == 2 and "duo" in finished else []
    return found


def _measures(config: RunConfig) -> list[str]:
    """The configured measures, and how many of the first ten docs are judged."""
    return list(dict.fromkeys([*config.measures, _JUDGED]))


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
    statuses = read_status(plan)
    return Report(
        title=f"{plan.run_tag}: {plan.output}",
        runs=runs,
        steps=_steps(runs, config),
        baseline=chosen_baseline(settings.baseline, runs, plan.output),
        measures=config.measures,
        settings=settings,
        topics={topic.query_id: topic.text for topic in plan.topics},
        trial=f" (a trial: the first {len(plan.topics):,} topics alone, topics.limit)" if plan.limited else "",
        execution=Execution(plan, config, statuses, read_receipts(plan)),
        missing=[
            f"{each.stage} is not finished ({each.done:,} of {each.shards:,} shards): what needs it is left out. "
            "Run the same `beamrank run` again, which resumes"
            for each in statuses
            if not each.finished
        ],
    )


def _read_qrels(plan: Plan, config: RunConfig) -> Qrels | None:
    if config.qrels is None:
        return None
    qrels = read_qrels(config.qrels)
    return qrels.of_topics({topic.query_id for topic in plan.topics}) if plan.limited else qrels


class _Pass:
    """Takes the stored scores of a run, a shard at a time."""

    def __init__(
        self, report: Report, plan: Plan, config: RunConfig, qrels: Qrels | None, settings: ReportSettings
    ) -> None:
        self._report, self._settings = report, settings
        self._relevance = {} if qrels is None else qrels.relevance
        self._chosen = [] if config.duo is None else [config.duo.aggregation]
        self._scores = ScoresByLabel()
        self._changes = LargestChanges(itertools.pairwise(report.steps), settings.changes)
        self._measures: StageMeasures | None = None
        self._curves: Curves | None = None
        fast, self._not_drawn = supported(config.measures)
        if qrels is not None:
            self._measures = StageMeasures(qrels, _measures(config), report.runs, stored_aggregations(config))
            if settings.curves:
                points = CurveSettings.of(config, settings.k0s, settings.k1s, settings.opponents, settings.trials)
                self._curves = Curves(qrels, fast, points)
        self._drift: DriftPass | None = None
        if settings.earlier is not None:
            self._drift = DriftPass(_earlier(settings.earlier), plan, config, report.steps)
            if qrels is not None:
                self._drift.measure(qrels, _measures(config))

    def add(self, queries: list[StoredQuery]) -> None:
        """Takes a shard."""
        for query in queries:
            judgments = self._relevance.get(query.query_id, {})
            rankings = stored_rankings(query, self._report.steps, self._chosen)
            for run, ranked in list(rankings.items())[:2]:
                self._scores.add(run, ranked, judgments)
            if judgments and self._settings.changes:
                views = candidate_views(query.query_id, rankings, judgments, judgments)
                self._changes.add(_with_opponents(views, query))
        for taker in (self._measures, self._curves, self._drift):
            if taker is not None:
                taker.add(queries)

    def found(self) -> dict[str, Any]:
        """Fields of the report."""
        evaluated = self._measures is not None and self._report.runs
        return {
            "scores": self._scores.found(),
            "changes": list(self._changes.found()),
            "evaluations": self._measures.evaluations(self._report.topics) if self._measures and evaluated else {},
            "points": list(self._curves.points()) if self._curves else [],
            "not_drawn": self._not_drawn,
            "drift": self._drift.found() if self._drift else None,
        }


def stored_rankings(query: StoredQuery, runs: Sequence[str], aggregations: Sequence[str]) -> dict[str, Ranked]:
    """The ranking of each run, in the order of `stage_orders`."""
    scores = [query.first_scores]
    if query.mono_scores is not None:
        scores.append(query.mono_scores[query.mono_order][: int(np.count_nonzero(~np.isnan(query.mono_scores)))])
    if query.z is not None:
        scores += [np.sort(aggregate(query.z, name))[::-1] for name in aggregations]
    orders = stage_orders(query, aggregations)
    return {
        run: ([query.doc_ids[place] for place in order.tolist()], each.tolist())
        for run, order, each in zip(runs, orders, scores, strict=False)
    }


def _views(
    plan: Plan, config: RunConfig, query_ids: Collection[str], relevance: Mapping[str, Mapping[str, int]]
) -> dict[str, list[CandidateView]]:
    """All candidates of some queries; reads their shards alone."""
    runs, aggregations = finished_runs(plan, config), stored_aggregations(config)
    found = {
        query.query_id: _with_opponents(
            candidate_views(
                query.query_id,
                stored_rankings(query, runs, aggregations),
                relevance.get(query.query_id, {}),
            ),
            query,
        )
        for queries in iter_stored(plan, config, set(query_ids))
        for query in queries
        if query.query_id in set(query_ids)
    }
    return {query_id: found[query_id] for query_id in query_ids if query_id in found}


def _with_opponents(views: list[CandidateView], query: StoredQuery) -> list[CandidateView]:
    if query.z is None or query.compared is None:
        return views
    z = query.z.astype(np.float64)
    np.fill_diagonal(z, np.nan)
    docs = [query.doc_ids[place] for place in query.compared.tolist()]
    found = []
    for view in views:
        row = docs.index(view.doc_id) if view.doc_id in docs else None
        if row is not None and not np.isnan(z[row]).all():
            strongest, weakest = (
                Opponent(docs[column], float(z[row, column]))
                for column in (int(np.nanargmin(z[row])), int(np.nanargmax(z[row])))
            )
            view = replace(view, strongest=strongest, weakest=weakest)
        found.append(view)
    return found


def _with_truncation(report: Report, plan: Plan) -> Report:
    found = _truncated(plan, _shown(report))
    views = {query_id: [found[query_id, each.doc_id] for each in views] for query_id, views in report.views.items()}
    return replace(report, views=views, changes=[change.of(found) for change in report.changes])


def _truncated(plan: Plan, views: Iterable[CandidateView]) -> dict[tuple[str, str], CandidateView]:
    """The candidates, by query_id and doc_id, with the stages that truncate the doc, as far as they scored it."""
    by_id = {(view.query_id, view.doc_id): view for view in views}
    models = truncated_docs(plan, by_id.keys())
    return {
        candidate: replace(
            view,
            truncated=tuple(each for each in models[candidate] if any(run.startswith(each) for run in view.scores)),
        )
        if candidate in models
        else view
        for candidate, view in by_id.items()
    }


def _with_texts(report: Report, plan: Plan, config: RunConfig) -> Report:
    try:
        return replace(report, texts=ranked_texts(plan, config, {view.doc_id for view in _shown(report)}))
    except PreflightError as error:
        return replace(report, missing=[*report.missing, f"No passages are shown: {error}"])


def _shown(report: Report) -> Iterator[CandidateView]:
    yield from (change.candidate for change in report.changes)
    for views in report.views.values():
        yield from views
