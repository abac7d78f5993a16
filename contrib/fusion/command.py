"""`beamrank fuse RUN...`: one run from several."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from beamrank.errors import ConfigError
from beamrank.formats.checks import number
from beamrank.formats.run_writer import FORMATS
from beamrank.formats.runs import read_run
from beamrank.notes import of_files
from beamrank.storage import files as storage
from contrib.fusion.methods import METHODS, NORMALIZATIONS, check_fusion, fuse
from pipelines.commands.arguments import (
    Columns,
    RunFormat,
    check_run_output,
    file_hints,
    one_of,
    write_result_run,
)
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_error
from pipelines.runs.run_metadata import Component

HELP_PANEL = "Evaluate"

_RANKED = ", ".join(name for name, method in METHODS.items() if method.reads_ranks)
_WEIGHTED = ", ".join(name for name, method in METHODS.items() if method.takes_weights)


def fuse_runs(
    run: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN", help="TREC or MS MARCO runs: paths or URLs, compressed or not."
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            help="The TREC run to write: a path or a URL; compressed if named .gz, .bz2, .xz or "
            ".zst."
        ),
    ],
    method: Annotated[
        str,
        one_of("--method", METHODS, f"How a doc's ranks ({_RANKED}) or scores (others) are fused."),
    ],
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="W,W...", help=f"With {_WEIGHTED}: a weight for each run, in their order."
        ),
    ] = None,
    norm: Annotated[
        str | None,
        one_of(
            "--norm",
            NORMALIZATIONS,
            "How the scores that a run gives a query are normalized; default: min-max.",
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option(min=1, help="Docs of a query in the fused run; default: all.")
    ] = None,
    run_format: RunFormat = None,
    columns: Columns = None,
    tag: Annotated[
        str | None, typer.Option(help="The run tag; default: `fused-` and the method.")
    ] = None,
) -> None:
    """Fuse runs into one, and write its metadata beside it. Prints the path of the run."""
    numbers = _numbers(weights)
    check_fusion(len(run), method, numbers, norm)
    run_tag = f"fused-{method}" if tag is None else tag
    if len(run_tag.split()) != 1 or not run_tag.isprintable():
        raise ConfigError(
            f"--tag {run_tag!r} is a column of the run: give it no white space or control "
            "characters"
        )
    check_run_output(output, run)
    with ConsoleProgress().bar("fuse") as bar:
        hints = file_hints(run_format, columns=columns).run
        runs = [read_run(url, hints=hints, progress=bar) for url in run]
    fused = fuse(runs, method, weights=numbers, norm=norm, k=k)
    for line in of_files({url: read.notes.facts() for url, read in zip(run, runs, strict=True)}):
        write_error(f"note: {line}")
    for url, read in zip(run, runs, strict=True):
        if not METHODS[method].reads_ranks and not FORMATS[read.notes.format].has_scores:
            write_error(f"note: {url} has no scores: minus its ranks are taken for them")
        if missing := len(fused) - len(read.order):
            write_error(
                f"note: {url} lacks topics of the other runs: {missing:,}; there it adds nothing"
            )
    used = None if METHODS[method].reads_ranks else norm or next(iter(NORMALIZATIONS))
    write_result_run(output, fused, run_tag, list(describe_fusion(run, method, used, numbers)))


def _numbers(weights: str | None) -> list[float]:
    try:
        return [number(float, weight) for weight in (weights or "").replace(",", " ").split()]
    except ValueError as error:
        raise ConfigError(
            f"--weights {weights!r} must be numbers that are separated by commas"
        ) from error


def describe_fusion(
    runs: Sequence[str], method: str, norm: str | None, weights: Sequence[float]
) -> Iterator[Component]:
    """The runs that are fused, and how."""
    names = [storage.name(run) for run in runs]
    # Such as mono.trec of two outputs.
    names = names if len(set(names)) == len(names) else list(runs)
    yield from ({"name": name, "run": run} for name, run in zip(names, runs, strict=True))
    settings = {"norm": norm, "weights": list(weights), "interpolates": names}
    yield {"name": method, **{key: value for key, value in settings.items() if value}}
