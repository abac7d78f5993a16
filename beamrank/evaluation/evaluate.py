"""Effectiveness: ir_measures over a run that was ordered once, so that its providers cannot disagree about ties."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from beamrank.errors import PreflightError
from beamrank.evaluation.measures import Measure, iter_values, parse_measures
from beamrank.formats.qrels import Qrels, QrelsNotes, read_qrels
from beamrank.formats.runs import Run, RunNotes, read_run

Rankings: TypeAlias = Iterable[tuple[str, Sequence[str]]]

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
        means: each measure's mean over all judged topics (the sum, for those that count), by its name in
            `parse_measures`.
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


def evaluate(
    rankings: Rankings, qrels: Qrels, measures: Sequence[str], topics: Collection[str] | None = None
) -> Evaluation:
    """Measures a run in the order given.

    The means are over all topics of the qrels, as with trec_eval's -c: a topic that the run lacks counts as 0. Docs
    without judgment, or with a negative one, count as trec_eval has it.

    Args:
        rankings: each query's doc_ids, best first; read once, and only some hundred queries are held at a time.
        qrels: the judgments.
        measures: names, as ir_measures or trec_eval writes them.
        topics: the query_ids that were to be run, to say which judged ones are not among them.

    Raises:
        ConfigError: see `parse_measures`.
    """
    parsed = parse_measures(measures)
    names: dict[Measure, list[str]] = {}
    for name, measure in parsed.items():
        names.setdefault(measure, []).append(name)
    defaults = {name: float(measure.DEFAULT) for name, measure in parsed.items()}
    # Added up in the run's order, as the MS MARCO script does it, the means agree with it to the last digit.
    per_query: dict[str, dict[str, float]] = {}
    not_judged: list[str] = []
    for some in _batches(rankings):
        judged = {query_id: doc_ids for query_id, doc_ids in some if doc_ids and query_id in qrels.relevance}
        not_judged += [query_id for query_id, _ in some if query_id not in qrels.relevance]
        per_query.update({query_id: dict(defaults) for query_id in judged})
        _fill(per_query, names, _only(qrels, judged), {one: _scored(doc_ids) for one, doc_ids in judged.items()})
    missing = [query_id for query_id in qrels.relevance if query_id not in per_query]
    per_query.update({query_id: dict(defaults) for query_id in missing})
    counts = {measure: each for measure, each in names.items() if measure.NAME in _COUNT_JUDGMENTS}
    if missing and counts:
        _fill(per_query, counts, _only(qrels, missing), {query_id: {} for query_id in missing})
    notes = EvaluationNotes(
        topics=len(per_query),
        not_in_run=tuple(missing),
        not_in_topics=() if topics is None else tuple(sorted(set(per_query).difference(topics))),
        not_judged=tuple(not_judged),
    )
    means = {name: _aggregate(measure, [row[name] for row in per_query.values()]) for name, measure in parsed.items()}
    return Evaluation(means, per_query, notes)


def evaluate_run(run_url: str, qrels_url: str, measures: Sequence[str]) -> RunEvaluation:
    """Measures a run file against a qrels file.

    Raises:
        ConfigError: a measure is unknown (found before anything is read).
        PreflightError: a file is not as it must be, or they have no topic in common.
    """
    return evaluate_run_files([run_url], qrels_url, measures)[0]


def evaluate_run_files(run_urls: Sequence[str], qrels_url: str, measures: Sequence[str]) -> list[RunEvaluation]:
    """Measures several run files against a qrels file, which is read once.

    Raises:
        ConfigError: a measure is unknown (found before anything is read).
        PreflightError: a file is not as it must be, or a run and the qrels have no topic in common.
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


def _batches(rankings: Rankings) -> Iterator[list[tuple[str, Sequence[str]]]]:
    """Some hundred queries at a time, because ir_measures takes Python dicts."""
    iterator = iter(rankings)
    while some := list(itertools.islice(iterator, _TOPICS_AT_ONCE)):
        yield some


def _fill(
    per_query: dict[str, dict[str, float]],
    names: Mapping[Measure, Sequence[str]],
    relevance: dict[str, dict[str, int]],
    scored: dict[str, dict[str, float]],
) -> None:
    """Puts the values of some queries into their rows."""
    if scored:
        for query_id, measure, value in iter_values(list(names), relevance, scored):
            per_query[query_id].update(dict.fromkeys(names[measure], value))


def _scored(doc_ids: Sequence[str]) -> dict[str, float]:
    """Scores that are distinct in float32 too."""
    return {doc_id: float(len(doc_ids) - position) for position, doc_id in enumerate(doc_ids)}


def _only(qrels: Qrels, query_ids: Iterable[str]) -> dict[str, dict[str, int]]:
    return {query_id: qrels.relevance[query_id] for query_id in query_ids}


def _aggregate(measure: Measure, values: Sequence[float]) -> float:
    aggregator = measure.aggregator()
    for value in values:
        aggregator.add(value)
    return float(aggregator.result())


def _listed(query_ids: Sequence[str], total: int | None = None) -> str:
    first = ", ".join([*map(repr, query_ids[:_SHOWN]), *["..."] * (len(query_ids) > _SHOWN)])
    return f"{len(query_ids):,}{'' if total is None else f' of {total:,}'} ({first})"
