"""`beamrank inspect DIR`: the queries of a run, one query's candidates at every stage, or the largest rank changes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamrank.commit.plan import read_plan
from beamrank.commit.status import shard_attempts
from beamrank.errors import ConfigError
from beamrank.evaluation.tables import DIFFERENCE, MEAN, Cell, Column, Table
from beamrank.formats.notes import first_few
from beamrank.formats.qrels import read_qrels
from beamrank.ranking.variants import Opponent
from beamrank.storage.globs import absolute_glob
from pipelines.commands.arguments import AsJson, open_runs, qrels_option
from pipelines.console.tables import print_result
from pipelines.console.terminal import write_error, write_line

if TYPE_CHECKING:
    from beamrank.report.report import Report
    from beamrank.report.runs import PlanRuns
    from beamrank.report.views import CandidateView


def inspect(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A run's output.")],
    query: Annotated[str | None, typer.Option(metavar="ID", help="Show the candidates of this query.")] = None,
    shard: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Show each attempt at this shard, and whether it counts.")
    ] = None,
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
    if sum(each is not None for each in (query, changes, shard)) > 1:
        raise ConfigError("--query, --changes and --shard show different things: give one of them")
    if shard is not None:
        _show_shard(folder, shard, as_json)
        return
    # They take a second to import, and other commands do without.
    from beamrank.report.gather import gather
    from beamrank.report.report import ReportSettings

    runs = open_runs(folder, {} if qrels is None else {"qrels": absolute_glob(qrels)})
    if query is not None:
        _show_query(runs, query, depth, texts, as_json)
        return
    texts = texts and changes is not None
    settings = ReportSettings(baseline=baseline, changes=changes or 0, queries=0, texts=texts, curves=False)
    report = gather(runs, settings)
    for line in report.missing:
        write_error(f"note: {line}")
    (_show_queries if changes is None else _show_changes)(report, as_json)


def _show_shard(folder: str, shard: int, as_json: bool) -> None:
    plan = read_plan(folder)
    if shard >= len(plan.shards):
        raise ConfigError(f"--shard {shard}: the shards of {plan.output} are 0 to {len(plan.shards) - 1}")
    attempts = list(shard_attempts(plan, shard))
    topics = [topic.query_id for topic in plan.shards[shard].topics]
    if as_json:
        _print_json(shard=shard, queries=topics, attempts=[asdict(each) for each in attempts])
        return
    write_line(f"shard {shard}: {len(topics):,} topics ({first_few(topics)})")
    for attempt in attempts:
        write_line(f"{attempt.file}: {attempt.state}")
        if (receipt := attempt.receipt) is not None:
            when = datetime.fromtimestamp(receipt.committed_seconds).isoformat(" ", "seconds")
            counts = ", ".join(f"{name} {count:,}" for name, count in receipt.counts.items())
            write_line(f"  {when} on {receipt.host}, process {receipt.process}, {receipt.seconds:,.1f} s: {counts}")


def _show_query(runs: "PlanRuns", query_id: str, depth: int, texts: bool, as_json: bool) -> None:
    topics = {topic.query_id: topic.text for topic in runs.plan.topics}
    if query_id not in topics:
        others = first_few(list(topics))
        raise ConfigError(f"--query {query_id!r} is not a topic of {runs.plan.output}; its topics are {others}")
    qrels = None if runs.config.qrels is None else read_qrels(runs.config.qrels)
    views = runs.views(query_id, {} if qrels is None else qrels.relevance.get(query_id, {}))[:depth]
    found = runs.texts({view.doc_id for view in views}) if texts else {}
    if as_json:
        _print_json(query_id=query_id, text=topics[query_id], candidates=[_candidate(view, found) for view in views])
        return
    write_line(f"{query_id}: {topics[query_id]}")
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
    for run, details in view.details.items():
        of_run = f" in {run}" if len(view.details) > 1 else ""
        for name, value in details.items():
            write_line(f"  {name}{' opponent' * isinstance(value, Opponent)}{of_run}: {value}")
    if view.doc_id in texts:
        write_line(f"  {' '.join(texts[view.doc_id].split())}")


def _facts(view: "CandidateView") -> str:
    label = "-" if view.label is None else view.label
    return f"label {label}  truncated {view.truncated_by or '-'}"


def _candidate(view: "CandidateView", texts: Mapping[str, str]) -> dict[str, Any]:
    by_run = {
        run: {name: value._asdict() if isinstance(value, Opponent) else value for name, value in each.items()}
        for run, each in view.details.items()
    }
    # Those of the last stage that has them, beside those of each.
    last: dict[str, Any] = {"strongest": None, "weakest": None}
    for each in by_run.values():
        last |= each
    values = asdict(replace(view, details={}))
    del values["truncated"]
    return values | last | {"details": by_run} | {"truncated": view.truncated, "text": texts.get(view.doc_id)}


def _print_json(**values: object) -> None:
    write_line(json.dumps(values, ensure_ascii=False, allow_nan=False))
