"""Arguments that several commands take."""

from collections.abc import Sequence
from typing import Annotated

import typer

from beamrank.config.run import RunConfig, load_config
from beamrank.errors import ConfigError
from pipelines.console.progress import ConsoleProgress

ConfigPath = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A YAML configuration: docs/reference/configuration.md.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the configuration: --set dtype=float32."),
]
Output = Annotated[str | None, typer.Option(help="The output folder; overrides `output`.")]
Limit = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Trial run on the first N topics of the plan (topics.limit)."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print the events of the log.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")]


def console_progress(verbose: bool, quiet: bool) -> ConsoleProgress:
    """The progress of a command on standard error.

    Raises:
        ConfigError: both are given.
    """
    if verbose and quiet:
        raise ConfigError("give --verbose or --quiet, not both")
    return ConsoleProgress(quiet=quiet, verbose=verbose)


def load_run_config(
    config: str, overrides: Sequence[str] | None = None, output: str | None = None, limit: int | None = None
) -> RunConfig:
    """The configuration that the arguments of a command give, with the sections of all registered first stages."""
    # It takes a second to import, and other commands do without.
    import models.stages  # noqa: F401

    limits = [] if limit is None else [f"topics.limit={limit}"]
    return load_config(config, [*(overrides or ()), *limits], output)
