"""Arguments that several commands take."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamrank.commit.plan import read_plan
from beamrank.config.load import load_config, stored_config
from beamrank.config.run import RunConfig
from beamrank.errors import ConfigError, PreflightError
from beamrank.formats import qrels, runs
from beamrank.formats.columns import TABLES, checked_hints
from beamrank.formats.run_writer import Ranking, write_run
from beamrank.formats.schemas import QRELS, RUN, FileHints, Schema
from beamrank.machine import describe_machine
from beamrank.plugins import options_of
from beamrank.report.blocks import Block, Failed
from beamrank.sources import fetch_part
from beamrank.storage import files as storage
from beamrank.storage.streams import check_packable
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import RESULT_FORMATS
from pipelines.console.terminal import write_error, write_line
from pipelines.runs.run_metadata import Component, write_metadata

if TYPE_CHECKING:
    from beamrank.report.runs import PlanRuns

_FAILED = 4


def option(help_text: str, *names: str, **settings: Any) -> Any:
    """An option of a command; its name follows from the parameter unless `names` has it. `settings`
    are typer's.
    """
    return typer.Option(*names, help=help_text, **settings)


def one_of(flag: str, names: Collection[str], help_text: str) -> Any:
    """An option whose values are the names of a registry."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in names:
            raise ConfigError(f"{flag} {value!r} does not exist: choose one of {', '.join(names)}")
        return value

    return option(help_text, flag, metavar=f"{{{','.join(names)}}}", callback=check)


def add_options(command: Callable[..., Any], extensions: Iterable[Callable[..., Any]]) -> None:
    """Gives a command the options of extensions, which it takes in place of its `**` parameter."""
    parameters = dict([*inspect.signature(command).parameters.items()][:-1])
    added = {
        parameter.name: parameter for extension in extensions for parameter in options_of(extension)
    }
    chosen = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in {**parameters, **added, **parameters}.values()
    ]
    command.__signature__ = inspect.Signature(chosen)  # type: ignore[attr-defined]


def qrels_option(help_text: str) -> Any:
    """An option that takes a file of judgments, or `irds:DATASET`, which becomes a file."""

    def named(context: typer.Context, value: str | None) -> str | None:
        progress = ConsoleProgress(quiet=context.params.get("quiet", False))
        return None if value is None else fetch_part(value, "qrels", progress)

    return option(help_text, "--qrels", metavar="FILE|irds:DATASET", callback=named)


Exclude = Annotated[
    str | None,
    option(
        "Leave docs out of the rankings: `self` (the doc with the query's own id: ArguAna, "
        "Quora), or the docs in FILE, whose rows each have a query_id and a doc_id.",
        metavar="self|FILE",
    ),
]
MaxBadRows = Annotated[
    int,
    option(
        "Leave out, and count, up to N rows of each input that cannot be used; more are an error.",
        min=0,
        metavar="N",
    ),
]
RunFormat = Annotated[
    str | None,
    option("The format of the runs; default: recognized.", "--run-format", metavar="NAME"),
]
QrelsFormat = Annotated[
    str | None,
    option("The format of the qrels; default: recognized.", "--qrels-format", metavar="NAME"),
]
Columns = Annotated[
    str | None,
    option(
        "Columns with other names than usual, or their numbers in files without a header: "
        "relevance=stars, run.doc_id=2.",
        "--columns",
        metavar="MEANING=NAME,...",
    ),
]
ConfigPath = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="A YAML configuration: docs/reference/configuration.md. `-` is standard input.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    option(
        "Override a key of the configuration: --set dtype=float32.", "--set", metavar="KEY=VALUE"
    ),
]
CheckpointOptions = Annotated[
    list[str] | None,
    option(
        "An option of the checkpoint's architecture: --set prompt=prompt.txt.",
        "--set",
        metavar="KEY=VALUE",
    ),
]
RunFolder = Annotated[str, typer.Argument(metavar="DIR", help="A run's output: a path or a URL.")]
OwnQrels = Annotated[str | None, qrels_option("Judgments in place of the run's own.")]
ShowTexts = Annotated[bool, option("Show passages: one scan of the corpus.", "--texts/--no-texts")]
Output = Annotated[str | None, option("The output folder; overrides `output`.")]
Reuse = Annotated[
    list[str] | None,
    option(
        "The output of an earlier run, whose scores of the same texts are reused.",
        metavar="URL",
    ),
]
Limit = Annotated[
    int | None,
    option("Trial run on the first N topics of the plan (topics.limit).", min=1, metavar="N"),
]
Verbose = Annotated[bool, option("Also print the events of the log.", "--verbose", "-v")]
AsJson = Annotated[bool, option("Print one JSON object.", "--json")]
ResultFormat = Annotated[str, one_of("--format", RESULT_FORMATS, "The format of the result.")]
# Eager: `qrels_option` fetches while the arguments are read, and must know.
Quiet = Annotated[bool, option("Print warnings and errors only.", "--quiet", "-q", is_eager=True)]


def console_progress(verbose: bool, quiet: bool) -> ConsoleProgress:
    """The progress of a command on standard error."""
    if verbose and quiet:
        raise ConfigError("give --verbose or --quiet, not both")
    return ConsoleProgress(quiet=quiet, verbose=verbose)


def load_run_config(
    config: str,
    overrides: Sequence[str] | None = None,
    output: str | None = None,
    limit: int | None = None,
    reuse: Sequence[str] | None = None,
) -> RunConfig:
    """The configuration that the arguments of a command give, with the sections of all registered
    first stages.
    """
    # It takes a second to import, and other commands do without.
    import models.stages  # noqa: F401

    limits = [] if limit is None else [f"topics.limit={limit}"]
    return load_config(config, [*(overrides or ()), *limits], output, reuse or ())


def end_if_failed(blocks: Iterable[Block]) -> None:
    """Ends a command with exit code 4 where there are reasons to fail."""
    if failed := [block.text for block in blocks if isinstance(block, Failed)]:
        for reason in failed:
            write_error(reason)
        raise typer.Exit(_FAILED)


def open_runs(output: str, changed: Mapping[str, object] | None = None) -> "PlanRuns":
    """The runs of an output, with other settings of its configuration, such as other qrels.

    Judgments of its own that have changed since they were measured are told.
    """
    # They take a second to import, and other commands do without.
    from beamrank.report.runs import PlanRuns
    from models.stages.core import open_stages

    plan = read_plan(output)
    config = stored_config(plan.config, output).model_copy(update=changed)
    notes = [] if "qrels" in (changed or {}) else plan.changed_qrels()
    for note in notes:
        write_error(f"note: {note}")
    return PlanRuns(plan, config, open_stages(plan.stages), notes)


def scored_stage(runs: "PlanRuns", wanted: str | None) -> str:
    """The name of the finished stage whose scores are read: by default the last that scores docs
    one by one.
    """
    names = [stage.name for stage in runs.finished]
    pointwise = [name for name in names if runs.plan.stage(name).input_docs == 1]
    if wanted in names or (wanted is None and pointwise):
        return wanted or pointwise[-1]
    listed = ", ".join(names) or "there is none"
    if wanted is not None:
        raise ConfigError(f"--stage {wanted!r} is not a finished stage that ranks: {listed}")
    raise PreflightError(
        f"{runs.plan.output} has no finished stage that scores docs one by one: finish the run, "
        f"or choose another stage with --stage ({listed})"
    )


def check_run_output(output: str, runs: Sequence[str]) -> None:
    """Refuses an output of a run made of others that is one of these, a folder, or not a lasting
    file.
    """
    if storage.resolved(output) in map(storage.resolved, runs):
        raise ConfigError(
            f"--output {output} is one of the runs: give a different path, or it would be replaced"
        )
    if storage.is_folder(output):
        raise ConfigError(f"--output {output} is a folder: give the path of a file")
    check_packable(output)
    storage.check_lasting(output)


def write_result_run(
    output: str, rankings: Mapping[str, Ranking], run_tag: str, retrieval: Sequence[Component]
) -> None:
    """Writes a run and its metadata, and prints its path."""
    write_run(output, rankings, run_tag)
    if storage.is_special(output):
        # Standard output may hold the run itself.
        write_error(f"note: no metadata is written, because {output} is not a file")
        return
    write_metadata(output, run_tag, describe_machine(), retrieval)
    write_line(output)


def file_hints(
    run_format: str | None = None, qrels_format: str | None = None, columns: str | None = None
) -> FileHints:
    """The hints in the options about the files; raises ConfigError where they mean nothing."""
    of_runs, of_qrels = _columns(RUN, columns), _columns(QRELS, columns)
    return FileHints(
        checked_hints(RUN, runs.FORMATS, of_runs, run_format or TABLES[0]),
        checked_hints(QRELS, qrels.FORMATS, of_qrels, qrels_format or TABLES[0]),
    )


def _columns(schema: Schema, columns: str | None) -> dict[str, str | int]:
    """The names or numbers of columns of one kind of file."""
    kinds = {"run": RUN, "qrels": QRELS}
    named: dict[str, str | int] = {}
    for column in columns.split(",") if columns else ():
        key, _, name = (part.strip() for part in column.partition("="))
        kind, _, meaning = key.rpartition(".")
        of = [kinds[kind]] if kind in kinds else [] if kind else [*kinds.values()]
        if not name or not any(meaning in schema_of_kind.columns for schema_of_kind in of):
            raise ConfigError(
                f"--columns {column!r} is not a meaning and a column, such as relevance=stars or "
                f"run.doc_id=2; the meanings are {', '.join({**RUN.columns, **QRELS.columns})}"
            )
        if schema in of and meaning in schema.columns:
            named[meaning] = int(name) if name.isdecimal() else name
    return named
