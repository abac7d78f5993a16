"""`beamrank eval RUN`: the measures of a run file against qrels."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from beamrank.credentials import refuse_credentials
from beamrank.evaluation import Evaluation, RunEvaluation, evaluate_run
from beamrank.measures import split_measures
from beamrank.significance import Comparison, compare_evaluations

_DEFAULT_MEASURES = "RR@10 nDCG@10 AP R@1000"


def eval_run(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A TREC or MS MARCO run: a path or a URL, .gz or not.")],
    qrels: Annotated[str, typer.Option(help="The judgments: TREC, MS MARCO or BEIR.")],
    measures: Annotated[
        str, typer.Option(help="Names as ir_measures writes them, between spaces or commas.")
    ] = _DEFAULT_MEASURES,
    against: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Another run: say by how much this one is better, and a paired t-test's p."),
    ] = None,
    per_query: Annotated[bool, typer.Option("--per-query", help="Print each topic's values too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Evaluate a run: means over all topics of the qrels (trec_eval's -c)."""
    for name, url in (("RUN", run), ("--qrels", qrels), ("--against", against)):
        refuse_credentials(url or "", name)
    names = split_measures(measures)
    found = evaluate_run(run, qrels, names)
    _note(found.lines())
    compared = {} if against is None else _compare(found, evaluate_run(against, qrels, names), against)
    if as_json:
        typer.echo(json.dumps(_as_object(run, found.evaluation, per_query, against, compared), ensure_ascii=False))
    elif sys.stdout.isatty():
        _print_tables(run, found, per_query, against, compared)
    else:
        for row in _rows(found.evaluation, per_query, compared):
            typer.echo("\t".join(row))


def _note(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(f"note: {line}", err=True)


def _compare(found: RunEvaluation, baseline: RunEvaluation, against: str) -> dict[str, Comparison]:
    # What there is to say of the qrels has been said.
    _note(f"{against}: {line}" for line in (*baseline.run_notes.lines(), *baseline.evaluation.notes.lines()))
    compared = compare_evaluations(found.evaluation, baseline.evaluation)
    left_out = [name for name in found.evaluation.means if name not in compared]
    if left_out:
        _note([f"not compared, since it is no mean over two topics or more: {', '.join(left_out)}"])
    return compared


def _as_object(
    run: str, evaluation: Evaluation, per_query: bool, against: str | None, compared: Mapping[str, Comparison]
) -> dict[str, object]:
    found: dict[str, object] = {"run": run, "queries": evaluation.notes.topics, "measures": evaluation.means}
    if against is not None:
        found["against"] = {"run": against, "measures": {name: asdict(each) for name, each in compared.items()}}
    if per_query:
        found["per_query"] = evaluation.per_query
    return found


def _rows(evaluation: Evaluation, per_query: bool, compared: Mapping[str, Comparison]) -> Iterator[tuple[str, ...]]:
    """`query_id, measure, value` of each topic where asked, then `measure, value`; values in full.

    With another run these have its value, the difference and p behind them.
    """
    if per_query:
        for query_id, values in evaluation.per_query.items():
            yield from ((query_id, name, repr(value)) for name, value in values.items())
    for name, value in evaluation.means.items():
        each = compared.get(name)
        beside = () if each is None else (each.baseline, each.difference, each.p_value)
        yield (name, repr(value), *map(repr, beside))


def _print_tables(
    run: str, found: RunEvaluation, per_query: bool, against: str | None, compared: Mapping[str, Comparison]
) -> None:
    console = Console()
    evaluation = found.evaluation
    if per_query:
        table = Table("query_id", *evaluation.means)
        for query_id, values in evaluation.per_query.items():
            table.add_row(Text(query_id), *(f"{value:.4f}" for value in values.values()))
        console.print(table)
    console.print(
        f"{run} ({found.run_notes.format}), {evaluation.notes.topics:,} topics", markup=False, highlight=False
    )
    table = Table("measure", "mean")
    for name, value in evaluation.means.items():
        table.add_row(name, f"{value:.4f}")
    console.print(table)
    if against is not None:
        console.print(f"against {against}, paired t-test over topics", markup=False, highlight=False)
        console.print(_comparison_table(compared))


def _comparison_table(compared: Mapping[str, Comparison]) -> Table:
    table = Table("measure", "mean", "the other's", "difference", "95 % interval", "p", "better", "equal", "worse")
    for name, each in compared.items():
        table.add_row(
            name,
            f"{each.mean:.4f}",
            f"{each.baseline:.4f}",
            f"{each.difference:+.4f}",
            f"{each.low:+.4f} to {each.high:+.4f}",
            f"{each.p_value:.2g}",
            *map(str, (each.better, each.equal, each.worse)),
        )
    return table
