"""Everything that a report shows of one run, gathered in one pass over its parts and one scan of its corpus."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from beamrank.config.run import RunConfig
from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation.evaluate import Evaluation
from beamrank.evaluation.significance import Comparison, compare_evaluations, corrected
from beamrank.formats.corpora.texts import find_texts
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.report.curves import CurvePoint, Curves, CurveSettings
from beamrank.report.positions import supported
from beamrank.report.rank_changes import CandidateView, LargestChanges, RankChange, candidate_views
from beamrank.report.stage_measures import StageMeasures, stored_aggregations
from beamrank.report.stored_scores import Floats, StoredQuery, finished_stages, iter_stored, read_shard
from beamrank.stages.plan import Plan
from beamrank.stages.receipts import Receipt
from beamrank.stages.status import StageStatus, read_receipts, read_status

JUDGED = "Judged@10"


@dataclass(frozen=True)
class ReportSettings:
    """What the user chooses.

    Attributes:
        baseline: the run that others are compared with; by default the first stage's.
        changes: how many rank changes of each step are shown.
        queries: how many queries have a section of their own.
        docs: how many docs such a section has.
        texts: whether passages are shown, for which the corpus is scanned.
        curves: whether curves are made, which takes most of the time.
        k0s, k1s, opponents, trials: see `CurveSettings.of`.
    """

    baseline: str | None = None
    changes: int = 10
    queries: int = 30
    docs: int = 10
    texts: bool = True
    curves: bool = True
    k0s: tuple[int, ...] = ()
    k1s: tuple[int, ...] = ()
    opponents: tuple[int, ...] = ()
    trials: int = 10


@dataclass(frozen=True)
class Tested:
    """A measure of a run beside the baseline's, with the p-value corrected over the whole table."""

    run: str
    measure: str
    comparison: Comparison
    corrected_p_value: float | None


@dataclass
class RunReport:
    """One run.

    Attributes:
        title: the run tag and the folder.
        runs: the names of the runs of the finished stages: first stage, mono, duo by each aggregation.
        last: the run of the last finished stage, with the configured aggregation.
        missing: what the report lacks, and why, a line each.
        evaluations: of each run; empty without qrels.
        tested: each measure of each run beside the baseline.
        points: of the curves.
        not_drawn: measures that curves cannot have.
        changes: the largest rank changes.
        views: the candidates of the queries that have a section, by query_id.
        scores: of the first stage and of mono, by run and label; None is the label of unjudged docs.
        texts: of the docs that are shown.
    """

    title: str
    plan: Plan
    config: RunConfig
    statuses: list[StageStatus]
    receipts: Mapping[str, Mapping[int, Receipt]]
    runs: list[str]
    last: str
    baseline: str
    missing: list[str] = field(default_factory=list)
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    tested: list[Tested] = field(default_factory=list)
    points: list[CurvePoint] = field(default_factory=list)
    not_drawn: list[str] = field(default_factory=list)
    changes: list[RankChange] = field(default_factory=list)
    views: dict[str, list[CandidateView]] = field(default_factory=dict)
    scores: dict[str, dict[int | None, Floats]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> dict[str, str]:
        """The texts of the topics."""
        return {topic.query_id: topic.text for topic in self.plan.topics}

    @property
    def main_measure(self) -> str | None:
        """The first measure; None without qrels."""
        return self.config.measures[0] if self.evaluations else None

    def steps(self) -> list[str]:
        """One run a stage: the first stage's, mono's, and duo's with the configured aggregation."""
        return [*self.runs[:2], *([self.last] if self.last not in self.runs[:2] else [])]

    def differences(self) -> dict[str, float]:
        """The last run minus the baseline by the main measure, for each judged topic, smallest first."""
        if self.main_measure is None or self.last == self.baseline:
            return {}
        last, base = (self.evaluations[run].per_query for run in (self.last, self.baseline))
        found = {one: last[one][self.main_measure] - base[one][self.main_measure] for one in last}
        return dict(sorted(found.items(), key=lambda each: (each[1], each[0])))


def gather(plan: Plan, config: RunConfig, settings: ReportSettings) -> RunReport:
    """Reads what a run has finished, and the corpus at most once.

    Args:
        plan: of the run.
        config: its configuration.
        settings: what is shown.

    Raises:
        ConfigError: the baseline is no run of a finished stage.
    """
    report = _empty(plan, config, settings)
    aggregations = stored_aggregations(config)
    qrels = _read_qrels(report)
    _gather_scores(report, qrels, settings, aggregations)
    report.tested = _tested(report)
    chosen = _chosen_queries(report, settings.queries)
    for queries in iter_stored(plan, config) if chosen else ():
        for query in queries:
            if query.query_id in chosen:
                judgments = qrels.relevance.get(query.query_id, {}) if qrels else {}
                report.views[query.query_id] = candidate_views(query, judgments, report.runs, aggregations)
    report.views = {
        query_id: report.views[query_id][: settings.docs] for query_id in chosen if query_id in report.views
    }
    if settings.texts:
        report.texts = _texts(report)
    return report


def query_candidates(plan: Plan, config: RunConfig, query_id: str) -> list[CandidateView]:
    """The candidates of one query; reads its shard alone."""
    finished, runs = finished_stages(plan), finished_runs(plan, config)
    judgments = {} if config.qrels is None else read_qrels(config.qrels).relevance.get(query_id, {})
    shard = next(shard for shard in plan.shards if query_id in {topic.query_id for topic in shard.topics})
    queries = read_shard(plan, config, finished, shard.index) if runs else []
    return [
        view
        for query in queries
        if query.query_id == query_id
        for view in candidate_views(query, judgments, runs, stored_aggregations(config))
    ]


def finished_runs(plan: Plan, config: RunConfig) -> list[str]:
    """The names of the runs that the finished stages give, in the order of `stage_orders`."""
    finished = finished_stages(plan)
    found = [finished["candidates"][0].run_name or "candidates"] if "candidates" in finished else []
    found += ["mono"] if found and "mono" in finished else []
    found += [f"duo-{name}" for name in stored_aggregations(config)] if len(found) == 2 and "duo" in finished else []
    return found


def _empty(plan: Plan, config: RunConfig, settings: ReportSettings) -> RunReport:
    runs = finished_runs(plan, config)
    last = f"duo-{config.duo.aggregation}" if config.duo and len(runs) > 2 else runs[-1] if runs else ""
    baseline = settings.baseline or (runs[0] if runs else "")
    if baseline and baseline not in runs:
        known = ", ".join(runs) or "none: no stage is finished"
        raise ConfigError(f"--baseline {baseline!r} is no run of {plan.output}; its runs are {known}")
    statuses = read_status(plan)
    report = RunReport(
        f"{plan.run_tag}: {plan.output}", plan, config, statuses, read_receipts(plan), runs, last, baseline
    )
    unfinished = [each for each in statuses if not each.finished]
    report.missing += [
        f"{each.stage} is not finished ({each.done:,} of {each.shards:,} shards): what needs it is left out. "
        "Run the same `beamrank run` again, which resumes"
        for each in unfinished
    ]
    return report


def _read_qrels(report: RunReport) -> Qrels | None:
    if report.config.qrels is None:
        report.missing.append(
            "The run has no qrels: measures, tests, curves and rank changes of judged docs need judgments. Give "
            "`qrels` in the configuration, or --qrels"
        )
        return None
    qrels = read_qrels(report.config.qrels)
    return qrels.of_topics({topic.query_id for topic in report.plan.topics}) if report.plan.limited else qrels


def _gather_scores(
    report: RunReport, qrels: Qrels | None, settings: ReportSettings, aggregations: Sequence[str]
) -> None:
    config = report.config
    kept: dict[str, dict[int | None, list[Floats]]] = {}
    changes = LargestChanges(report.steps(), settings.changes)
    chosen = [] if config.duo is None else [config.duo.aggregation]
    measures = None if qrels is None else StageMeasures(qrels, report_measures(config), report.runs, aggregations)
    fast, report.not_drawn = supported(config.measures)
    curves = None
    if qrels is not None and settings.curves:
        wanted = CurveSettings.of(config, settings.k0s, settings.k1s, settings.opponents, settings.trials)
        curves = Curves(qrels, fast, wanted)
    for queries in iter_stored(report.plan, config):
        for query in queries:
            judgments = {} if qrels is None else qrels.relevance.get(query.query_id, {})
            _keep_scores(kept, query, judgments, report.runs)
            if judgments and settings.changes:
                changes.add(candidate_views(query, judgments, report.steps(), chosen, judgments))
        if measures is not None:
            measures.add(queries)
        if curves is not None:
            curves.add(queries)
    report.scores = {
        run: {label: np.concatenate(parts) for label, parts in by_label.items()} for run, by_label in kept.items()
    }
    report.changes = list(changes.found())
    if measures is not None and report.runs:
        report.evaluations = measures.evaluations(report.topics)
    if curves is not None:
        report.points = list(curves.points())


def report_measures(config: RunConfig) -> list[str]:
    """The configured measures, and how many of the first ten docs are judged."""
    return list(dict.fromkeys([*config.measures, JUDGED]))


def _keep_scores(
    kept: dict[str, dict[int | None, list[Floats]]],
    query: StoredQuery,
    judgments: Mapping[str, int],
    runs: Sequence[str],
) -> None:
    labels = np.array([judgments.get(doc_id, np.nan) for doc_id in query.doc_ids])
    for run, scores in zip(runs, (query.first_scores, query.mono_scores), strict=False):
        if scores is None:
            continue
        for label in np.unique(labels):
            unjudged = bool(np.isnan(label))
            chosen = scores[np.isnan(labels) if unjudged else labels == label].astype(np.float32)
            found = chosen[~np.isnan(chosen)].astype(np.float64)
            kept.setdefault(run, {}).setdefault(None if unjudged else int(label), []).append(found)


def _tested(report: RunReport) -> list[Tested]:
    found = [
        (run, measure, comparison)
        for run in report.runs
        if report.evaluations and run != report.baseline
        for measure, comparison in compare_evaluations(
            report.evaluations[run], report.evaluations[report.baseline]
        ).items()
    ]
    # How many docs the qrels judge is no quality of a run: it is shown, and not tested.
    tested = [each for each in found if not each[1].startswith("Judged")]
    adjusted = corrected([comparison.p_value for *_, comparison in tested], "holm")
    return [Tested(*each, p_value) for each, p_value in zip(tested, adjusted, strict=True)]


def _chosen_queries(report: RunReport, count: int) -> list[str]:
    """The queries with the largest differences, in the order of the table; without qrels, the first ones."""
    differences = report.differences()
    if not differences:
        return list(report.topics)[:count] if report.runs else []
    largest = sorted(differences, key=lambda one: (-abs(differences[one]), one))[:count]
    return [query_id for query_id in differences if query_id in set(largest)]


def _texts(report: RunReport) -> Mapping[str, str]:
    try:
        return find_texts(report.config.corpus, {view.doc_id for view in _shown(report)})
    except PreflightError as error:
        report.missing.append(f"No passages are shown: {error}")
        return {}


def _shown(report: RunReport) -> Iterator[CandidateView]:
    yield from (change.candidate for change in report.changes)
    for views in report.views.values():
        yield from views
