"""`beamrank report DIR...`: what runs did, as a page, curves, tables and pictures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from beamrank.config.run import stored_config
from beamrank.errors import ConfigError
from beamrank.stages.plan import read_plan
from beamrank.storage import files as storage
from pipelines.commands.arguments import Quiet, Verbose, console_progress
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line

if TYPE_CHECKING:
    from beamrank.report.run_report import ReportSettings


def report(
    folders: Annotated[list[str], typer.Argument(metavar="DIR...", help="Outputs of runs, finished or not.")],
    output: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where the files go; by default DIR/report of the first DIR.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="STAGE", help="The run that others are compared with; by default the first.")
    ] = None,
    qrels: Annotated[str | None, typer.Option(help="Judgments in place of the run's own.")] = None,
    k0: Annotated[
        str | None, typer.Option(metavar="N,N", help="Depths of mono in the curve; by default all up to mono.k.")
    ] = None,
    k1: Annotated[
        str | None, typer.Option(metavar="N,N", help="Depths of duo in the curves; by default up to twenty, or five.")
    ] = None,
    opponents: Annotated[
        str | None, typer.Option(metavar="N,N", help="Opponents of a candidate with `sample`; by default four.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="How many random draws of `sample` are averaged.")] = 10,
    queries: Annotated[int, typer.Option(min=0, help="How many queries have a section of their own.")] = 30,
    changes: Annotated[int, typer.Option(min=0, help="How many rank changes of each stage are shown.")] = 10,
    texts: Annotated[bool, typer.Option("--texts/--no-texts", help="Show passages: one scan of the corpus.")] = True,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Write a page about finished runs, with curves, tables and pictures, from stored scores. Needs no model.

    Prints the path of the page, which needs no network.
    """
    from beamrank.report.run_report import ReportSettings

    console = console_progress(verbose, quiet)
    settings = ReportSettings(
        baseline=baseline,
        changes=changes,
        queries=queries,
        texts=texts,
        k0s=_numbers("--k0", k0),
        k1s=_numbers("--k1", k1),
        opponents=_numbers("--opponents", opponents),
        trials=trials,
    )
    write_line(report_runs(folders, output, settings, console, qrels))


def report_runs(
    folders: Sequence[str],
    output: str | None,
    settings: "ReportSettings",
    console: ConsoleProgress,
    qrels: str | None = None,
) -> str:
    """Writes a report of some outputs, by default below the first; returns the path of the page."""
    # They take a second to import, and other commands do without.
    import models.stages  # noqa: F401
    from beamrank.report.page import write_report
    from beamrank.report.run_report import gather

    reports = []
    for folder in folders:
        plan = read_plan(folder)
        config = stored_config(plan.config, folder)
        if qrels is not None:
            config = config.model_copy(update={"qrels": storage.absolute(qrels)})
        found = gather(plan, config, settings)
        for line in found.missing:
            console.note(f"{found.title}: {line}")
        reports.append(found)
    return write_report(storage.absolute(output or storage.join(folders[0], "report")), reports)


def _numbers(option: str, given: str | None) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted({int(part) for part in (given or "").split(",") if part.strip()}))
    except ValueError as error:
        raise ConfigError(f"{option} {given!r} is no list of whole numbers: write it like 10,20,50") from error
    if numbers and numbers[0] < 0:
        raise ConfigError(f"{option} {given!r} has a negative number: give 0 or more")
    return numbers
