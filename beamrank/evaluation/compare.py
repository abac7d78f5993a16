"""Several runs beside a baseline: their measures, tests that are corrected together, the agreement
of the rankings.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from beamrank.evaluation.evaluate import TOPICS, Evaluation, evaluate_one, topics_in_means, without
from beamrank.evaluation.measures import parse_measures
from beamrank.evaluation.significance import Comparison, compare_evaluations, corrected
from beamrank.evaluation.tables import COUNT, DIFFERENCE, MEAN, P_VALUE, Cell, Column, Table
from beamrank.formats.excluded import Excluded, own_facts
from beamrank.formats.qrels import read_qrels
from beamrank.formats.rejects import Rejects
from beamrank.formats.run_order import Run
from beamrank.formats.runs import read_run
from beamrank.formats.schemas import NO_FILE_HINTS, FileHints
from beamrank.notes import SILENT, Note, Progress, of_files
from beamrank.storage import files as storage

DocIds: TypeAlias = Sequence[str]

# The share of judged docs is not a quality of a run: it is shown, and not tested.
NOT_TESTED = "Judged"
_PERSISTENCE = 0.9
_CUTOFF = 10


class Agreement(NamedTuple):
    """How many topics two runs share, and the mean of each of `AGREEMENTS` over those for which it
    is defined.
    """

    topics: int
    means: dict[str, float | None]


def rank_biased_overlap(one: DocIds, other: DocIds, persistence: float = _PERSISTENCE) -> float:
    """Extrapolated RBO of rankings of any lengths but 0: equation 32 of Webber, Moffat and Zobel,
    2010.

    `persistence` is the paper's p; with 0.9 the first ten docs have 86 % of the weight.
    """
    short, long = sorted((len(one), len(other)))
    places = {doc_id: place for place, doc_id in enumerate(one)}
    # A doc that both hold is shared from the deeper of its two places on.
    depths = [max(places[doc_id], place) for place, doc_id in enumerate(other) if doc_id in places]
    shared = np.cumsum(np.bincount(np.asarray(depths, np.int64), minlength=long))
    depth = np.arange(1, long + 1)
    at_short, at_long = int(shared[short - 1]), int(shared[-1])
    beyond = np.where(depth > short, at_short * (depth - short) / (short * depth), 0.0)
    weights = persistence**depth
    observed = (1 - persistence) / persistence * float(np.sum(weights * (shared / depth + beyond)))
    return observed + ((at_long - at_short) / long + at_short / short) * float(persistence**long)


def kendalls_tau(one: DocIds, other: DocIds) -> float | None:
    """Kendall's tau over the docs that both hold; None for fewer than two."""
    places = {doc_id: place for place, doc_id in enumerate(one)}
    shared = [places[doc_id] for doc_id in other if doc_id in places]
    if len(shared) < 2:
        return None
    # It takes a second to import, and few commands compare runs.
    from scipy.stats import kendalltau

    return float(kendalltau(shared, np.arange(len(shared))).statistic)


def overlap(one: DocIds, other: DocIds, cutoff: int = _CUTOFF) -> float:
    """The share of the first docs of one ranking that are among the first docs of the other.

    Where both are shorter than the cutoff, the longer length counts.
    """
    return len({*one[:cutoff]} & {*other[:cutoff]}) / min(cutoff, max(len(one), len(other)))


AGREEMENTS: dict[str, Callable[[DocIds, DocIds], float | None]] = {
    "RBO": rank_biased_overlap,
    "tau": kendalls_tau,
    f"overlap@{_CUTOFF}": overlap,
}


def agreement(one: Mapping[str, DocIds], other: Mapping[str, DocIds]) -> Agreement:
    """How far two runs agree on the topics that both have."""
    topics = [query_id for query_id in one if query_id in other]
    by_method = {
        name: [method(one[query_id], other[query_id]) for query_id in topics]
        for name, method in AGREEMENTS.items()
    }
    return Agreement(len(topics), {name: mean(values) for name, values in by_method.items()})


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are defined; None if there are none."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None


@dataclass
class ComparedRun:
    """A run beside the baseline; for the baseline itself there are no differences and no agreement.

    Attributes:
        run, name: the path or URL, and what it is called.
        queries: how many topics it ranks.
        measures: the means over the judged topics; empty without qrels.
        differences: to the baseline, by measure; p is of the chosen test, None for a measure that
            is not tested.
        corrected: the p-values, corrected for all tests of all runs.
        agreement: of its rankings with the baseline's.
    """

    run: str
    name: str
    queries: int
    measures: dict[str, float]
    differences: dict[str, Comparison] = field(default_factory=dict)
    corrected: dict[str, float | None] = field(default_factory=dict)
    agreement: Agreement | None = None

    def as_object(self) -> dict[str, object]:
        """For JSON; what is undefined is null."""
        return {
            "name": self.name,
            "run": self.run,
            "queries": self.queries,
            "measures": self.measures,
            "differences": {
                name: asdict(comparison) | {"corrected_p_value": self.corrected.get(name)}
                for name, comparison in self.differences.items()
            },
            "agreement": self.agreement
            and {"queries": self.agreement.topics, **self.agreement.means},
        }

    def row(self, measure: str, mean: float | None) -> list[Cell]:
        """The mean; the difference, p, p corrected, and the topics that are better, equal and
        worse.
        """
        difference = self.differences.get(measure)
        tested: list[Cell] = [None] * 6
        if difference is not None:
            tested = difference.cells(self.corrected.get(measure))
        return [self.name, measure, mean, *tested]


@dataclass(frozen=True)
class RunComparison:
    """Runs beside a baseline, which comes first.

    Attributes:
        queries: the judged topics that means are over; None without qrels.
        judged: all judged topics.
        topics: of `evaluate.TOPICS`, the ones that means are over.
        test, correction: names in `significance.TESTS` and `significance.CORRECTIONS`.
        runs: the baseline and the others, in order.
        notes: what a user should know about the files and about what is missing.
        warnings: ids of runs and qrels that do not meet.
    """

    queries: int | None
    judged: int | None
    topics: str
    test: str
    correction: str
    runs: list[ComparedRun]
    notes: list[str]
    warnings: list[str]

    def table(self) -> Table:
        """A row for each measure and agreement of each run."""
        columns = [Column("run"), Column("measure"), Column("mean", MEAN)]
        if self.queries is not None:
            columns += tested_columns("diff", self.correction)
        rows = [
            run.row(name, run.measures[name]) for name in self.runs[0].measures for run in self.runs
        ]
        rows += [
            run.row(name, run.agreement.means[name])
            for name in AGREEMENTS
            for run in self.runs
            if run.agreement
        ]
        return Table(columns, [row[: len(columns)] for row in rows])

    def as_object(self) -> dict[str, object]:
        """For JSON; what is undefined is null."""
        return {
            "baseline": self.runs[0].run,
            "queries": self.queries,
            "judged_queries": self.judged,
            "topics": self.topics,
            "test": self.test,
            "correction": self.correction,
            "runs": [run.as_object() for run in self.runs],
        }


def tested_columns(difference: str, correction: str) -> list[Column]:
    """The columns of `Comparison.cells`."""
    p_values = [Column(name, P_VALUE) for name in ("p", f"p ({correction})")]
    counts = [Column(name, COUNT) for name in ("wins", "ties", "losses")]
    return [Column(difference, DIFFERENCE), *p_values, *counts]


def compare_runs(
    run_urls: Sequence[str],
    baseline_url: str,
    qrels_url: str | None,
    measures: Sequence[str],
    test: str = "t-test",
    correction: str = "holm",
    *,
    excluded: Excluded | None = None,
    names: Mapping[str, str] | None = None,
    agree: bool = True,
    max_bad_rows: int = 0,
    hints: FileHints = NO_FILE_HINTS,
    topics: str = TOPICS[0],
    progress: Progress = SILENT,
) -> RunComparison:
    """Compares run files with a baseline. Two runs are in memory at a time.

    Without `qrels_url` only the rankings are compared. `test` and `correction` are names in
    `significance.TESTS` and `significance.CORRECTIONS`; `names` has the runs' names by their paths,
    by default the files' names. With `agree`, the agreement of the rankings is computed. At most
    `max_bad_rows` unusable rows of each run and of the qrels are left out. `hints` say how the
    files are laid out. Means are over the topics that `topics_in_means` gives for the baseline.

    Raises:
        ConfigError: a measure is unknown (found before anything is read).
        PreflightError: a file is missing or invalid, or a run and the qrels have no topic in
            common.
    """
    tested = [
        name for name, measure in parse_measures(measures).items() if measure.NAME != NOT_TESTED
    ]
    qrels = None
    notes = ["no qrels: measures, differences and tests need judgments (--qrels)"]
    if qrels_url is not None:
        qrels = read_qrels(qrels_url, hints.qrels, Rejects("qrels", max_bad_rows))
        notes = qrels.notes.lines()
    # Notes have whole paths, where the table has room for names.
    shown = names or short_names([baseline_url, *run_urls])
    noted = names or {url: url for url in shown}
    facts: dict[str, list[Note]] = {}
    warnings: list[str] = []

    def read(url: str) -> tuple[Run, ComparedRun, Evaluation | None]:
        nonlocal qrels
        rejects = Rejects("run", max_bad_rows)
        run = read_run(url, hints=hints.run, rejects=rejects, progress=progress)
        run = without(run, excluded, qrels)
        if qrels is not None and not facts:
            qrels = topics_in_means(qrels, run, topics)
        compared = ComparedRun(url, shown[url], len(run.order), {})
        if qrels is None:
            facts[noted[url]] = [*run.notes.facts(), *own_facts(run.order)]
            return run, compared, None
        measured = evaluate_one(run, qrels, measures, f"the run {url}", f"the qrels {qrels_url}")
        facts[noted[url]] = measured.facts()
        warnings.extend(f"{noted[url]}: {line}" for line in measured.evaluation.notes.warnings)
        compared.measures = measured.evaluation.means
        return run, compared, measured.evaluation

    baseline, first, base = read(baseline_url)
    runs = [first]
    about_topics: list[str] = []
    for url in run_urls:
        run, compared, evaluation = read(url)
        if evaluation is not None and base is not None:
            compared.differences = compare_evaluations(evaluation, base, test, tested)
        if agree:
            compared.agreement = agreement(baseline.order, run.order)
            if not compared.agreement.topics:
                pair = f"{noted[url]} and {noted[baseline_url]}"
                about_topics.append(
                    f"{pair} have no topic in common: the agreement of their rankings is undefined"
                )
            elif unshared := len(run.order.keys() ^ baseline.order.keys()):
                only = "topics that only this run or the baseline has"
                about_topics.append(
                    f"{noted[url]}: {only}: {unshared:,}; the agreement leaves them out"
                )
        runs.append(compared)
    _correct(runs, tested, correction)
    notes += [
        *of_files(facts),
        *about_topics,
        *(() if base is None else _test_notes(runs, noted, tested)),
    ]
    measured, judged = (None, None) if qrels is None else (len(qrels.relevance), qrels.notes.topics)
    return RunComparison(measured, judged, topics, test, correction, runs, notes, warnings)


def _correct(runs: Sequence[ComparedRun], tested: Sequence[str], correction: str) -> None:
    places = [(run, name) for run in runs for name in run.differences if name in tested]
    p_values = corrected([run.differences[name].p_value for run, name in places], correction)
    for (run, name), p_value in zip(places, p_values, strict=True):
        run.corrected[name] = p_value


def _test_notes(
    runs: Sequence[ComparedRun], names: Mapping[str, str], tested: Sequence[str]
) -> Iterator[str]:
    baseline, *others = runs
    left_out = [name for name in baseline.measures if name not in others[0].differences]
    if left_out:
        yield (
            "not compared, because they are not means over two or more topics: "
            f"{', '.join(left_out)}"
        )
    if any(name not in tested for name in others[0].differences):
        yield f"{NOT_TESTED} is not tested: it is the share of docs that the qrels judge"
    for run in others:
        same = [
            name
            for name, comparison in run.differences.items()
            if name in tested and comparison.p_value is None
        ]
        if same:
            yield (
                f"{names[run.run]}: no topic differs from the baseline, so that p is "
                f"undefined: {', '.join(same)}"
            )


def short_names(urls: Sequence[str]) -> dict[str, str]:
    """The names of files without their folders, if these differ."""
    names = {url: storage.name(url) for url in urls}
    return names if len(set(names.values())) == len(names) else {url: url for url in urls}
