"""Evaluation: ir_measures over a run that was ordered once, so that its providers cannot disagree about ties."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from beamrank.errors import PreflightError
from beamrank.evaluation.measures import Measure, iter_values, parse_measures
from beamrank.formats.problems import first_few
from beamrank.formats.qrels import Qrels, QrelsNotes, read_qrels
from beamrank.formats.runs import Run, RunNotes, read_run

Rankings: TypeAlias = Iterable[tuple[str, Sequence[str]]]

_COUNT_JUDGMENTS = ("NumQ", "NumRel")
_TOPICS_AT_ONCE = 500


@dataclass(frozen=True)
class EvaluationNotes:
    """How the topics of the qrels, the run and the topics file fit together.

    Attributes:
        topics: how many topics the qrels judge; every mean is over these.
        not_in_run: judged topics that the run lacks.
        not_in_topics: judged topics that the topics file lacks.
        not_judged: topics of the run that the qrels lack.
    """

    topics: int
    not_in_run: tuple[str, ...]
    not_in_topics: tuple[str, ...]
    not_judged: tuple[str, ...]

    def lines(self) -> list[str]:
        """Notes for the user, a line each."""
        judged = f" of {self.topics:,}"
        found = (
            (self.not_in_topics, judged, "judged topics that are not among the topics", ""),
            (self.not_in_run, judged, "judged topics that are not in the run", "; they count as 0"),
            (self.not_judged, "", "topics of the run without judgments", "; they are left out"),
        )
        return [f"{what}: {len(ids):,}{of} ({first_few(ids)}){effect}" for ids, of, what, effect in found if ids]


@dataclass(frozen=True)
class Evaluation:
    """The measures of a run.

    Attributes:
        means: each measure's mean over all judged topics (the sum, for those that count), by its name in
            `parse_measures`.
        per_query: each judged topic's values, by query_id and measure; those of the run first, in its order.
        notes: how topics, run and qrels fit together.
    """

    means: dict[str, float]
    per_query: dict[str, dict[str, float]]
    notes: EvaluationNotes

    def rows(self) -> Iterator[tuple[str, str, float]]:
        """Each topic's values: query_id, measure, value."""
        for query_id, values in self.per_query.items():
            yield from ((query_id, name, value) for name, value in values.items())


@dataclass(frozen=True)
class RunEvaluation:
    """The measures of a run file, and notes about the file and its qrels."""

    evaluation: Evaluation
    run_notes: RunNotes
    qrels_notes: QrelsNotes

    def lines(self) -> list[str]:
        """Notes for the user, a line each."""
        return [*self.run_notes.lines(), *self.qrels_notes.lines(), *self.evaluation.notes.lines()]


class Evaluator:
    """Measures a run whose rankings arrive some queries at a time; it holds some hundred of them."""

    def __init__(self, qrels: Qrels, measures: Sequence[str]) -> None:
        """Takes the judgments, and measures as ir_measures or trec_eval names them.

        Raises:
            ConfigError: see `parse_measures`.
        """
        self._qrels = qrels
        self._measures = parse_measures(measures)
        self._defaults = {name: float(measure.DEFAULT) for name, measure in self._measures.items()}
        # Added up in the run's order, as the MS MARCO script does it, the means agree with it to the last digit.
        self._per_query: dict[str, dict[str, float]] = {}
        self._not_judged: list[str] = []
        self._waiting: dict[str, Sequence[str]] = {}

    def add(self, rankings: Rankings) -> None:
        """Takes each query's doc_ids, best first."""
        for query_id, doc_ids in rankings:
            if query_id not in self._qrels.relevance:
                self._not_judged.append(query_id)
            elif doc_ids:
                self._waiting[query_id] = doc_ids
            if len(self._waiting) == _TOPICS_AT_ONCE:
                self._measure_waiting()

    def evaluation(self, topics: Collection[str] | None = None, *, by_id: bool = False) -> Evaluation:
        """The measures over all topics of the qrels.

        Args:
            topics: the query_ids that were to be run, to report which judged ones are not among them.
            by_id: whether queries are sorted by id, and not in the order in which they were added. Means are sums of
                floats, whose last digits depend on it.
        """
        self._measure_waiting()
        missing = [query_id for query_id in self._qrels.relevance if query_id not in self._per_query]
        self._fill({query_id: {} for query_id in missing}, _COUNT_JUDGMENTS)
        rows = dict(sorted(self._per_query.items())) if by_id else self._per_query
        notes = EvaluationNotes(
            topics=len(rows),
            not_in_run=tuple(missing),
            not_in_topics=() if topics is None else tuple(sorted(set(rows).difference(topics))),
            not_judged=tuple(self._not_judged),
        )
        values = {name: [row[name] for row in rows.values()] for name in self._measures}
        means = {name: _aggregate(measure, values[name]) for name, measure in self._measures.items()}
        return Evaluation(means, rows, notes)

    def _measure_waiting(self) -> None:
        self._fill({one: _scored(doc_ids) for one, doc_ids in self._waiting.items()})
        self._waiting.clear()

    def _fill(self, scored: dict[str, dict[str, float]], only: Collection[str] | None = None) -> None:
        """Adds the rows of some queries: each measure's default, then its value (only of measures with these names)."""
        names: dict[Measure, list[str]] = {}
        for name, measure in self._measures.items():
            if only is None or measure.NAME in only:
                names.setdefault(measure, []).append(name)
        self._per_query.update({query_id: dict(self._defaults) for query_id in scored})
        if scored and names:
            relevance = {query_id: self._qrels.relevance[query_id] for query_id in scored}
            for query_id, measure, value in iter_values(list(names), relevance, scored):
                self._per_query[query_id].update(dict.fromkeys(names[measure], value))


def evaluate(
    rankings: Rankings, qrels: Qrels, measures: Sequence[str], topics: Collection[str] | None = None
) -> Evaluation:
    """Measures a run in the order given.

    The means are over all topics of the qrels, as with trec_eval's -c: a topic that the run lacks counts as 0. Docs
    without judgment, or with a negative one, count as in trec_eval.

    Args:
        rankings: each query's doc_ids, best first; read once.
        qrels: the judgments.
        measures: names, as ir_measures or trec_eval writes them.
        topics: the query_ids that were to be run, to report which judged ones are not among them.

    Raises:
        ConfigError: see `parse_measures`.
    """
    evaluator = Evaluator(qrels, measures)
    evaluator.add(rankings)
    return evaluator.evaluation(topics)


def evaluate_run_files(run_urls: Sequence[str], qrels_url: str, measures: Sequence[str]) -> list[RunEvaluation]:
    """Measures several run files against a qrels file, which is read once.

    Raises:
        ConfigError: a measure is unknown (found before anything is read).
        PreflightError: a file is missing or invalid, or a run and the qrels have no topic in common.
    """
    parse_measures(measures)
    qrels = read_qrels(qrels_url)
    return [
        evaluate_one(read_run(run_url), qrels, measures, f"the run {run_url}", f"the qrels {qrels_url}")
        for run_url in run_urls
    ]


def evaluate_one(run: Run, qrels: Qrels, measures: Sequence[str], run_name: str, qrels_name: str) -> RunEvaluation:
    """Measures a run; the names are for errors.

    Raises:
        PreflightError: the run and the qrels have no topic in common.
    """
    evaluation = evaluate(run.order.items(), qrels, measures)
    if len(evaluation.notes.not_in_run) == evaluation.notes.topics:
        raise PreflightError(
            f"{run_name} and {qrels_name} have no topic in common: "
            f"the run's first is {next(iter(run.order))!r}, the qrels' {next(iter(qrels.relevance))!r}"
        )
    return RunEvaluation(evaluation, run.notes, qrels.notes)


def _scored(doc_ids: Sequence[str]) -> dict[str, float]:
    """Scores that are distinct in float32 too."""
    return {doc_id: float(len(doc_ids) - position) for position, doc_id in enumerate(doc_ids)}


def _aggregate(measure: Measure, values: Sequence[float]) -> float:
    aggregator = measure.aggregator()
    for value in values:
        aggregator.add(value)
    return float(aggregator.result())
