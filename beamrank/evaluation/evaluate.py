"""Evaluation: ir_measures over a run that was ordered once, so that its providers cannot disagree
about ties.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ir_measures.measures import SumAgg

from beamrank.errors import PreflightError
from beamrank.evaluation.measures import (
    Floats,
    Measure,
    Positions,
    by_position,
    differs_in_version_9,
    iter_values,
    judged_positions,
    parse_measures,
)
from beamrank.formats.excluded import Excluded, own_facts
from beamrank.formats.id_places import IdMapping, IdPlaces, missing_ids
from beamrank.formats.qrels import Qrels, QrelsNotes, read_qrels
from beamrank.formats.rejects import Rejects
from beamrank.formats.run_order import Run, RunNotes
from beamrank.formats.runs import read_run
from beamrank.formats.schemas import NO_FILE_HINTS, FileHints
from beamrank.notes import Note, first_few
from beamrank.records import Relevance

Rankings: TypeAlias = Iterable[tuple[str, Sequence[str]]]

TOPICS = "qrels", "run"
_COUNT_JUDGMENTS = ("NumQ", "NumRel")
_TOPICS_AT_ONCE = 500
# Below these shares of the judged topics, the ids of a run and its qrels do not meet.
_FEWEST_TOPICS, FEWEST_RANKING_JUDGED = 0.5, 0.05
_SHOWN = 3
_SMART = (
    ". Qrels of a SMART collection, such as Cranfield, may number the topics in their order: "
    "`topics.ids: order` gives them these ids"
)


@dataclass(frozen=True)
class EvaluationNotes:
    """How the topics of the qrels, the run and the topics file fit together.

    Attributes:
        topics: how many topics the qrels judge; every mean is over these.
        not_in_run: judged topics that the run lacks.
        missing: a note about them, if there are any.
        others: further notes for the user.
        warnings: what makes the means wrong, unless it is meant: ids of the run and of the qrels
            that do not meet.
    """

    topics: int
    not_in_run: tuple[str, ...]
    missing: tuple[Note, ...]
    others: tuple[Note, ...]
    warnings: tuple[str, ...]

    def facts(self) -> list[Note]:
        """Notes for the user."""
        return [*self.missing, *self.others]

    def lines(self) -> list[str]:
        """Notes for the user, a line each."""
        return list(map(str, self.facts()))


class TopicValues(IdMapping[Mapping[str, float]]):
    """The values of each judged topic, by query_id and measure, in one array."""

    def __init__(
        self, judged: IdPlaces, order: Positions, names: Sequence[str], values: Floats
    ) -> None:
        """Takes the judged topics, the order in which they are read, and values: float64[topics,
        measures].
        """
        super().__init__(
            judged, lambda place: dict(zip(self._names, values[place].tolist(), strict=True)), order
        )
        self._names, self._values = list(names), values

    @property
    def table(self) -> Any:
        """The values in their order as an Arrow table: query_id, and a column for each measure."""
        order = pa.array(self.order)
        columns = [
            self.ids.take(order),
            *(pa.array(self.of(name)).take(order) for name in self._names),
        ]
        return pa.table(columns, ["query_id", *self._names])

    def of(self, name: str) -> Floats:
        """A measure's values, in the order of the qrels: float64[topics]."""
        return np.asarray(self._values[:, self._names.index(name)])


class ExactSum:
    """Sums of values from 0 to 1, as whole numbers of 2**-62: the same for any order of up to 2**32
    values.
    """

    _HALF = 1 << 31

    def __init__(self) -> None:
        self._high: Any = 0
        self._low: Any = 0

    def add(self, values: Floats) -> None:
        """Takes one value of each sum: float64[p]."""
        high = np.floor(values * self._HALF)
        self._high = self._high + high.astype(np.int64)
        self._low = self._low + np.rint((values * self._HALF - high) * self._HALF).astype(np.int64)

    def over(self, count: int) -> Floats:
        """The sums, divided by a number and rounded once: float64[p]."""
        parts = zip(self._high.tolist(), self._low.tolist(), strict=True)
        return np.array(
            [(high * self._HALF + low) / (count * self._HALF**2) for high, low in parts]
        )


def aggregate(measure: Measure, values: Floats) -> float:
    """The mean of a measure, or the sum of one that counts; exact but for one rounding, so in any
    order the same.
    """
    total = math.fsum(values)
    return (
        total
        if isinstance(measure.aggregator(), SumAgg)
        else total / len(values)
        if len(values)
        else math.nan
    )


@dataclass(frozen=True)
class Evaluation:
    """The measures of a run.

    Attributes:
        means: each measure's mean over all judged topics (the sum, for measures that count), by its
            name in `parse_measures`.
        per_query: each judged topic's values, by query_id and measure; the run's topics first, in
            its order.
        notes: how topics, run and qrels fit together.
    """

    means: dict[str, float]
    per_query: TopicValues
    notes: EvaluationNotes

    def rows(self) -> Iterator[tuple[str, str, float]]:
        """Each topic's values: query_id, measure, value."""
        for query_id, values in self.per_query.items():
            yield from ((query_id, name, value) for name, value in values.items())


class RunEvaluation(NamedTuple):
    """The measures of a run file, and notes about the file, its qrels and queries that are docs."""

    evaluation: Evaluation
    run_notes: RunNotes
    qrels_notes: QrelsNotes
    own: tuple[Note, ...] = ()

    def facts(self) -> list[Note]:
        """Notes for the user about the run."""
        measured, judged = self.evaluation.notes.topics, self.qrels_notes.topics
        some = Note("judged topics in the means", f"{measured:,} of {judged:,}")
        only = [some] if measured < judged else []
        return [*self.run_notes.facts(), *only, *self.evaluation.notes.facts(), *self.own]

    def lines(self) -> list[str]:
        """Notes for the user about the run and its qrels, a line each."""
        return [*self.qrels_notes.lines(), *map(str, self.facts())]


# A ranking that is not measured yet: the place of its topic among the judged ones, its docs, and
# their judgments.
_Waiting: TypeAlias = tuple[int, Sequence[str], Mapping[str, int]]


class Evaluator:
    """Evaluates a run incrementally, buffering up to 500 queries."""

    def __init__(self, qrels: Qrels, measures: Sequence[str], *, fast: bool = False) -> None:
        """Takes the judgments, and measures as ir_measures or trec_eval names them.

        With `fast`, measures are computed from the positions of judged docs where these suffice:
        much faster, and the same but for the last digits.
        """
        self._relevance = qrels.relevance
        self._measures = parse_measures(measures)
        fast_names = by_position(measures)[0] if fast else {}
        self._fast: list[tuple[int, Measure]] = []
        self._columns: dict[Measure, list[int]] = {}
        for column, (name, measure) in enumerate(self._measures.items()):
            if name in fast_names:
                self._fast.append((column, measure))
            else:
                self._columns.setdefault(measure, []).append(column)
        defaults = [float(measure.DEFAULT) for measure in self._measures.values()]
        self._values = np.tile(np.array(defaults, np.float64), (len(self._relevance), 1))
        self._order = array("q")
        self._in_run = np.zeros(len(self._relevance), np.bool_)
        self._waiting: dict[str, _Waiting] = {}
        self._first_topics: list[str] = []
        self._not_judged, self._first_not_judged = 0, list[str]()
        self._ranking_judged = 0
        self._ranking_none: tuple[str, ...] = ()

    def add(self, rankings: Rankings) -> None:
        """Takes each query's doc_ids, best first."""
        for query_id, doc_ids in rankings:
            if len(self._first_topics) < _SHOWN:
                self._first_topics.append(query_id)
            place = self._relevance.places.find(query_id)
            if place is None:
                self._not_judged += 1
                # One more than is shown: it says that there are more.
                self._first_not_judged += [query_id] * (self._not_judged <= _SHOWN + 1)
            elif doc_ids:
                self._take(query_id, place, doc_ids)

    def _take(self, query_id: str, place: int, doc_ids: Sequence[str]) -> None:
        judged = self._relevance.at(place)
        if not judged.keys().isdisjoint(doc_ids):
            self._ranking_judged += 1
        elif not self._ranking_none:
            self._ranking_none = query_id, first_few(doc_ids), first_few(judged)
        if not self._in_run[place]:
            self._in_run[place] = True
            self._order.append(place)
        if self._fast:
            positions = judged_positions(judged, doc_ids, lambda indices: indices[:, None] + 1)
            for column, measure in self._fast:
                self._values[place, column] = positions.values(measure)[0]
        if self._columns:
            self._waiting[query_id] = place, doc_ids, judged
            if len(self._waiting) == _TOPICS_AT_ONCE:
                self._measure_waiting()

    def evaluation(
        self, topics: Collection[str] | Any = None, *, by_id: bool = False
    ) -> Evaluation:
        """The measures over all topics of the qrels.

        Args:
            topics: the query_ids that were to be run, a column or a collection: the notes have
                judged ones that are not among them.
            by_id: whether queries are sorted by id, and not in the order in which they were added.
        """
        self._measure_waiting()
        missing = np.flatnonzero(~self._in_run)
        self._count_judgments(missing)
        ids = self._relevance.ids
        order = (
            pc.sort_indices(ids).to_numpy()
            if by_id
            else np.concatenate([np.array(self._order, np.int64), missing])
        )
        values = TopicValues(self._relevance.places, order, list(self._measures), self._values)
        means = {
            name: aggregate(measure, values.of(name)) for name, measure in self._measures.items()
        }
        return Evaluation(
            means, values, self._notes(tuple(ids.take(pa.array(missing)).to_pylist()), topics)
        )

    def _notes(self, not_in_run: tuple[str, ...], topics: Collection[str] | Any) -> EvaluationNotes:
        judged, in_run = len(self._relevance), len(self._order)
        lacks = first_few(not_in_run)
        where = f"{len(not_in_run):,} of {judged:,} ({lacks})"
        missing = Note("judged topics that are not in the run", where, "they count as 0")
        others = []
        not_in_topics = [] if topics is None else sorted(missing_ids(self._relevance.ids, topics))
        if not_in_topics:
            where = f"{len(not_in_topics):,} of {judged:,} ({first_few(not_in_topics)})"
            others.append(Note("judged topics that are not among the topics", where))
        if self._not_judged:
            where = f"{self._not_judged:,} ({first_few(self._first_not_judged)})"
            others.append(Note("topics of the run without judgments", where, "they are left out"))
        if of_version_10 := differs_in_version_9(self._measures, self._relevance):
            why = (
                "trec_eval 9 rounds the number of relevant docs of a recall otherwise, so its "
                "values can differ"
            )
            others.append(Note("computed as in trec_eval 10", ", ".join(of_version_10), why))
        warnings = []
        if in_run < _FEWEST_TOPICS * judged:
            warnings.append(
                f"judged topics that are in the run: {in_run:,} of {judged:,}; the others count "
                "as 0 in every mean. The first topics of the run are "
                f"{first_few(self._first_topics)}; it lacks {lacks}. Measure a trial over its "
                "own topics (`--topics run` of eval and compare)"
            )
        if self._ranking_judged < FEWEST_RANKING_JUDGED * in_run:
            query_id, doc_ids, relevant = self._ranking_none
            warnings.append(
                f"judged topics of the run that rank any judged doc: {self._ranking_judged:,} of "
                f"{in_run:,}. Topic {query_id!r} has {doc_ids}; judged are {relevant}. Give the "
                "qrels of these topics and docs"
            )
        if warnings and all(
            query_id.isdecimal() and int(query_id[:19]) <= in_run + self._not_judged
            for query_id in self._relevance
        ):
            warnings = [f"{warning}{_SMART}" for warning in warnings]
        return EvaluationNotes(
            topics=judged,
            not_in_run=not_in_run,
            missing=(missing,) if not_in_run else (),
            others=tuple(others),
            warnings=tuple(warnings),
        )

    def _count_judgments(self, missing: Positions) -> None:
        """The measures that count the judgments of topics which the run lacks."""
        counts = [measure for measure in self._columns if measure.NAME in _COUNT_JUDGMENTS]
        for start in range(0, len(missing) if counts else 0, _TOPICS_AT_ONCE):
            batch = missing[start : start + _TOPICS_AT_ONCE]
            places = zip(
                self._relevance.ids.take(pa.array(batch)).to_pylist(),
                batch.tolist(),
                strict=True,
            )
            self._fill(
                {name: (place, (), self._relevance.at(place)) for name, place in places}, counts
            )

    def _measure_waiting(self) -> None:
        self._fill(self._waiting, list(self._columns))
        self._waiting = {}

    def _fill(self, rankings: Mapping[str, _Waiting], measures: Sequence[Measure]) -> None:
        if rankings and measures:
            relevance = {query_id: judged for query_id, (_, _, judged) in rankings.items()}
            # Scores that are distinct in float32 too.
            scored = {
                query_id: {
                    doc_id: float(len(doc_ids) - position)
                    for position, doc_id in enumerate(doc_ids)
                }
                for query_id, (_, doc_ids, _) in rankings.items()
            }
            for query_id, measure, value in iter_values(measures, relevance, scored):
                self._values[rankings[query_id][0], self._columns[measure]] = value


class CurveEvaluator:
    """The means of measures for each point of a curve: each point is a ranking of every query."""

    def __init__(
        self,
        relevance: Relevance,
        measures: Mapping[str, Measure],
        base: int = 0,
    ) -> None:
        """Takes the judgments, measures that are `supported`, and the point that others are
        compared with.
        """
        self._relevance, self._measures, self._base = relevance, measures, base
        self._sums = defaultdict[str, ExactSum](ExactSum)
        self._squares = defaultdict[str, Any](float)

    def add(
        self, query_id: str, doc_ids: Sequence[str], positions: Callable[[Positions], Positions]
    ) -> None:
        """Takes the rankings of a query's candidates (see `judged_positions`); without judgments it
        does not count.
        """
        judgments = self._relevance.get(query_id)
        if judgments is not None:
            judged = judged_positions(judgments, doc_ids, positions)
            for name, measure in self._measures.items():
                values = judged.values(measure)
                self._sums[name].add(values)
                self._squares[name] += (values - values[self._base]) ** 2

    def means(self) -> dict[str, Floats]:
        """float64[p] by measure, over all judged topics; empty before a query was added."""
        return {name: total.over(len(self._relevance)) for name, total in self._sums.items()}

    def differences(self, name: str, significance: float) -> tuple[Floats, Floats]:
        """The means over all judged topics, at least two, of each point's difference from the
        base, and half the widths of their confidence intervals: float64[p] each.
        """
        # It takes a second to import, and few commands draw curves.
        from scipy.special import stdtrit

        means, topics = self.means()[name], len(self._relevance)
        differences = means - means[self._base]
        variances = np.maximum(self._squares[name] / topics - differences**2, 0)
        errors = np.sqrt(variances / (topics - 1))
        return differences, errors * stdtrit(topics - 1, 1 - significance / 2)


def evaluate(
    rankings: Rankings, qrels: Qrels, measures: Sequence[str], topics: Collection[str] | Any = None
) -> Evaluation:
    """Measures a run in its order.

    The means are over all topics of the qrels, as with trec_eval's -c: a topic that the run lacks
    counts as 0. Docs without judgment, or with a negative one, count as in trec_eval.
    """
    evaluator = Evaluator(qrels, measures)
    evaluator.add(rankings)
    return evaluator.evaluation(topics)


def evaluate_run_files(
    run_urls: Sequence[str],
    qrels_url: str,
    measures: Sequence[str],
    excluded: Excluded | None = None,
    max_bad_rows: int = 0,
    hints: FileHints = NO_FILE_HINTS,
    topics: str = TOPICS[0],
) -> list[RunEvaluation]:
    """Measures several run files against a qrels file, which is read once, without the docs that
    are left out.

    Of each run and of the qrels, at most `max_bad_rows` rows that cannot be used are left out, and
    noted. `hints` say how the files are laid out. Means are over the topics that `topics_in_means`
    gives for the first run.

    Raises:
        ConfigError: a measure is unknown (found before anything is read).
        PreflightError: a file is missing or invalid, or a run and the qrels have no topic in
            common.
    """
    parse_measures(measures)
    qrels = read_qrels(qrels_url, hints.qrels, Rejects("qrels", max_bad_rows))
    evaluations: list[RunEvaluation] = []
    for url in run_urls:
        run = read_run(url, hints=hints.run, rejects=Rejects("run", max_bad_rows))
        run = without(run, excluded, qrels)
        if not evaluations:
            qrels = topics_in_means(qrels, run, topics)
        evaluations.append(
            evaluate_one(run, qrels, measures, f"the run {url}", f"the qrels {qrels_url}")
        )
    return evaluations


def topics_in_means(qrels: Qrels, run: Run, topics: str) -> Qrels:
    """The judgments of the topics that means are over: of all, or, with `run`, of those that a run
    has, such as a trial.
    """
    shared = [query_id for query_id in run.order if query_id in qrels.relevance]
    return qrels.of_topics(shared) if topics == "run" and shared else qrels


def without(run: Run, excluded: Excluded | None, qrels: Qrels | None) -> Run:
    """A run without the docs that are left out; PreflightError if it has no others."""
    return (
        run
        if excluded is None
        else excluded.left_out(run, {} if qrels is None else qrels.relevance)
    )


def evaluate_one(
    run: Run, qrels: Qrels, measures: Sequence[str], run_name: str, qrels_name: str
) -> RunEvaluation:
    """Measures a run; PreflightError, with these names, if the run and the qrels have no topic in
    common.
    """
    evaluation = evaluate(run.order.items(), qrels, measures)
    if len(evaluation.notes.not_in_run) == evaluation.notes.topics:
        raise PreflightError(
            f"{run_name} and {qrels_name} have no topic in common: "
            f"the run's first is {next(iter(run.order))!r}, the qrels' "
            f"{next(iter(qrels.relevance))!r}"
        )
    return RunEvaluation(evaluation, run.notes, qrels.notes, tuple(own_facts(run.order)))
