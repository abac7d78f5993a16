"""What a report shows, read: of a run, or of run files of any systems, which have no stored scores.

A run is read in a pass over its parts, the parts of the queries that are shown, and one scan of its corpus.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from beamrank.errors import PreflightError
from beamrank.evaluation.compare import short_names
from beamrank.evaluation.evaluate import Evaluator, evaluate_one, without
from beamrank.evaluation.measures import by_position
from beamrank.formats.excluded import Excluded, own_facts
from beamrank.formats.notes import of_files
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.formats.runs import Run, read_run
from beamrank.ranking.rankings import doc_orders
from beamrank.report.curves import Curves
from beamrank.report.drift import DriftPass
from beamrank.report.report import Report, ReportSettings, chosen_baseline
from beamrank.report.runs import PlanRuns
from beamrank.report.views import (
    CandidateView,
    LargestChanges,
    RankChange,
    Ranked,
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


_NOT_SHOWN = (
    "These are run files: curves, costs, truncation and passages need what `beamrank run` stores, and are left out"
)
_NO_FILE_QRELS = "No qrels are given: measures, tests and rank changes need judgments. Give --qrels"


def gather(runs: PlanRuns, settings: ReportSettings, earlier: PlanRuns | None = None) -> Report:
    """Reads what a run has finished, and the corpus at most once; compares it with an earlier run, if one is given.

    Raises:
        ConfigError: the baseline is not a run of a finished stage.
    """
    plan, qrels = runs.plan, _read_qrels(runs)
    missing = [
        f"{each.stage} is not finished ({each.done:,} of {each.shards:,} shards): what needs it is left out. "
        "Run the same `beamrank run` again, which resumes"
        for each in runs.statuses
        if not each.finished
    ]
    report = Report(
        title=f"{plan.run_tag}: {plan.output}",
        runs=list(runs.all),
        steps=runs.steps,
        baseline=chosen_baseline(settings.baseline, list(runs.all), plan.output),
        measures=runs.config.measures,
        settings=settings,
        topics=plan.topics.texts,
        trial=f" (a trial: the first {len(plan.topics):,} topics only, topics.limit)" if plan.limited else "",
        execution=runs,
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


def _read_qrels(runs: PlanRuns) -> Qrels | None:
    if runs.config.qrels is None:
        return None
    qrels = read_qrels(runs.config.qrels, rejects=runs.config.max_bad_rows.rejects("qrels"))
    return qrels.of_topics(runs.plan.topics.those_of(qrels.relevance)) if runs.plan.limited else qrels


def _measured(
    runs: PlanRuns, qrels: Qrels | None, settings: ReportSettings, earlier: PlanRuns | None
) -> dict[str, Any]:
    """The fields of a report that need all queries."""
    names = list(dict.fromkeys([*runs.config.measures, _JUDGED]))
    fast, not_drawn = by_position(runs.config.measures)
    relevance = {} if qrels is None else qrels.relevance
    evaluators = {run: Evaluator(qrels, names, fast=True) for run in runs.all} if qrels else {}
    curves = Curves(qrels, fast, runs.finished, settings.depths) if qrels and settings.curves else None
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
        "evaluations": {run: each.evaluation(runs.plan.topics.query_ids) for run, each in evaluators.items()},
        "curves": curves.found() if curves else {},
        "not_drawn": not_drawn,
        "changes": changes.found(),
        "scores": scores.found(),
        "drift": drift.found() if drift else None,
    }


def _with_views(report: Report, runs: PlanRuns, relevance: Mapping[str, Mapping[str, int]]) -> Report:
    """Reads again the parts of the queries that are shown."""
    chosen = report.largest_differences(report.topics)
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


def gather_files(
    urls: Sequence[str],
    qrels_url: str | None,
    measures: Sequence[str],
    settings: ReportSettings,
    excluded: Excluded | None = None,
) -> Report:
    """Reads runs and compares them with the first one, or with the baseline.

    Raises:
        ConfigError: the baseline is not one of them, or a measure is unknown.
        PreflightError: a file is missing or invalid, or a run and the qrels have no topic in common.
    """
    names = short_names(list(dict.fromkeys(urls)))
    qrels = None if qrels_url is None else read_qrels(qrels_url)
    relevance = {} if qrels is None else qrels.relevance
    runs = {name: without(read_run(url), excluded, qrels) for url, name in names.items()}
    baseline = chosen_baseline(settings.baseline, list(runs), "these files")
    steps = [baseline, *(name for name in runs if name != baseline)]
    missing = [_NOT_SHOWN, *of_files({name: own_facts(run.order) for name, run in runs.items()})]
    missing += [_NO_FILE_QRELS] if qrels is None else []
    evaluations = {}
    for url, name in names.items() if qrels is not None else ():
        assert qrels is not None
        found = evaluate_one(runs[name], qrels, measures, f"the run {url}", f"the qrels {qrels_url}").evaluation
        evaluations[name] = found
        missing += [f"{name}: {line}" for line in found.notes.warnings()]
    scores = ScoresByLabel()
    for name, run in runs.items():
        for query_id in run.order:
            scores.add(name, _ranked(run, query_id), relevance.get(query_id, {}))
    in_order = {step: runs[step] for step in steps}
    changes = LargestChanges([(baseline, run) for run in steps[1:]], settings.changes)
    for query_id, judgments in relevance.items() if settings.changes else ():
        changes.add(candidate_views(query_id, _rankings(in_order, query_id), judgments, judgments))
    report = Report(
        title=", ".join(runs),
        runs=list(runs),
        steps=steps,
        baseline=baseline,
        measures=measures,
        settings=settings,
        qrels=qrels,
        files={url: runs[name].notes for url, name in names.items()},
        missing=missing,
        evaluations=evaluations,
        changes=changes.found(),
        scores=scores.found(),
    )
    queries = list(dict.fromkeys(query_id for run in runs.values() for query_id in run.order))
    views = {
        query_id: candidate_views(query_id, _rankings(in_order, query_id), relevance.get(query_id, {}))
        for query_id in report.largest_differences(queries)
    }
    return replace(report, views={query_id: shown_views(each, settings.docs) for query_id, each in views.items()})


def _rankings(runs: Mapping[str, Run], query_id: str) -> dict[str, Ranked]:
    return {name: _ranked(run, query_id) for name, run in runs.items()}


def _ranked(run: Run, query_id: str) -> Ranked:
    return run.order.get(query_id, ()), run.scores.get(query_id, ())
