"""Effectiveness: ir_measures over a run that was ordered once, so that its providers cannot disagree about ties."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from beamrank.errors import PreflightError
from beamrank.measures import Measure, iter_values, parse_measures
from beamrank.qrels import Qrels, QrelsNotes, read_qrels
from beamrank.runs import RunNotes, read_run

Order: TypeAlias = Mapping[str, Sequence[str]]

_COUNT_JUDGMENTS = ("NumQ", "NumRel")
_TOPICS_AT_ONCE = 500
_SHOWN = 3


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
        """What is worth saying, a line each."""
        said = []
        if self.not_in_topics:
            said.append(f"judged topics that are not among the topics: {_listed(self.not_in_topics, self.topics)}")
        if self.not_in_run:
            said.append(
                f"judged topics that are not in the run: {_listed(self.not_in_run, self.topics)}; they count as 0"
            )
        if self.not_judged:
            said.append(f"topics of the run without judgments: {_listed(self.not_judged)}; they are left out")
        return said


@dataclass(frozen=True)
class Evaluation:
    """The measures of a run.

    Attributes:
        means: each measure's mean over all judged topics (the sum, for those that count), by the name it was asked by.
        per_query: each judged topic's values, by query_id and measure; those of the run first, in its order.
        notes: how topics, run and qrels fit together.
    """

    means: dict[str, float]
    per_query: dict[str, dict[str, float]]
    notes: EvaluationNotes


@dataclass(frozen=True)
class RunEvaluation:
    """The measures of a run file, and what was noticed about it and its qrels."""

    evaluation: Evaluation
    run_notes: RunNotes
    qrels_notes: QrelsNotes

    def lines(self) -> list[str]:
        """What is worth saying, a line each."""
        return [*self.run_notes.lines(), *self.qrels_notes.lines(), *self.evaluation.notes.lines()]


def evaluate(order: Order, qrels: Qrels, measures: Sequence[str], topics: Collection[str] | None = None) -> Evaluation:
    """Measures a run in the order given.

    The means are over all topics of the qrels, as with trec_eval's -c: a topic that the run lacks counts as 0. Docs
    without judgment, or with a negative one, count as trec_eval has it.

    Args:
        order: the doc_ids of each query, best first.
        qrels: the judgments.
        measures: names, as ir_measures writes them.
        topics: the query_ids that were to be run, to say which judged ones are not among them.

    Raises:
        ConfigError: see `parse_measures`.
    """
    parsed = parse_measures(measures)
    # Added up in the run's order, as the MS MARCO script does it, the means agree with it to the last digit.
    retrieved = [query_id for query_id in order if order[query_id] and query_id in qrels.relevance]
    missing = [query_id for query_id in qrels.relevance if not order.get(query_id)]
    names: dict[Measure, list[str]] = {}
    for name, measure in parsed.items():
        names.setdefault(measure, []).append(name)
    per_query: dict[str, dict[str, float]] = {
        query_id: {name: float(measure.DEFAULT) for name, measure in parsed.items()}
        for query_id in [*retrieved, *missing]
    }
    for query_id, measure, value in _values(order, qrels, list(names), retrieved, missing):
        per_query[query_id].update(dict.fromkeys(names[measure], value))
    notes = EvaluationNotes(
        topics=len(per_query),
        not_in_run=tuple(missing),
        not_in_topics=() if topics is None else tuple(sorted(set(per_query).difference(topics))),
        not_judged=tuple(query_id for query_id in order if query_id not in qrels.relevance),
    )
    means = {name: _aggregate(measure, [row[name] for row in per_query.values()]) for name, measure in parsed.items()}
    return Evaluation(means, per_query, notes)


def evaluate_run(run_url: str, qrels_url: str, measures: Sequence[str]) -> RunEvaluation:
    """Measures a run file against a qrels file.

    Raises:
        ConfigError: a measure is unknown (found before anything is read).
        PreflightError: a file is not as it must be, or they have no topic in common.
    """
    parse_measures(measures)
    qrels = read_qrels(qrels_url)
    run = read_run(run_url)
    evaluation = evaluate(run.order, qrels, measures)
    if len(evaluation.notes.not_in_run) == evaluation.notes.topics:
        raise PreflightError(
            f"the run {run_url} and the qrels {qrels_url} have no topic in common: "
            f"the run's first is {next(iter(run.order))!r}, the qrels' {next(iter(qrels.relevance))!r}"
        )
    return RunEvaluation(evaluation, run.notes, qrels.notes)


def _values(
    order: Order, qrels: Qrels, measures: Sequence[Measure], retrieved: Sequence[str], missing: Sequence[str]
) -> Iterator[tuple[str, Measure, float]]:
    """The values of each judged topic; some hundred topics at a time, because ir_measures takes Python dicts."""
    for start in range(0, len(retrieved), _TOPICS_AT_ONCE):
        query_ids = retrieved[start : start + _TOPICS_AT_ONCE]
        yield from iter_values(measures, _only(qrels, query_ids), {one: _scored(order[one]) for one in query_ids})
    counts = [measure for measure in measures if measure.NAME in _COUNT_JUDGMENTS]
    if missing and counts:
        yield from iter_values(counts, _only(qrels, missing), {query_id: {} for query_id in missing})


def _scored(doc_ids: Sequence[str]) -> dict[str, float]:
    """Scores that are distinct in float32 too."""
    return {doc_id: float(len(doc_ids) - position) for position, doc_id in enumerate(doc_ids)}


def _only(qrels: Qrels, query_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    return {query_id: qrels.relevance[query_id] for query_id in query_ids}


def _aggregate(measure: Measure, values: Sequence[float]) -> float:
    aggregator = measure.aggregator()
    for value in values:
        aggregator.add(value)
    return float(aggregator.result())


def _listed(query_ids: Sequence[str], total: int | None = None) -> str:
    first = ", ".join([*map(repr, query_ids[:_SHOWN]), *["..."] * (len(query_ids) > _SHOWN)])
    return f"{len(query_ids):,}{'' if total is None else f' of {total:,}'} ({first})"
