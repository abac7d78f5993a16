"""`beamrank report DIR...`, `beamrank inspect DIR`: what runs and trainings did, as a page or
in the terminal.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Any

import typer

from beamrank.commit.listing import REPORT
from beamrank.commit.plan import read_plan
from beamrank.commit.status import shard_attempts
from beamrank.errors import ConfigError
from beamrank.evaluation.compare import short_names
from beamrank.evaluation.measures import parse_measures, split_measures
from beamrank.formats.checks import number
from beamrank.formats.qrels import read_qrels
from beamrank.notes import first_few
from beamrank.ranking.variants import Depths, Opponent
from beamrank.report.blocks import Failed
from beamrank.report.page import SECTIONS, is_compared, is_shown, report_part, write_report
from beamrank.report.report import Report, ReportSettings, gather
from beamrank.report.runs import CandidateView, PlanRuns
from beamrank.report.sections import differences_table
from beamrank.report.stage_rows import answer_words
from beamrank.storage import files as storage
from beamrank.storage.globs import absolute_glob
from beamrank.storage.urls import refuse_credentials
from pipelines.commands import arguments
from pipelines.commands.arguments import (
    AsJson,
    OwnQrels,
    Quiet,
    RunFolder,
    Verbose,
    console_progress,
    open_runs,
    option,
)
from pipelines.console.tables import print_result
from pipelines.console.terminal import write_error, write_line

_Texts = Annotated[bool, option("Show passages: one scan of the corpus.", "--texts/--no-texts")]


def report(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR",
            help="Outputs of runs and of trainings, finished or not.",
        ),
    ],
    output: Annotated[
        str | None,
        option("Where the files go; by default DIR/report.", metavar="FOLDER"),
    ] = None,
    baseline: Annotated[
        str | None,
        option(
            "The run that others are compared with, by default the first; or the output of an "
            "earlier run: what changed since?",
            metavar="STAGE|DIR",
        ),
    ] = None,
    qrels: OwnQrels = None,
    measures: Annotated[
        str | None, option("Measures in place of the run's own, separated by spaces or commas.")
    ] = None,
    k0: Annotated[
        str | None,
        option(
            "Depths in the curve of a stage that scores docs; by default all up to its k.",
            metavar="N,N",
        ),
    ] = None,
    k1: Annotated[
        str | None,
        option(
            "Depths in the curves of a stage that compares pairs; by default up to twenty, or "
            "five.",
            metavar="N,N",
        ),
    ] = None,
    opponents: Annotated[
        str | None,
        option("Add `sample` with so many opponents of a candidate to the curves.", metavar="N,N"),
    ] = None,
    trials: Annotated[
        int, option("Random draws of `sample` that are averaged.", min=1, max=1000)
    ] = 10,
    queries: Annotated[int, option("How many queries have a section of their own.", min=0)] = 30,
    changes: Annotated[int, option("How many rank changes of each stage are shown.", min=0)] = 10,
    texts: _Texts = True,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    **of_sections: Any,
) -> None:
    """Write a page about runs or trainings, with an answer, curves, tables and pictures, from what
    they stored. Needs no model.

    Prints the path of the page, which needs no network.
    """
    console = console_progress(verbose, quiet)
    settings = ReportSettings(
        baseline=None if is_compared(baseline) else baseline,
        changes=changes,
        queries=queries,
        texts=texts,
        depths=Depths(
            _numbers("--k0", k0), _numbers("--k1", k1), _numbers("--opponents", opponents), trials
        ),
    )
    names = () if measures is None else tuple(parse_measures(split_measures(measures)))
    for path in paths:
        refuse_credentials(path, "DIR")
    folder = storage.absolute(output) if output else None
    if folder is not None:
        storage.check_folder(folder)
    absolute = [storage.absolute(path) for path in paths]
    for path in absolute:
        if storage.exists(path) and not storage.is_folder(path):
            raise ConfigError(
                f"{path} is no output: `beamrank compare RUN... --qrels QRELS` compares run files",
                kind="run-file",
                file=path,
            )
    others = [path for path in absolute if is_shown(path)]
    folders = [path for path in absolute if path not in others]
    changed: dict[str, object] = {} if qrels is None else {"qrels": absolute_glob(qrels)}
    changed |= {"measures": names} if names else {}
    reports = [gather(open_runs(folder, changed), settings) for folder in folders]
    if others:
        reports.append(Report(", ".join(short_names(others).values()), folders=others))
    for gathered in reports:
        for line in gathered.missing:
            console.note(f"{gathered.title}: {line}")
        for warning in gathered.warnings:
            console.warn(f"{gathered.title}: {warning.text}")
    options = {"paths": paths, "verbose": verbose, "quiet": quiet, "baseline": baseline}
    options |= of_sections
    parts = [report_part(gathered, options) for gathered in reports]
    page = write_report(folder or storage.own_folder(absolute[0], REPORT), parts)
    if as_json:
        runs = [_answer(gathered) for gathered in reports if gathered.execution]
        _print_json(page=page, runs=runs)
    else:
        write_line(page)
    arguments.end_if_failed(block for part in parts for block in part.blocks(Failed))


def _answer(report: Report) -> dict[str, Any]:
    return {
        "run": report.title,
        "answer": answer_words(report.stages),
        "stages": [asdict(row) for row in report.stages],
        "warnings": [warning._asdict() for warning in report.warnings],
        "missing": report.missing,
    }


def _numbers(option: str, text: str | None) -> tuple[int, ...]:
    try:
        numbers = tuple(
            sorted({number(int, part) for part in (text or "").split(",") if part.strip()})
        )
    except ValueError as error:
        raise ConfigError(
            f"{option} {text!r} is not a list of whole numbers: write it like 10,20,50"
        ) from error
    if numbers and numbers[0] < 0:
        raise ConfigError(f"{option} {text!r} has a negative number: give 0 or more")
    return numbers


arguments.add_options(report, (section.blocks for section in SECTIONS.importable().values()))


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
    texts: _Texts = True,
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
