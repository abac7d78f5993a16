"""`beamrank inspect DIR`: the topics of a run by difference, a topic's candidates at every stage,
rank changes, and the attempts at a shard.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Any

from beamrank.commit.plan import read_plan
from beamrank.commit.status import shard_attempts
from beamrank.errors import ConfigError
from beamrank.formats.qrels import read_qrels
from beamrank.notes import first_few
from beamrank.ranking.variants import Opponent
from beamrank.report.report import Report, ReportSettings, gather
from beamrank.report.runs import CandidateView, PlanRuns
from beamrank.report.sections import differences_table
from beamrank.storage.globs import absolute_glob
from pipelines.commands.arguments import AsJson, OwnQrels, RunFolder, ShowTexts, open_runs, option
from pipelines.console.tables import print_result
from pipelines.console.terminal import write_error, write_line

HELP_PANEL = "Look"


def inspect(
    folder: RunFolder,
    query: Annotated[str | None, option("Show the candidates of this query.", metavar="ID")] = None,
    shard: Annotated[
        int | None,
        option("Show each attempt at this shard, and whether it counts.", min=0, metavar="N"),
    ] = None,
    changes: Annotated[
        int | None,
        option("Show the N largest rank changes of judged docs by stage.", min=1, metavar="N"),
    ] = None,
    baseline: Annotated[
        str | None,
        option("The run that the differences are to; by default the first.", metavar="STAGE"),
    ] = None,
    qrels: OwnQrels = None,
    depth: Annotated[int, option("With --query: how many candidates are shown.", min=1)] = 20,
    texts: ShowTexts = True,
    as_json: AsJson = False,
) -> None:
    """Show the queries of a run by difference, or the candidates of one query at every stage. Needs
    no model.
    """
    if sum(choice is not None for choice in (query, changes, shard)) > 1:
        raise ConfigError("--query, --changes and --shard show different things: give one of them")
    if shard is not None:
        _show_shard(folder, shard, as_json)
        return
    runs = open_runs(folder, {} if qrels is None else {"qrels": absolute_glob(qrels)})
    if query is not None:
        _show_query(runs, query, depth, texts, as_json)
        return
    texts = texts and changes is not None
    settings = ReportSettings(
        baseline=baseline, changes=changes or 0, queries=0, texts=texts, curves=False
    )
    report = gather(runs, settings)
    for line in report.missing:
        write_error(f"note: {line}")
    (_show_queries if changes is None else _show_changes)(report, as_json)


def _show_shard(folder: str, shard: int, as_json: bool) -> None:
    plan = read_plan(folder)
    if shard >= len(plan.shards):
        raise ConfigError(
            f"--shard {shard}: the shards of {plan.output} are 0 to {len(plan.shards) - 1}"
        )
    attempts = list(shard_attempts(plan, shard))
    topics = [topic.query_id for topic in plan.shards[shard].topics]
    if as_json:
        _print_json(shard=shard, queries=topics, attempts=[asdict(attempt) for attempt in attempts])
        return
    write_line(f"shard {shard}: {len(topics):,} topics ({first_few(topics)})")
    for attempt in attempts:
        write_line(f"{attempt.file}: {attempt.state}")
        if (receipt := attempt.receipt) is not None:
            when = datetime.fromtimestamp(receipt.committed_seconds).isoformat(" ", "seconds")
            counts = ", ".join(f"{name} {count:,}" for name, count in receipt.counts.items())
            write_line(
                f"  {when} on {receipt.host}, process {receipt.process}, {receipt.seconds:,.1f} "
                f"s: {counts}"
            )


def _show_query(runs: PlanRuns, query_id: str, depth: int, texts: bool, as_json: bool) -> None:
    topics = runs.plan.topics.texts
    if query_id not in topics:
        where = f"{runs.plan.output}; its topics are {first_few(topics)}"
        raise ConfigError(f"--query {query_id!r} is not a topic of {where}")
    rejects = runs.config.max_bad_rows.rejects("qrels")
    qrels = None if runs.config.qrels is None else read_qrels(runs.config.qrels, rejects=rejects)
    views = runs.views(query_id, {} if qrels is None else qrels.relevance.get(query_id, {}))[:depth]
    passages = runs.texts({view.doc_id for view in views}) if texts else {}
    if as_json:
        _print_json(
            query_id=query_id,
            text=topics[query_id],
            candidates=[_candidate(view, passages) for view in views],
        )
        return
    write_line(f"{query_id}: {topics[query_id]}")
    if not views:
        write_line("no candidates")
    for view in views:
        write_line()
        scores = {run: f" ({score:.4f})" for run, score in view.scores.items()}
        ranks = ", ".join(f"{run} {rank}{scores.get(run, '')}" for run, rank in view.ranks.items())
        write_line(f"{view.doc_id}  {_facts(view)}  rank: {ranks}")
        _print_passage(view, passages)


def _show_changes(report: Report, as_json: bool) -> None:
    if as_json:
        _print_json(
            changes=[
                {"before": change.before, "after": change.after, "places": change.places}
                | {
                    "query": report.topics[change.candidate.query_id],
                    **_candidate(change.candidate, report.texts),
                }
                for change in report.changes
            ]
        )
        return
    for change in report.changes:
        view = change.candidate
        moved = (
            f"{change.before} {view.ranks[change.before]}, "
            f"{change.after} {view.ranks[change.after]}"
        )
        write_line(
            f"{moved}  {_facts(view)}  {view.doc_id}  for {view.query_id}: "
            f"{report.topics[view.query_id]}"
        )
        _print_passage(view, report.texts)
        write_line()


def _show_queries(report: Report, as_json: bool) -> None:
    table = differences_table(report)
    queries = [
        {
            "query_id": query_id,
            "text": text,
            "measures": dict(zip(report.steps, values, strict=False)),
        }
        | {"difference": difference}
        for query_id, text, *values, difference in table.rows
    ]
    result = {
        "measure": report.main_measure,
        "baseline": report.baseline,
        "run": report.last,
        "queries": queries,
    }
    print_result(table, result, "json" if as_json else "table")


def _print_passage(view: CandidateView, texts: Mapping[str, str]) -> None:
    for run, details in view.details.items():
        of_run = f" in {run}" if len(view.details) > 1 else ""
        for name, value in details.items():
            write_line(f"  {name}{' opponent' * isinstance(value, Opponent)}{of_run}: {value}")
    if view.doc_id in texts:
        write_line(f"  {' '.join(texts[view.doc_id].split())}")


def _facts(view: CandidateView) -> str:
    label = "-" if view.label is None else view.label
    return f"label {label}  truncated {view.truncated_by or '-'}"


def _candidate(view: CandidateView, texts: Mapping[str, str]) -> dict[str, Any]:
    by_run = {
        run: {
            name: value._asdict() if isinstance(value, Opponent) else value
            for name, value in details.items()
        }
        for run, details in view.details.items()
    }
    # The opponents of the last stage that has them, beside each stage's.
    last: dict[str, Any] = {"strongest": None, "weakest": None}
    for details in by_run.values():
        last |= details
    values = asdict(replace(view, details={}))
    del values["truncated"]
    return (
        values
        | last
        | {"details": by_run}
        | {"truncated": view.truncated, "text": texts.get(view.doc_id)}
    )


def _print_json(**values: object) -> None:
    write_line(json.dumps(values, ensure_ascii=False, allow_nan=False))
