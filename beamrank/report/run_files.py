"""The report of run files of any systems: what needs no stored scores."""

from collections.abc import Iterable, Mapping, Sequence

from beamrank.evaluation.compare import short_names
from beamrank.evaluation.evaluate import evaluate_one, without
from beamrank.formats.excluded import Excluded, own_facts
from beamrank.formats.notes import of_files
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.formats.runs import Run, read_run
from beamrank.report.report import Report, ReportSettings, chosen_baseline
from beamrank.report.stored.distributions import ScoreDistributions, Scores
from beamrank.report.stored.rank_changes import CandidateView, LargestChanges, shown_views

_NOT_SHOWN = (
    "These are run files: curves, costs, truncation and passages need what `beamrank run` stores, and are left out"
)


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
    runs = {name: without(read_run(url), excluded, qrels) for url, name in names.items()}
    baseline = chosen_baseline(settings.baseline, list(runs), "these files")
    steps = [baseline, *(name for name in runs if name != baseline)]
    report = Report(", ".join(runs), list(runs), steps, steps[-1], baseline, measures, missing=[_NOT_SHOWN])
    report.files = {url: runs[name].notes for url, name in names.items()}
    report.missing += of_files({name: own_facts(run.order) for name, run in runs.items()})
    if qrels is None:
        report.missing.append("No qrels are given: measures, tests and rank changes need judgments. Give --qrels")
    else:
        for url, name in names.items():
            found = evaluate_one(runs[name], qrels, measures, f"the run {url}", f"the qrels {qrels_url}")
            report.evaluations[name] = found.evaluation
            report.missing += [f"{name}: {line}" for line in found.evaluation.notes.warnings()]
    relevance = {} if qrels is None else qrels.relevance
    report.scores = _scores(runs, relevance)
    report.changes = list(_changes(runs, qrels, steps, settings.changes).found())
    report.test_differences()
    queries = list(dict.fromkeys(query_id for run in runs.values() for query_id in run.order))
    report.views = {
        query_id: shown_views(_views(query_id, runs, steps, relevance.get(query_id, {})), settings.docs)
        for query_id in report.largest_differences(settings.queries, queries)
    }
    return report


def _scores(runs: Mapping[str, Run], relevance: Mapping[str, Mapping[str, int]]) -> Mapping[str, Scores]:
    found = ScoreDistributions()
    for name, run in runs.items():
        for query_id, doc_ids in run.order.items():
            found.add(doc_ids, relevance.get(query_id, {}), {name: run.scores[query_id]})
    return found.found()


def _changes(runs: Mapping[str, Run], qrels: Qrels | None, steps: Sequence[str], count: int) -> LargestChanges:
    found = LargestChanges([(steps[0], run) for run in steps[1:]], count)
    for query_id, judgments in qrels.relevance.items() if qrels is not None and count else ():
        found.add(_views(query_id, runs, steps, judgments, judgments))
    return found


def _views(
    query_id: str,
    runs: Mapping[str, Run],
    steps: Sequence[str],
    judgments: Mapping[str, int],
    only: Iterable[str] | None = None,
) -> list[CandidateView]:
    """The docs of a query, or only some of them, in the order of the last run; those that it lacks follow."""
    wanted = None if only is None else set(only)
    found: dict[str, CandidateView] = {}
    for name in reversed(steps):
        run = runs[name]
        for place, doc_id in enumerate(run.order.get(query_id, ())):
            if wanted is None or doc_id in wanted:
                view = found.setdefault(doc_id, CandidateView(query_id, doc_id, judgments.get(doc_id), {}, {}))
                view.ranks[name] = place + 1
                view.scores[name] = float(run.scores[query_id][place])
    return list(found.values())
