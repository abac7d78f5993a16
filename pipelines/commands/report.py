"""`beamrank report DIR...`: what runs and trainings did, as a page."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from beamrank.commit.listing import REPORT
from beamrank.errors import ConfigError
from beamrank.evaluation.compare import short_names
from beamrank.evaluation.measures import parse_measures, split_measures
from beamrank.formats.checks import number
from beamrank.ranking.variants import Depths
from beamrank.report.blocks import Failed
from beamrank.report.page import SECTIONS, is_compared, is_shown, report_part, write_report
from beamrank.report.report import Report, ReportSettings, gather
from beamrank.report.stage_rows import answer_words
from beamrank.storage import files as storage
from beamrank.storage.globs import absolute_glob
from beamrank.storage.urls import refuse_credentials
from pipelines.commands import arguments
from pipelines.commands.arguments import (
    AsJson,
    OwnQrels,
    Quiet,
    ShowTexts,
    Verbose,
    console_progress,
    open_runs,
    option,
)
from pipelines.console.terminal import write_line


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
    texts: ShowTexts = True,
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
        write_line(json.dumps({"page": page, "runs": runs}, ensure_ascii=False, allow_nan=False))
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
