"""`beamrank index|plan|run CONFIG`: build an index, estimate, run."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamrank.commit.status import Prediction, Price
from beamrank.config.run import RUN_OPTIONS
from beamrank.errors import ConfigError
from beamrank.formats.corpora import digest_corpus
from beamrank.logs import run_log
from beamrank.notes import counted
from beamrank.storage.local_files import own_temporary_files
from pipelines.commands import arguments as args
from pipelines.commands.arguments import option
from pipelines.console.progress import ConsoleProgress, duration
from pipelines.console.tables import print_measures, print_table
from pipelines.console.terminal import write_line
from pipelines.runners.options import Runner, Share
from pipelines.runners.workers import ENDING, GRACE_SECONDS

if TYPE_CHECKING:
    from pipelines.plan.estimate import Estimate

_HERE = "this machine"


def index(
    config: args.ConfigPath,
    overrides: args.Overrides = None,
    verbose: args.Verbose = False,
    quiet: args.Quiet = False,
) -> None:
    """Build the index of a configuration from its corpus, or check an existing index against the
    corpus.
    """
    # They take a second to import, and other commands do without.
    from models.stages.bm25 import ensure_index
    from pipelines.plan.make_plan import check_apart
    from pipelines.plan.named_inputs import named_inputs

    settings = args.load_run_config(config, overrides)
    if settings.index is None:
        raise ConfigError(f"{config} has no `index:` section: its first stage is an existing run")
    console = args.console_progress(verbose, quiet)
    settings = named_inputs(settings, console)
    assert settings.index is not None
    check_apart(settings)
    with run_log(console.events()):
        digest = ensure_index(settings, digest_corpus(settings.corpus).digest, console)
    write_line(settings.index.path, digest)


def plan(
    config: args.ConfigPath,
    overrides: args.Overrides = None,
    output: args.Output = None,
    limit: args.Limit = None,
    reuse: args.Reuse = None,
    price: Annotated[
        float | None,
        option("The price of a machine per hour, in any currency: shows the cost.", min=0),
    ] = None,
    machine: Annotated[
        str, option("With --price: the machine's name, for the reader.", metavar="NAME")
    ] = "",
    machines: Annotated[
        int, option("How many machines work at once: shows how long they take.", min=1)
    ] = 1,
    save: Annotated[
        bool,
        option(
            "Write the prediction into the output: `status` shows it beside what was spent.",
            "--save",
        ),
    ] = False,
    as_json: args.AsJson = False,
) -> None:
    """Estimate shards, inferences, bytes and seconds from a short measurement on this machine. Only
    --save writes.

    After earlier runs into the same output it shows what remains, and what a changed key repeats.
    BM25 timings are rough estimates until the index exists.
    """
    # Beam takes seconds to import, and other commands do without.
    from pipelines.plan.estimate import estimate
    from pipelines.plan.named_inputs import named_inputs

    settings = named_inputs(
        args.load_run_config(config, overrides, output, limit, reuse), ConsoleProgress()
    )
    found = estimate(settings)
    cost = (
        None
        if price is None
        else Price(machine=machine or _HERE, per_hour=price, machines=machines)
    )
    if save:
        Prediction(
            seconds={stage.stage: stage.predicted_seconds(found.shards) for stage in found.stages},
            price=cost,
        ).save(settings.output)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    print(
        f"{counted(found.topics, 'topic')} in {counted(found.shards, 'shard')}; counts are upper "
        "bounds"
    )
    if found.resumes:
        print("remaining work, after earlier runs into this output:")
    print_table(
        ["stage", "shards", "inferences", "reused", "bytes written", "seconds, one worker"],
        _rows(found),
    )
    for line in (
        *_words(found),
        *_money(found, cost or Price(machine=machine or _HERE, machines=machines)),
    ):
        write_line(line)


def _money(found: "Estimate", price: Price) -> Iterator[str]:
    """What the remaining work takes on machines like this one, and costs."""
    seconds = sum(stage.remaining_seconds for stage in found.stages)
    if price.machines > 1 or price.per_hour:
        names = f"{price.machines:,} machines" if price.machines > 1 else "a machine"
        elapsed = duration(price.elapsed_seconds(seconds))
        yield (
            f"about {elapsed} on {names} ({price.machine}), with a worker as fast as one here "
            "on each"
        )
    if price.per_hour:
        yield (
            f"cost: {seconds / 3600:,.2f} machine hours at {price.per_hour:g}: "
            f"{price.cost(seconds):,.2f}"
        )


def _rows(found: "Estimate") -> Iterator[list[str]]:
    for stage in found.stages:
        shards = (
            f"{stage.remaining_shards:,} of {found.shards:,}"
            if found.resumes
            else f"{found.shards:,}"
        )
        figures = (stage.remaining_inferences, stage.remaining_reused, stage.remaining_bytes)
        yield [
            stage.stage,
            shards,
            *(f"{figure:,}" for figure in figures),
            f"{stage.remaining_seconds:,.1f}",
        ]
    inferences, reused, seconds = (
        sum(getattr(stage, f"remaining_{name}") for stage in found.stages)
        for name in ("inferences", "reused", "seconds")
    )
    yield ["all", "", f"{inferences:,}", f"{reused:,}", "", f"{seconds:,.1f}"]


def _words(found: "Estimate") -> Iterator[str]:
    """Remarks on the table."""
    unfinished = [stage.stage for stage in found.stages if stage.remaining_shards]
    for change in found.changed:
        again = [kind for kind in change.stages if kind in unfinished]
        yield (
            f"{change}: {_are(again)} redone"
            if again
            else f"{change}: an earlier run has done these stages"
        )
    if found.resumes and len(unfinished) > 1:
        first, *later = unfinished
        yield (
            f"{_are(later)} counted whole: which of their shards still count is known once "
            f"{first} is finished"
        )
    if not unfinished:
        yield "all stages finished"
    undecided = [stage.stage for stage in found.stages if stage.remaining_undecided]
    if undecided:
        yield (
            f"{_are(undecided)} counted in both columns: whether an inference is made or reused "
            "is known once its candidates are"
        )
    yield from found.not_reused
    if found.note is not None:
        yield found.note
    if "tokenize" in unfinished:
        free = (
            " with the memory that is free now; in 1 where the runner does not shuffle in this "
            "machine's memory"
        )
        passes = counted(found.join_passes, "pass", "passes")
        yield f"tokenize reads the corpus in {passes}{free if found.join_passes > 1 else ''}"


def _are(stages: Sequence[str]) -> str:
    *others, last = stages
    return f"{', '.join(others)} and {last} are" if others else f"{last} is"


def run(
    context: typer.Context,
    config: args.ConfigPath,
    runner: Annotated[Runner, option("The Beam runner.")] = Runner.LOCAL,
    overrides: args.Overrides = None,
    output: args.Output = None,
    limit: args.Limit = None,
    reuse: args.Reuse = None,
    stage: Annotated[
        str | None,
        option(
            "Run only this stage: retrieve, tokenize, mono, duo, the name of a stage of "
            "`cascade`, or runs. The stages before it must be finished.",
            metavar="NAME",
        ),
    ] = None,
    max_inferences: Annotated[
        int | None, option("Start nothing if `plan` counts more.", min=0)
    ] = None,
    max_hours: Annotated[
        float | None, option("Start nothing if `plan` expects more hours of a worker.", min=0)
    ] = None,
    wait: Annotated[bool, option("Wait for the job to finish.", "--wait/--no-wait")] = True,
    only: Annotated[
        str | None,
        option(
            "Only the shards of process I, from 0, of N: all stages, here, without an engine. The "
            "process that finishes the last shard writes the runs.",
            metavar="I/N",
        ),
    ] = None,
    retries: Annotated[
        int,
        option(
            "How often open shards are started again after a worker or a job server died.", min=0
        ),
    ] = 2,
    grace_seconds: Annotated[
        float,
        option(
            "Time for the shards in progress after the first SIGTERM or SIGHUP; no other is "
            "started.",
            min=0,
        ),
    ] = GRACE_SECONDS,
    verbose: args.Verbose = False,
    quiet: args.Quiet = False,
    **of_packages: Any,
) -> None:
    """Run BM25, monoBERT and duoBERT, and write TREC runs. Resumes: finished shards are skipped.

    Only Beam's own flags follow `--`: beamrank run config.yaml --
    --direct_running_mode=multi_processing
    """
    if not wait and runner is not Runner.DATAFLOW:
        raise ConfigError(
            f"--no-wait needs --runner dataflow: jobs of `{runner}` end with this command"
        )
    settings = args.load_run_config(config, overrides, output, limit, reuse)
    # Beam takes seconds to import, and other commands do without.
    from pipelines.execute import execute
    from pipelines.plan.estimate import Limits

    share = None if only is None else Share.parse(only)
    limits, ENDING.grace_seconds = Limits(max_inferences, max_hours), grace_seconds
    console = args.console_progress(verbose, quiet)
    with own_temporary_files(), run_log(console.events()):
        result = execute(
            settings,
            runner,
            context.args,
            stage,
            wait,
            console,
            limits,
            retries,
            share,
            of_packages,
        )
    for job in result.submitted:
        write_line(job)
    if result.evaluations:
        print_measures(result.evaluations)
    if result.runs:
        console.note(f"to see what the run did: beamrank report {shlex.quote(result.output)}")


args.add_options(run, RUN_OPTIONS.importable().values())
