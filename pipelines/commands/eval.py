"""`beamrank eval RUN`: the measures of a run file against qrels."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, TypeAlias

import typer

from beamrank.evaluation.evaluate import Evaluation, RunEvaluation, evaluate_run_files
from beamrank.evaluation.measures import DEFAULT_MEASURES, explain_names, split_measures
from beamrank.evaluation.significance import Comparison, compare_evaluations
from beamrank.evaluation.tables import DIFFERENCE, MEAN, P_VALUE, shown
from beamrank.formats.excluded import read_excluded
from beamrank.formats.notes import of_files
from pipelines.commands.arguments import Exclude, qrels_option
from pipelines.console.tables import print_table
from pipelines.console.terminal import write_error, write_line

_COMPARED = ("measure", "baseline", "difference", "95 % interval", "p", "better", "equal", "worse")

Compared: TypeAlias = Sequence[tuple[str, Mapping[str, Comparison]]]


def eval_run(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A TREC or MS MARCO run: a path or a URL, compressed or not.")
    ],
    qrels: Annotated[str, qrels_option("The judgments: TREC, MS MARCO or BEIR.")],
    measures: Annotated[
        str, typer.Option(help="Names of ir_measures or trec_eval, separated by spaces or commas.")
    ] = " ".join(DEFAULT_MEASURES),
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN",
            help="Compare with a baseline run (paired t-test). May be given several times.",
        ),
    ] = None,
    exclude: Exclude = None,
    per_query: Annotated[bool, typer.Option("--per-query", help="Also print the values of each topic.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Evaluate a run: means over all topics of the qrels (trec_eval's -c)."""
    baselines = against or []
    names = split_measures(measures)
    _note(explain_names(names))
    excluded = None if exclude is None else read_excluded(exclude)
    found, *others = evaluate_run_files([run, *baselines], qrels, names, excluded)
    _note(found.lines())
    for name, each in zip(["", *(f"{name}: " for name in baselines)], [found, *others], strict=True):
        for warning in each.evaluation.notes.warnings():
            write_error(f"warning: {name}{warning}")
    compared = _compare(found.evaluation, list(zip(baselines, others, strict=True)))
    if as_json:
        write_line(json.dumps(_as_object(run, found.evaluation, per_query, compared), ensure_ascii=False))
    elif sys.stdout.isatty():
        _print_tables(run, found, per_query, compared)
    else:
        for row in _rows(found.evaluation, per_query, compared):
            write_line(*row)


def _note(lines: Iterable[str]) -> None:
    for line in lines:
        write_error(f"note: {line}")


def _compare(run: Evaluation, baselines: Sequence[tuple[str, RunEvaluation]]) -> Compared:
    # The notes on the qrels are printed once.
    _note(of_files({name: baseline.facts() for name, baseline in baselines}))
    compared = []
    for name, baseline in baselines:
        compared.append((name, compare_evaluations(run, baseline.evaluation)))
    left_out = [name for name in run.means if name not in compared[0][1]] if compared else []
    if left_out:
        _note([f"not compared, because they are not means over two or more topics: {', '.join(left_out)}"])
    return compared


def _as_object(run: str, evaluation: Evaluation, per_query: bool, compared: Compared) -> dict[str, object]:
    found: dict[str, object] = {"run": run, "queries": evaluation.notes.topics, "measures": evaluation.means}
    if compared:
        found["against"] = [
            {"run": name, "measures": {measure: asdict(each) for measure, each in by_measure.items()}}
            for name, by_measure in compared
        ]
    if per_query:
        found["per_query"] = evaluation.per_query
    return found


def _rows(evaluation: Evaluation, per_query: bool, compared: Compared) -> Iterator[tuple[str, ...]]:
    """`query_id, measure, value` of each topic where asked, then `measure, value`; values in full.

    For each baseline, its value, the difference and p follow.
    """
    if per_query:
        yield from ((query_id, name, repr(value)) for query_id, name, value in evaluation.rows())
    for name, value in evaluation.means.items():
        each = [by_measure[name] for _, by_measure in compared if name in by_measure]
        beside = [(other.baseline, other.difference, other.p_value) for other in each]
        yield (name, repr(value), *(shown(figure) for figures in beside for figure in figures))


def _print_tables(run: str, found: RunEvaluation, per_query: bool, compared: Compared) -> None:
    evaluation = found.evaluation
    if per_query:
        rows = [[one, *map(_figure, values.values())] for one, values in evaluation.per_query.items()]
        print_table(["query_id", *evaluation.means], rows)
    write_line(f"{run} ({found.run_notes.format}), {evaluation.notes.topics:,} topics")
    print_table(["measure", "mean"], [[name, _figure(value)] for name, value in evaluation.means.items()])
    for name, by_measure in compared:
        write_line(f"against {name}, paired t-test over topics")
        print_table(_COMPARED, [_comparison_row(*each) for each in by_measure.items()])


def _figure(value: float) -> str:
    return shown(value, MEAN)


def _comparison_row(name: str, each: Comparison) -> list[str]:
    """Without the run's own mean: it is in the table above, and 80 columns have no room for it."""
    return [
        name,
        _figure(each.baseline),
        shown(each.difference, DIFFERENCE),
        f"{shown(each.low, DIFFERENCE)} to {shown(each.high, DIFFERENCE)}",
        shown(each.p_value, P_VALUE),
        *map(str, (each.better, each.equal, each.worse)),
    ]
