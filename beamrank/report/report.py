"""What a report shows of a run, of run files that are compared, or of other folders: all that its sections get."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from beamrank.errors import ConfigError
from beamrank.evaluation.compare import NOT_TESTED
from beamrank.evaluation.evaluate import Evaluation
from beamrank.evaluation.significance import Comparison, compare_evaluations, corrected
from beamrank.formats.qrels import Qrels
from beamrank.formats.run_order import RunNotes
from beamrank.ranking.variants import Depths
from beamrank.report.curves import CurvePoint
from beamrank.report.drift import Drift
from beamrank.report.runs import PlanRuns
from beamrank.report.views import CandidateView, RankChange, Scores


@dataclass(frozen=True)
class ReportSettings:
    """What the user chooses.

    Attributes:
        baseline: the run that others are compared with; by default the first.
        earlier: the output of an earlier run, with which all runs are compared.
        changes: how many rank changes of each step are shown.
        queries: how many queries have a section of their own.
        docs: how many docs such a section has, beside relevant ones further below.
        texts: whether passages are shown, for which the corpus is scanned.
        curves: whether curves are made, which takes most of the time.
        depths: the points of curves.
    """

    baseline: str | None = None
    earlier: str | None = None
    changes: int = 10
    queries: int = 30
    docs: int = 10
    texts: bool = True
    curves: bool = True
    depths: Depths = field(default_factory=Depths)


@dataclass(frozen=True)
class Tested:
    """A measure of a run beside the baseline's; the corrected p-value is None unless the run is one of the steps."""

    run: str
    measure: str
    comparison: Comparison
    corrected_p_value: float | None


@dataclass(frozen=True)
class Report:
    """One run with its stages, several runs of any systems, or folders of something else.

    Attributes:
        title: the run tag and the folder, or the names of the runs.
        runs: the names of all runs: for a run of beamrank those of its finished stages and aggregations.
        steps: the runs that are shown side by side: one a stage.
        baseline: the run that others are compared with.
        measures: their names; the first decides the order of topics and is drawn.
        settings: what the user chose.
        topics: their texts by query_id; empty where they are unknown.
        execution: the run of beamrank; None for runs of other systems.
        qrels: the judgments, if there are any.
        files: the path of each run of other systems, and facts about it.
        folders: those that hold no run, and that a section of a plugin shows.
        missing: what the report lacks, and why, a line each.
        evaluations: of each run; empty without qrels.
        trial: words for a heading if only the first topics were run; else empty.
        curves: their points, by the name of the stage.
        not_drawn: measures that curves cannot have.
        changes: the largest rank changes.
        views: the candidates of the queries that have a section, by query_id.
        scores: by run and label.
        texts: of the docs that are shown.
        drift: what changed since an earlier run; None if none was given.
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
    files: Mapping[str, RunNotes] = field(default_factory=dict)
    folders: Sequence[str] = ()
    missing: Sequence[str] = ()
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    trial: str = ""
    curves: Mapping[str, Sequence[CurvePoint]] = field(default_factory=dict)
    not_drawn: Sequence[str] = ()
    changes: Sequence[RankChange] = ()
    views: Mapping[str, Sequence[CandidateView]] = field(default_factory=dict)
    scores: Mapping[str, Scores] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    drift: Drift | None = None

    @property
    def last(self) -> str:
        """The run whose differences from the baseline are shown by topic; empty without runs."""
        return self.steps[-1] if self.steps else ""

    @property
    def main_measure(self) -> str | None:
        """The first measure; None without qrels."""
        return self.measures[0] if self.evaluations else None

    @cached_property
    def differences(self) -> dict[str, float]:
        """The last run minus the baseline by the main measure, for each judged topic, smallest first."""
        if self.main_measure is None or self.last == self.baseline:
            return {}
        last, base = (self.evaluations[run].per_query for run in (self.last, self.baseline))
        values = last.of(self.main_measure) - base.of(self.main_measure)
        return dict(sorted(zip(last.ids.to_pylist(), values.tolist(), strict=True), key=lambda each: each[::-1]))

    @cached_property
    def tested(self) -> list[Tested]:
        """Each measure of each run beside the baseline's. The p-values of the steps are corrected together.

        The other runs are further aggregations of the same pairs, which nobody chose.
        """
        found = [
            (run, measure, comparison)
            for run in self.runs
            if self.evaluations and run != self.baseline
            for measure, comparison in compare_evaluations(
                self.evaluations[run], self.evaluations[self.baseline]
            ).items()
            if not measure.startswith(NOT_TESTED)
        ]
        chosen = [comparison.p_value if run in self.steps else None for run, _, comparison in found]
        return [Tested(*each, p_value) for each, p_value in zip(found, corrected(chosen, "holm"), strict=True)]

    def largest_differences(self, queries: Iterable[str]) -> list[str]:
        """The topics with the largest differences, in the order of the table; without qrels, the first of `queries`."""
        count = self.settings.queries
        if not self.differences:
            return list(islice(queries, count)) if self.runs else []
        largest = set(sorted(self.differences, key=lambda one: (-abs(self.differences[one]), one))[:count])
        return [query_id for query_id in self.differences if query_id in largest]


def chosen_baseline(name: str | None, runs: Sequence[str], where: str) -> str:
    """The run that others are compared with, by default the first; empty if there is none.

    Raises:
        ConfigError: there is no run of this name.
    """
    baseline = name or (runs[0] if runs else "")
    if baseline and baseline not in runs:
        names = ", ".join(runs) or "none: no stage is finished"
        raise ConfigError(f"--baseline {baseline!r} is not a run of {where}; its runs are {names}")
    return baseline
