"""`beamrank index CONFIG` and `beamrank run CONFIG`: the index; the whole cascade, or one stage."""

import shlex
from typing import Annotated

import typer

from beamrank.errors import ConfigError
from beamrank.formats.corpora import digest_corpus
from pipelines.commands.arguments import (
    ConfigPath,
    Limit,
    Output,
    Overrides,
    Quiet,
    Reuse,
    Verbose,
    console_progress,
    load_run_config,
)
from pipelines.console.run_log import run_log
from pipelines.console.tables import print_measures
from pipelines.console.terminal import write_line
from pipelines.runners.options import Runner


def index(config: ConfigPath, overrides: Overrides = None, verbose: Verbose = False, quiet: Quiet = False) -> None:
    """Build the index of a configuration from its corpus, or check an existing index against the corpus."""
    # They take a second to import, and other commands do without.
    from models.stages.bm25 import ensure_index
    from pipelines.plan.make_plan import check_apart
    from pipelines.plan.named_inputs import named_inputs

    settings = load_run_config(config, overrides)
    if settings.index is None:
        raise ConfigError(f"{config} has no `index:` section: its first stage is an existing run")
    console = console_progress(verbose, quiet)
    settings = named_inputs(settings, console)
    assert settings.index is not None
    check_apart(settings)
    with run_log(console):
        digest = ensure_index(settings, digest_corpus(settings.corpus).digest, console)
    write_line(settings.index.path, digest)


def run(
    context: typer.Context,
    config: ConfigPath,
    runner: Annotated[Runner, typer.Option(help="The Beam runner.")] = Runner.LOCAL,
    overrides: Overrides = None,
    output: Output = None,
    limit: Limit = None,
    reuse: Reuse = None,
    stage: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Run only this stage: retrieve, tokenize, mono, duo, the name of a stage of `cascade`, or runs. The "
            "stages before it must be finished.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the job to finish.")] = True,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Run BM25, monoBERT and duoBERT, and write TREC runs. Resumes: finished shards are skipped.

    Only Beam's own flags follow `--`: beamrank run config.yaml -- --direct_running_mode=multi_processing
    """
    if not wait and runner is not Runner.DATAFLOW:
        raise ConfigError(f"--no-wait needs --runner dataflow: jobs of `{runner}` end with this command")
    settings = load_run_config(config, overrides, output, limit, reuse)
    # Beam takes seconds to import, and other commands do without.
    from pipelines.execute import execute

    console = console_progress(verbose, quiet)
    with run_log(console):
        result = execute(settings, runner, context.args, stage, wait, console)
    for job in result.submitted:
        write_line(job)
    if result.evaluations:
        print_measures(result.evaluations)
    if result.runs:
        console.note(f"to see what the run did: beamrank report {shlex.quote(result.output)}")
