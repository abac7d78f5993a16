"""`beamrank eval RUN`: the measures of a run file against qrels."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from beamrank.evaluation.evaluate import Evaluation, RunEvaluation, evaluate_run_files
from beamrank.evaluation.measures import explain_names, split_measures
from beamrank.evaluation.significance import Comparison, compare_evaluations
from pipelines.console.tables import print_table
from pipelines.console.terminal import PrintableConsole, write_error, write_line

_DEFAULT_MEASURES = "RR@10 nDCG@10 AP R@1000"
_COMPARED = ("measure", "baseline", "difference", "95 % interval", "p", "better", "equal", "worse")

Compared: TypeAlias = Sequence[tuple[str, Mapping[str, Comparison]]]


def eval_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A TREC or MS MARCO run: a path or a URL, .gz or not.")],
    qrels: Annotated[str, typer.Option(help="The judgments: TREC, MS MARCO or BEIR.")],
    measures: Annotated[
        str, typer.Option(help="Names as ir_measures or trec_eval writes them, between spaces or commas.")
    ] = _DEFAULT_MEASURES,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN",
            help="Another run: print the difference to it, and the p of a paired t-test. May be given several times.",
        ),
    ] = None,
    per_query: Annotated[bool, typer.Option("--per-query", help="Print each topic's values too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Evaluate a run: means over all topics of the qrels (trec_eval's -c)."""
    baselines = against or []
    names = split_measures(measures)
    _note(explain_names(names))
    found, *others = evaluate_run_files([run, *baselines], qrels, names)
    _note(found.lines())
    compared = _compare(found.evaluation, list(zip(baselines, others, strict=True)))
    if as_json:
        write_line(json.dumps(_as_object(run, found.evaluation, per_query, compared), ensure_ascii=False))
    elif sys.stdout.isatty():
        _print_tables(PrintableConsole(sys.stdout), run, found, per_query, compared)
    else:
        for row in _rows(found.evaluation, per_query, compared):
            write_line(*row)


def _note(lines: Iterable[str]) -> None:
    for line in lines:
        write_error(f"note: {line}")


def _compare(run: Evaluation, baselines: Sequence[tuple[str, RunEvaluation]]) -> Compared:
    compared = []
    for name, baseline in baselines:
        # The notes on the qrels are out already.
        _note(f"{name}: {line}" for line in (*baseline.run_notes.lines(), *baseline.evaluation.notes.lines()))
        compared.append((name, compare_evaluations(run, baseline.evaluation)))
    left_out = [name for name in run.means if name not in compared[0][1]] if compared else []
    if left_out:
        _note([f"not compared, because it is not a mean over two topics or more: {', '.join(left_out)}"])
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

    Behind these come, for each other run, its value, the difference and p.
    """
    if per_query:
        yield from ((query_id, name, repr(value)) for query_id, name, value in evaluation.rows())
    for name, value in evaluation.means.items():
        each = [by_measure[name] for _, by_measure in compared if name in by_measure]
        beside = [(other.baseline, other.difference, other.p_value) for other in each]
        yield (name, repr(value), *(repr(figure) for figures in beside for figure in figures))


def _print_tables(console: Console, run: str, found: RunEvaluation, per_query: bool, compared: Compared) -> None:
    evaluation = found.evaluation
    if per_query:
        rows = [[one, *map(_figure, values.values())] for one, values in evaluation.per_query.items()]
        print_table(console, ["query_id", *evaluation.means], rows)
    _print_line(console, f"{run} ({found.run_notes.format}), {evaluation.notes.topics:,} topics")
    print_table(console, ["measure", "mean"], [[name, _figure(value)] for name, value in evaluation.means.items()])
    for name, by_measure in compared:
        _print_line(console, f"against {name}, paired t-test over topics")
        print_table(console, _COMPARED, [_comparison_row(*each) for each in by_measure.items()])


def _print_line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _figure(value: float) -> str:
    return f"{value:.4f}"


def _comparison_row(name: str, each: Comparison) -> list[str]:
    """The run's own mean is left out: it is in the table above, and 80 columns have no room for it."""
    return [
        name,
        _figure(each.baseline),
        f"{each.difference:+.4f}",
        f"{each.low:+.4f} to {each.high:+.4f}",
        f"{each.p_value:.2g}",
        *map(str, (each.better, each.equal, each.worse)),
    ]
