"""`beamrank inspect DIR`: the queries of a run, one query's candidates at every stage, or the largest rank changes."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamrank.commit.plan import Plan, read_plan
from beamrank.config.run import RunConfig, stored_config
from beamrank.errors import ConfigError
from beamrank.evaluation.tables import DIFFERENCE, MEAN, Cell, Column, Table
from beamrank.formats.notes import first_few
from beamrank.storage.globs import absolute_glob
from pipelines.commands.arguments import AsJson, qrels_option
from pipelines.console.tables import print_result
from pipelines.console.terminal import write_error, write_line

if TYPE_CHECKING:
    from beamrank.report.report import Report
    from beamrank.report.views import CandidateView


def inspect(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A run's output.")],
    query: Annotated[str | None, typer.Option(metavar="ID", help="Show the candidates of this query.")] = None,
    changes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Show the N largest rank changes of judged docs by stage.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="STAGE", help="The run that the differences are to; by default the first.")
    ] = None,
    qrels: Annotated[str | None, qrels_option("Judgments in place of the run's own.")] = None,
    depth: Annotated[int, typer.Option(min=1, help="With --query: how many candidates are shown.")] = 20,
    texts: Annotated[bool, typer.Option("--texts/--no-texts", help="Show passages: one scan of the corpus.")] = True,
    as_json: AsJson = False,
) -> None:
    """Show the queries of a run by difference, or the candidates of one query at every stage. Needs no model."""
    if query is not None and changes is not None:
        raise ConfigError("--query and --changes show different things: give one of them")
    # They take a second to import, and other commands do without.
    import models.stages  # noqa: F401
    from beamrank.report.report import ReportSettings
    from beamrank.report.run_report import gather

    plan = read_plan(folder)
    config = stored_config(plan.config, folder)
    if qrels is not None:
        config = config.model_copy(update={"qrels": absolute_glob(qrels)})
    if query is not None:
        _show_query(plan, config, query, depth, texts, as_json)
        return
    texts = texts and changes is not None
    settings = ReportSettings(baseline=baseline, changes=changes or 0, queries=0, texts=texts, curves=False)
    report = gather(plan, config, settings)
    for line in report.missing:
        write_error(f"note: {line}")
    (_show_queries if changes is None else _show_changes)(report, as_json)


def _show_query(plan: Plan, config: RunConfig, query_id: str, depth: int, texts: bool, as_json: bool) -> None:
    from beamrank.report.run_report import query_candidates
    from beamrank.report.stored.scores import ranked_texts

    topic = next((topic for topic in plan.topics if topic.query_id == query_id), None)
    if topic is None:
        topics = first_few([topic.query_id for topic in plan.topics])
        raise ConfigError(f"--query {query_id!r} is not a topic of {plan.output}; its topics are {topics}")
    views = query_candidates(plan, config, query_id)[:depth]
    found = ranked_texts(plan, config, {view.doc_id for view in views}) if texts else {}
    if as_json:
        _print_json(query_id=query_id, text=topic.text, candidates=[_candidate(view, found) for view in views])
        return
    write_line(f"{query_id}: {topic.text}")
    if not views:
        write_line("no candidates")
    for view in views:
        write_line()
        scores = {run: f" ({score:.4f})" for run, score in view.scores.items()}
        ranks = ", ".join(f"{run} {rank}{scores.get(run, '')}" for run, rank in view.ranks.items())
        write_line(f"{view.doc_id}  {_facts(view)}  rank: {ranks}")
        _print_passage(view, found)


def _show_changes(report: "Report", as_json: bool) -> None:
    if as_json:
        _print_json(
            changes=[
                {"before": each.before, "after": each.after, "places": each.places}
                | {"query": report.topics[each.candidate.query_id], **_candidate(each.candidate, report.texts)}
                for each in report.changes
            ]
        )
        return
    for each in report.changes:
        view = each.candidate
        moved = f"{each.before} {view.ranks[each.before]}, {each.after} {view.ranks[each.after]}"
        write_line(f"{moved}  {_facts(view)}  {view.doc_id}  for {view.query_id}: {report.topics[view.query_id]}")
        _print_passage(view, report.texts)
        write_line()


def _show_queries(report: "Report", as_json: bool) -> None:
    """Largest losses first; in the order of the plan if nothing can be measured."""
    measure = report.main_measure
    differences: Mapping[str, float | None] = report.differences or dict.fromkeys(report.topics)
    values = {} if measure is None else {run: report.evaluations[run].per_query for run in report.steps}
    queries, rows = [], list[list[Cell]]()
    for query_id, difference in differences.items():
        text = report.topics.get(query_id, "")
        measures = {run: by_query.get(query_id, {}).get(measure or "") for run, by_query in values.items()}
        queries.append({"query_id": query_id, "text": text, "measures": measures, "difference": difference})
        rows.append([query_id, text, *measures.values(), difference])
    columns = [Column("query_id"), Column("text"), *(Column(run, MEAN) for run in values)]
    table = Table([*columns, Column("difference", DIFFERENCE)], rows)
    result = {"measure": measure, "baseline": report.baseline, "run": report.last, "queries": queries}
    print_result(table, result, "json" if as_json else "table")


def _print_passage(view: "CandidateView", texts: Mapping[str, str]) -> None:
    for name, each in (("strongest opponent", view.strongest), ("weakest opponent", view.weakest)):
        if each is not None:
            write_line(f"  {name}: {each.doc_id} ({each.log_odds:+.2f})")
    if view.doc_id in texts:
        write_line(f"  {' '.join(texts[view.doc_id].split())}")


def _facts(view: "CandidateView") -> str:
    label = "-" if view.label is None else view.label
    return f"label {label}  truncated {view.truncated_by or '-'}"


def _candidate(view: "CandidateView", texts: Mapping[str, str]) -> dict[str, Any]:
    opponents = {"strongest": view.strongest, "weakest": view.weakest}
    found = {name: None if each is None else each._asdict() for name, each in opponents.items()}
    return {**asdict(view), **found, "text": texts.get(view.doc_id)}


def _print_json(**values: object) -> None:
    write_line(json.dumps(values, ensure_ascii=False, allow_nan=False))
