"""The report of a run: a pass over its parts, the parts of the queries that are shown, and one scan of its corpus."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from beamrank.commit.status import read_receipts, read_status
from beamrank.errors import PreflightError
from beamrank.evaluation.evaluate import Evaluator
from beamrank.evaluation.positions import supported
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.ranking.rankings import doc_orders
from beamrank.ranking.variants import Depths
from beamrank.report.curves import Curves
from beamrank.report.drift import DriftPass
from beamrank.report.report import Execution, Report, ReportSettings, chosen_baseline
from beamrank.report.runs import StoredRuns
from beamrank.report.views import (
    CandidateView,
    LargestChanges,
    RankChange,
    ScoresByLabel,
    candidate_views,
    of_query,
    shown_views,
)

_JUDGED = "Judged@10"
_NO_QRELS = (
    "The run has no qrels: measures, tests, curves and rank changes of judged docs need judgments. Give "
    "`qrels` in the configuration, or --qrels"
)


def gather(runs: StoredRuns, settings: ReportSettings, earlier: StoredRuns | None = None) -> Report:
    """Reads what a run has finished, and the corpus at most once.

    Args:
        runs: the run's.
        settings: what is shown.
        earlier: an earlier run with which it is compared.

    Raises:
        ConfigError: the baseline is not a run of a finished stage.
    """
    plan, statuses, qrels = runs.plan, read_status(runs.plan), _read_qrels(runs)
    missing = [
        f"{each.stage} is not finished ({each.done:,} of {each.shards:,} shards): what needs it is left out. "
        "Run the same `beamrank run` again, which resumes"
        for each in statuses
        if not each.finished
    ]
    report = Report(
        title=f"{plan.run_tag}: {plan.output}",
        runs=list(runs.all),
        steps=runs.steps,
        baseline=chosen_baseline(settings.baseline, list(runs.all), plan.output),
        measures=runs.config.measures,
        settings=settings,
        topics={topic.query_id: topic.text for topic in plan.topics},
        trial=f" (a trial: the first {len(plan.topics):,} topics alone, topics.limit)" if plan.limited else "",
        execution=Execution(runs, statuses, read_receipts(plan)),
        qrels=qrels,
        missing=[*missing, *([_NO_QRELS] if qrels is None else [])],
        **_measured(runs, qrels, settings, earlier),
    )
    report = _with_views(report, runs, {} if qrels is None else qrels.relevance)
    if not settings.texts:
        return report
    try:
        return replace(report, texts=runs.texts({view.doc_id for view in _shown(report)}))
    except PreflightError as error:
        return replace(report, missing=[*report.missing, f"No passages are shown: {error}"])


def _read_qrels(runs: StoredRuns) -> Qrels | None:
    if runs.config.qrels is None:
        return None
    qrels = read_qrels(runs.config.qrels)
    return qrels.of_topics({topic.query_id for topic in runs.plan.topics}) if runs.plan.limited else qrels


def _measured(
    runs: StoredRuns, qrels: Qrels | None, settings: ReportSettings, earlier: StoredRuns | None
) -> dict[str, Any]:
    """The fields of a report that need all queries."""
    names = list(dict.fromkeys([*runs.config.measures, _JUDGED]))
    fast, not_drawn = supported(runs.config.measures)
    relevance = {} if qrels is None else qrels.relevance
    evaluators = {run: Evaluator(qrels, names, by_position=True) for run in runs.all} if qrels else {}
    depths = Depths(settings.k0s, settings.k1s, settings.opponents, settings.trials)
    curves = Curves(qrels, fast, runs.finished, depths) if qrels and settings.curves else None
    drift = DriftPass(runs, earlier, qrels, names) if earlier else None
    changes = LargestChanges(itertools.pairwise(runs.steps), settings.changes)
    # The score of a pair is of two docs.
    of_docs = [str(stage.run_name) for stage in runs.finished if (work := runs.work(stage)) is None or work.docs == 1]
    scores = ScoresByLabel()
    for parts in runs.shards():
        rankings = {run: runs.rankings(parts, run) for run in (evaluators or runs.steps)}
        for run, evaluator in evaluators.items():
            evaluator.add(doc_orders(rankings[run]))
        steps = {run: rankings[run] for run in runs.steps}
        for query_id in rankings[runs.steps[0]]:
            judgments = relevance.get(query_id, {})
            ranked = of_query(steps, query_id)
            for run in of_docs:
                scores.add(run, ranked[run], judgments)
            if judgments and settings.changes:
                changes.add(candidate_views(query_id, ranked, judgments, judgments))
        for each in (curves, drift):
            if each is not None:
                each.add(parts)
    return {
        "evaluations": {
            run: each.evaluation({topic.query_id for topic in runs.plan.topics}) for run, each in evaluators.items()
        },
        "curves": curves.found() if curves else {},
        "not_drawn": not_drawn,
        "changes": changes.found(),
        "scores": scores.found(),
        "drift": drift.found() if drift else None,
    }


def _with_views(report: Report, runs: StoredRuns, relevance: Mapping[str, Mapping[str, int]]) -> Report:
    """Reads again the parts of the queries that are shown."""
    chosen = report.largest_differences(list(report.topics))
    of_changes: dict[str, list[CandidateView]] = {}
    for change in report.changes:
        of_changes.setdefault(change.candidate.query_id, []).append(change.candidate)
    views: dict[str, list[CandidateView]] = {}
    changed: dict[tuple[str, str], CandidateView] = {}
    queries = {*chosen, *of_changes}
    for parts in runs.shards(queries) if queries else ():
        rankings = {run: runs.rankings(parts, run) for run in runs.all}
        for query_id in rankings[runs.steps[0]]:
            if query_id in chosen:
                found = candidate_views(query_id, of_query(rankings, query_id), relevance.get(query_id, {}))
                views[query_id] = runs.complete(parts, query_id, shown_views(found, report.settings.docs))
            for view in runs.complete(parts, query_id, of_changes.get(query_id, [])):
                changed[query_id, view.doc_id] = view
    return replace(
        report,
        views={query_id: views[query_id] for query_id in chosen if query_id in views},
        changes=[
            RankChange(each.before, each.after, changed[each.candidate.query_id, each.candidate.doc_id])
            for each in report.changes
        ],
    )


def _shown(report: Report) -> Iterator[CandidateView]:
    yield from (change.candidate for change in report.changes)
    for views in report.views.values():
        yield from views
