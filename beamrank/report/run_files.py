"""The report of run files of any systems: what needs no stored scores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from beamrank.evaluation.compare import short_names
from beamrank.evaluation.evaluate import evaluate_one, without
from beamrank.formats.excluded import Excluded, own_facts
from beamrank.formats.notes import of_files
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import Run, read_run
from beamrank.report.report import Report, ReportSettings, chosen_baseline
from beamrank.report.views import LargestChanges, Ranked, ScoresByLabel, candidate_views, shown_views

_NOT_SHOWN = (
    "These are run files: curves, costs, truncation and passages need what `beamrank run` stores, and are left out"
)
_NO_QRELS = "No qrels are given: measures, tests and rank changes need judgments. Give --qrels"


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
    missing += [_NO_QRELS] if qrels is None else []
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
