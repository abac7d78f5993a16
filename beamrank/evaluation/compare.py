"""Several runs beside a baseline: their measures, tests that are corrected together, the agreement of the rankings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from beamrank.evaluation import agreement
from beamrank.evaluation.agreement import Agreement
from beamrank.evaluation.evaluate import Evaluation, evaluate_one, without
from beamrank.evaluation.measures import parse_measures
from beamrank.evaluation.significance import TESTS, Comparison, compare_evaluations, corrected
from beamrank.evaluation.tables import COUNT, DIFFERENCE, MEAN, P_VALUE, Cell, Column, Table
from beamrank.formats.excluded import Excluded, own_facts
from beamrank.formats.notes import Note, of_files
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.formats.runs import Run, read_run
from beamrank.progress import SILENT, Progress
from beamrank.storage import files as storage

# The share of judged docs is not a quality of a run: it is shown, and not tested.
_NOT_TESTED = "Judged"


@dataclass(frozen=True)
class Difference:
    """A measure of a run beside the baseline's.

    Attributes:
        comparison: means, difference, interval, topics that are better, equal and worse.
        p_value: of the chosen test; None if it is undefined or the measure is not tested.
        corrected_p_value: corrected for all tests of all runs.
    """

    comparison: Comparison
    p_value: float | None
    corrected_p_value: float | None


@dataclass(frozen=True)
class ComparedRun:
    """A run beside the baseline; for the baseline itself there are no differences and no agreement.

    Attributes:
        run: the path or URL.
        queries: how many topics it ranks.
        measures: the means over the judged topics; empty without qrels.
        differences: to the baseline, by measure.
        agreement: of its rankings with the baseline's.
    """

    run: str
    queries: int
    measures: dict[str, float]
    differences: dict[str, Difference]
    agreement: Agreement | None


@dataclass(frozen=True)
class RunComparison:
    """Runs beside a baseline, which comes first.

    Attributes:
        baseline: its path or URL.
        queries: the judged topics; None without qrels.
        test: a name in `significance.TESTS`.
        correction: a name in `significance.CORRECTIONS`.
        runs: the baseline and the others, in the order given.
        notes: what a user should know about the files and about what is missing.
        warnings: ids of runs and qrels that do not meet.
        names: of the runs, by their paths.
    """

    baseline: str
    queries: int | None
    test: str
    correction: str
    runs: list[ComparedRun]
    notes: list[str]
    warnings: list[str]
    names: Mapping[str, str]

    def table(self) -> Table:
        """A row for each measure and agreement of each run."""
        columns = [Column("run"), Column("measure"), Column("mean", MEAN)]
        if self.queries is None:
            return Table(columns, [row[: len(columns)] for row in self._rows()])
        columns += [
            Column("diff", DIFFERENCE),
            Column("p", P_VALUE),
            Column(f"p ({self.correction})", P_VALUE),
            *(Column(name, COUNT) for name in ("wins", "ties", "losses")),
        ]
        return Table(columns, list(self._rows()))

    def _rows(self) -> Iterator[list[Cell]]:
        for measure in self.runs[0].measures:
            for each in self.runs:
                yield [self.names[each.run], measure, each.measures[measure], *_cells(each.differences.get(measure))]
        for method in agreement.METHODS:
            for each in self.runs:
                if each.agreement is not None:
                    yield [self.names[each.run], method, each.agreement.means[method], *_cells(None)]

    def as_object(self) -> dict[str, object]:
        """For JSON; what is undefined is null."""
        return {
            "baseline": self.baseline,
            "queries": self.queries,
            "test": self.test,
            "correction": self.correction,
            "runs": [{"name": self.names[each.run], **_run_object(each)} for each in self.runs],
        }


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
    progress: Progress = SILENT,
) -> RunComparison:
    """Compares run files with a baseline. Two runs are in memory at a time.

    Args:
        run_urls: the other runs.
        baseline_url: the baseline.
        qrels_url: the judgments; without them only the rankings are compared.
        measures: names, as ir_measures or trec_eval writes them.
        test: a name in `significance.TESTS`.
        correction: a name in `significance.CORRECTIONS`.
        excluded: the docs that are left out.
        names: of the runs, by their paths; default: those of the files.
        agree: whether the agreement of the rankings is computed.
        progress: receives the rows that are read.

    Raises:
        ConfigError: a measure is unknown (found before anything is read).
        PreflightError: a file is missing or invalid, or a run and the qrels have no topic in common.
    """
    tested = [name for name, measure in parse_measures(measures).items() if measure.NAME != _NOT_TESTED]
    qrels = None if qrels_url is None else read_qrels(qrels_url)
    notes = ["no qrels: measures, differences and tests need judgments (--qrels)"] if qrels is None else []
    notes += [] if qrels is None else qrels.notes.lines()
    urls = [baseline_url, *run_urls]
    shown = names or {url: url for url in urls}
    facts: dict[str, list[Note]] = {}
    warnings: list[str] = []

    def read(url: str) -> tuple[Run, Evaluation | None]:
        run = without(read_run(url, progress=progress), excluded, qrels)
        if qrels is None:
            facts[shown[url]] = [*run.notes.facts(), *own_facts(run.order)]
            return run, None
        found = evaluate_one(run, qrels, measures, f"the run {url}", f"the qrels {qrels_url}")
        facts[shown[url]] = found.facts()
        warnings.extend(f"{shown[url]}: {line}" for line in found.evaluation.notes.warnings())
        return run, found.evaluation

    baseline, base = read(baseline_url)
    about_topics: list[str] = []
    runs = [ComparedRun(baseline_url, len(baseline.order), {} if base is None else base.means, {}, None)]
    for url in run_urls:
        run, found = read(url)
        differences = {} if found is None or base is None else _differences(found, base, tested, test)
        agreed = agreement.agreement(baseline.order, run.order) if agree else None
        if agreed is not None:
            about_topics += _topic_notes(shown[url], run, shown[baseline_url], baseline, agreed)
        runs.append(ComparedRun(url, len(run.order), {} if found is None else found.means, differences, agreed))
    notes += [*of_files(facts), *about_topics]
    if base is not None:
        notes += _test_notes(runs, shown, base, tested)
    found_runs = _corrected(runs, tested, correction)
    return RunComparison(
        baseline_url, _judged(qrels), test, correction, found_runs, notes, warnings, names or short_names(urls)
    )


def _judged(qrels: Qrels | None) -> int | None:
    return None if qrels is None else len(qrels.relevance)


def _differences(run: Evaluation, baseline: Evaluation, tested: Sequence[str], test: str) -> dict[str, Difference]:
    found = {}
    for name, comparison in compare_evaluations(run, baseline).items():
        values, others = (
            np.array([each.per_query[query_id][name] for query_id in run.per_query]) for each in (run, baseline)
        )
        found[name] = Difference(comparison, TESTS[test](values, others) if name in tested else None, None)
    return found


def _corrected(runs: Sequence[ComparedRun], tested: Sequence[str], correction: str) -> list[ComparedRun]:
    """The runs with p-values that are corrected for the tests of all runs and measures."""
    places = [(run, name) for run in range(len(runs)) for name in runs[run].differences if name in tested]
    adjusted = corrected([runs[run].differences[name].p_value for run, name in places], correction)
    by_place = dict(zip(places, adjusted, strict=True))
    return [
        ComparedRun(
            each.run,
            each.queries,
            each.measures,
            {
                name: Difference(found.comparison, found.p_value, by_place.get((run, name)))
                for name, found in each.differences.items()
            },
            each.agreement,
        )
        for run, each in enumerate(runs)
    ]


def _topic_notes(url: str, run: Run, baseline_url: str, baseline: Run, agreed: Agreement) -> Iterator[str]:
    if not agreed.topics:
        yield f"{url} and {baseline_url} have no topic in common: the agreement of their rankings is undefined"
    elif alone := len(run.order.keys() ^ baseline.order.keys()):
        yield f"{url}: topics that only this run or the baseline has: {alone:,}; the agreement leaves them out"


def _test_notes(
    runs: Sequence[ComparedRun], names: Mapping[str, str], baseline: Evaluation, tested: Sequence[str]
) -> Iterator[str]:
    _, *others = runs
    left_out = [name for name in baseline.means if name not in others[0].differences]
    if left_out:
        yield f"not compared, because they are not means over two or more topics: {', '.join(left_out)}"
    if any(name not in tested for name in others[0].differences):
        yield f"{_NOT_TESTED} is not tested: it is the share of docs that the qrels judge"
    for each in others:
        same = [name for name, found in each.differences.items() if name in tested and found.p_value is None]
        if same:
            yield f"{names[each.run]}: no topic differs from the baseline, so that p is undefined: {', '.join(same)}"


def short_names(urls: Sequence[str]) -> dict[str, str]:
    """The names of files without their folders, if these differ."""
    names = {url: storage.name(url) for url in urls}
    return names if len(set(names.values())) == len(names) else {url: url for url in urls}


def _cells(found: Difference | None) -> list[Cell]:
    if found is None:
        return [None] * 6
    counts = (found.comparison.better, found.comparison.equal, found.comparison.worse)
    return [found.comparison.difference, found.p_value, found.corrected_p_value, *counts]


def _run_object(each: ComparedRun) -> dict[str, object]:
    differences = {
        name: {
            **asdict(found.comparison),
            "p_value": found.p_value,
            "corrected_p_value": found.corrected_p_value,
        }
        for name, found in each.differences.items()
    }
    agreed = None if each.agreement is None else {"queries": each.agreement.topics, **each.agreement.means}
    return {
        "run": each.run,
        "queries": each.queries,
        "measures": each.measures,
        "differences": differences,
        "agreement": agreed,
    }
