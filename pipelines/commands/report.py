"""`beamrank report DIR|RUN...`: what runs and trainings did, as a page, curves, tables and pictures."""

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamrank.errors import ConfigError
from beamrank.evaluation.measures import COMPARED_MEASURES, parse_measures, split_measures
from beamrank.formats.excluded import read_excluded
from beamrank.storage import files as storage
from beamrank.storage.globs import absolute_glob
from beamrank.storage.urls import refuse_credentials
from pipelines.commands.arguments import Quiet, Verbose, console_progress, exclude_option, open_runs, qrels_option
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line

if TYPE_CHECKING:
    from beamrank.report.report import Report, ReportSettings


def report(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR|RUN...", help="Outputs of runs and of trainings, finished or not; run files of any system."
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Where the files go; by default DIR/report, or for a RUN `report` beside it."
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="RUN|DIR",
            help="The run that others are compared with, by default the first; or the output of an earlier run: what "
            "changed since?",
        ),
    ] = None,
    qrels: Annotated[str | None, qrels_option("Judgments in place of the run's own.")] = None,
    measures: Annotated[
        str | None, typer.Option(help="Measures in place of the run's own, separated by spaces or commas.")
    ] = None,
    exclude: Annotated[
        str | None,
        exclude_option(
            "Leave docs out of the rankings of run files, as `eval` does. An output has left out what its first stage "
            "excludes."
        ),
    ] = None,
    k0: Annotated[
        str | None,
        typer.Option(
            metavar="N,N", help="Depths in the curve of a stage that scores docs; by default all up to its k."
        ),
    ] = None,
    k1: Annotated[
        str | None,
        typer.Option(
            metavar="N,N", help="Depths in the curves of a stage that compares pairs; by default up to twenty, or five."
        ),
    ] = None,
    opponents: Annotated[
        str | None, typer.Option(metavar="N,N", help="Opponents of a candidate with `sample`; by default four.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, max=1000, help="Random draws of `sample` that are averaged.")] = 10,
    queries: Annotated[int, typer.Option(min=0, help="How many queries have a section of their own.")] = 30,
    changes: Annotated[int, typer.Option(min=0, help="How many rank changes of each stage are shown.")] = 10,
    texts: Annotated[bool, typer.Option("--texts/--no-texts", help="Show passages: one scan of the corpus.")] = True,
    verbose: Verbose = False,
    quiet: Quiet = False,
    **of_sections: Any,
) -> None:
    """Write a page about runs or trainings, with curves, tables and pictures, from what they stored. Needs no model.

    Prints the path of the page, which needs no network.
    """
    from beamrank.ranking.variants import Depths
    from beamrank.report.report import ReportSettings

    console = console_progress(verbose, quiet)
    earlier = None if baseline is None else storage.absolute(baseline)
    earlier = earlier if earlier is not None and storage.is_folder(earlier) else None
    settings = ReportSettings(
        baseline=None if earlier else baseline,
        earlier=earlier,
        changes=changes,
        queries=queries,
        texts=texts,
        depths=Depths(_numbers("--k0", k0), _numbers("--k1", k1), _numbers("--opponents", opponents), trials),
    )
    names = () if measures is None else tuple(parse_measures(split_measures(measures)))
    options = {"paths": paths, "verbose": verbose, "quiet": quiet, **of_sections}
    write_line(report_paths(paths, output, settings, console, qrels, names, exclude, options))


def report_paths(
    paths: Sequence[str],
    output: str | None,
    settings: "ReportSettings",
    console: ConsoleProgress,
    qrels: str | None = None,
    measures: Sequence[str] = (),
    exclude: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Writes a report of outputs, run files and trainings, by default at the first of them.

    Returns:
        The path of the page.
    """
    from beamrank.evaluation.compare import short_names
    from beamrank.report.page import is_shown, report_part, write_report
    from beamrank.report.report import Report
    from beamrank.report.sections.drift import summary

    for path in paths:
        refuse_credentials(path, "DIR")
    folder = storage.absolute(output) if output else None
    if folder is not None:
        storage.check_folder(folder)
    absolute = [storage.absolute(path) for path in paths]
    files = [path for path in absolute if not storage.is_folder(path) and storage.exists(path)]
    others = [path for path in absolute if path not in files and is_shown(path)]
    folders = [path for path in absolute if path not in files and path not in others]
    if files and settings.earlier is not None:
        raise ConfigError(
            f"--baseline {settings.earlier} is an output, but run files ({files[0]}) are compared with a run file"
        )
    if exclude is not None and (folders or others):
        raise ConfigError(
            f"--exclude leaves docs out of run files, and {(folders + others)[0]} is an output: set `exclude` in "
            "the section of its first stage, and run it again"
        )
    reports = _reports(folders, files, settings, qrels, measures, exclude)
    if others:
        reports.append(Report(", ".join(short_names(others).values()), folders=others))
    for found in reports:
        for line in found.missing:
            console.note(f"{found.title}: {line}")
        for line in summary(found.drift) if found.drift else ():
            console.note(line)
    place = storage.parent(absolute[0]) if absolute[0] in files else absolute[0]
    parts = [report_part(found, options) for found in reports]
    return write_report(folder or storage.join(place, "report"), parts)


def _reports(
    folders: Sequence[str],
    files: Sequence[str],
    settings: "ReportSettings",
    qrels: str | None,
    measures: Sequence[str],
    exclude: str | None,
) -> "list[Report]":
    """One report a folder, and one of all files."""
    # They take a second to import, and other commands do without.
    from beamrank.report.gather import gather, gather_files

    changed: dict[str, object] = {} if qrels is None else {"qrels": absolute_glob(qrels)}
    changed |= {"measures": measures} if measures else {}
    earlier = None if settings.earlier is None else open_runs(settings.earlier)
    found = [gather(open_runs(folder, changed), settings, earlier) for folder in folders]
    if files:
        excluded = None if exclude is None else read_excluded(exclude)
        found.append(gather_files(files, qrels, measures or COMPARED_MEASURES, settings, excluded))
    return found


def _numbers(option: str, text: str | None) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted({int(part) for part in (text or "").split(",") if part.strip()}))
    except ValueError as error:
        raise ConfigError(f"{option} {text!r} is not a list of whole numbers: write it like 10,20,50") from error
    if numbers and numbers[0] < 0:
        raise ConfigError(f"{option} {text!r} has a negative number: give 0 or more")
    return numbers


def _with_options() -> inspect.Signature:
    """The parameters of `report` with the options of all sections."""
    from beamrank.report.page import section_options

    own = [each for each in inspect.signature(report).parameters.values() if each.name != "of_sections"]
    added = [each for each in section_options() if each.name not in {option.name for option in own}]
    return inspect.Signature([each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in [*own, *added]])


report.__signature__ = _with_options()  # type: ignore[attr-defined]
