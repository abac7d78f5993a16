"""`beamrank run CONFIG`: the whole cascade, or one stage of it."""

from typing import Annotated

import typer

from beamrank.config.run import load_config
from beamrank.errors import ConfigError
from pipelines.commands.arguments import (
    ConfigPath,
    Limit,
    Output,
    Overrides,
    Quiet,
    Verbose,
    console_progress,
    with_limit,
)
from pipelines.console.run_log import run_log
from pipelines.console.tables import print_measures
from pipelines.console.terminal import write_line
from pipelines.runners.names import Runner, Stage


def run(
    context: typer.Context,
    config: ConfigPath,
    runner: Annotated[Runner, typer.Option(help="Where the Beam jobs run.")] = Runner.LOCAL,
    overrides: Overrides = None,
    output: Output = None,
    limit: Limit = None,
    stage: Annotated[Stage | None, typer.Option(help="Run this stage alone; those before it must be done.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the job's end.")] = True,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Re-rank: BM25, monoBERT, duoBERT, TREC runs. Finished shards are never done twice.

    Only Beam's own flags follow `--`: beamrank run config.yaml -- --direct_running_mode=multi_processing
    """
    if not wait and runner is not Runner.DATAFLOW:
        raise ConfigError(f"--no-wait needs a runner that outlives this command, and `{runner}` runs inside it")
    settings = load_config(config, with_limit(overrides, limit), output)
    # Beam takes seconds to import, and other commands do without.
    from pipelines.execute import execute

    console = console_progress(verbose, quiet)
    with run_log(console):
        result = execute(settings, runner, context.args, stage, wait, console)
    for job in result.submitted:
        write_line(job)
    if result.evaluations:
        print_measures(result.evaluations)
