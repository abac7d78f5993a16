"""`beamrank index|plan|run CONFIG`: build an index, count, run."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamrank.commit.listing import CURRENT
from beamrank.commit.metrics import metrics as metrics_of
from beamrank.commit.plan import read_plan
from beamrank.errors import ConfigError, PreflightError
from beamrank.formats.corpora import digest_corpus
from beamrank.logs import run_log
from beamrank.notes import counted
from beamrank.plugins import chosen
from beamrank.report.page import SECTIONS
from beamrank.storage import files as storage
from beamrank.storage.local_files import own_temporary_files
from beamrank.storage.streams import errors_as
from pipelines.commands import arguments as args
from pipelines.commands.arguments import option
from pipelines.console.progress import ConsoleProgress, at_most_every
from pipelines.console.tables import print_measures, print_table
from pipelines.console.terminal import write_line
from pipelines.run_options import RUN_OPTIONS
from pipelines.runners.options import Runner
from pipelines.runners.workers import ENDING, GRACE_SECONDS

if TYPE_CHECKING:
    from pipelines.plan.estimate import Estimate, StageEstimate


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
    as_json: args.AsJson = False,
) -> None:
    """Count shards and inferences, and expect seconds by receipts of earlier runs. Writes nothing.

    After earlier runs into the same output it shows what remains, and what a changed key repeats.
    """
    # Beam takes seconds to import, and other commands do without.
    from pipelines.plan.estimate import estimate
    from pipelines.plan.named_inputs import named_inputs

    settings = named_inputs(
        args.load_run_config(config, overrides, output, limit, reuse), ConsoleProgress()
    )
    estimated = estimate(settings)
    if as_json:
        print(json.dumps(asdict(estimated)))
        return
    print(
        f"{counted(estimated.topics, 'topic')} in {counted(estimated.shards, 'shard')}; counts are "
        "upper bounds"
    )
    if estimated.resumes:
        print("remaining work, after earlier runs into this output:")
    asks = any(stage.least_requests is not None for stage in estimated.stages)
    amount = "inferences, requests" if asks else "inferences"
    print_table(["stage", "shards", amount, "seconds, one worker"], _rows(estimated))
    for line in _words(estimated):
        write_line(line)


def _rows(estimated: "Estimate") -> Iterator[list[str]]:
    for stage in estimated.stages:
        shards = (
            f"{stage.remaining_shards:,} of {estimated.shards:,}"
            if estimated.resumes
            else f"{estimated.shards:,}"
        )
        most, least = f"{stage.remaining_inferences:,}", stage.least_requests
        if least is not None:
            most = (
                f"{'' if least == stage.remaining_inferences else f'{least:,} to '}{most} requests"
            )
        yield [stage.stage, shards, most, _seconds([stage])]
    inferences = sum(stage.remaining_inferences for stage in estimated.stages)
    yield ["all", "", f"{inferences:,}", _seconds(estimated.stages)]


def _seconds(stages: Sequence["StageEstimate"]) -> str:
    seconds = [stage.remaining_seconds for stage in stages]
    return "unknown" if None in seconds else f"{sum(filter(None, seconds)):,.1f}"


def _words(estimated: "Estimate") -> Iterator[str]:
    """Remarks on the table."""
    unfinished = [stage for stage in estimated.stages if stage.remaining_shards]
    names = [stage.stage for stage in unfinished]
    for change in estimated.changed:
        again = [name for name in change.stages if name in names]
        yield (
            f"{change}: {_are(again)} redone"
            if again
            else f"{change}: an earlier run has done these stages"
        )
    if estimated.resumes and len(names) > 1:
        first, *later = names
        yield (
            f"{_are(later)} counted whole: which of their shards still count is known once "
            f"{first} is finished"
        )
    if not unfinished:
        yield "all stages finished"
    if estimated.topics_known:
        yield (
            f"{estimated.topics_known:,} of {counted(estimated.topics, 'topic')} known from "
            "earlier outputs: scores of the same inputs are reused, and are among the inferences"
        )
    if estimated.note is not None:
        yield estimated.note
    for stage in unfinished:
        if stage.receipts:
            yield (
                f"{stage.stage}: seconds by {counted(stage.receipts, 'receipt')} in {stage.output}"
            )
    if any(stage.remaining_seconds is None for stage in unfinished):
        yield (
            "seconds are unknown until each stage has 3 receipts: run a trial with topics.limit "
            "into the same output (or name it with --reuse), and plan again"
        )
    if "tokenize" in names:
        free = (
            " with the memory that is free now; in 1 where the runner does not shuffle in this "
            "machine's memory"
        )
        passes = counted(estimated.join_passes, "pass", "passes")
        yield f"tokenize reads the corpus in {passes}{free if estimated.join_passes > 1 else ''}"


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
        int | None,
        option("Start nothing if `plan` counts more; with reuse, no stage that makes more.", min=0),
    ] = None,
    max_hours: Annotated[
        float | None,
        option("Start nothing if `plan` expects more hours of a worker, by receipts.", min=0),
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
    metrics: Annotated[
        str | None,
        option(
            "Write what `status --format prometheus` prints to FILE at each progress.",
            metavar="FILE",
        ),
    ] = None,
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
    from pipelines.shares import Share

    measures = () if settings.judgments is None else settings.measures
    judges = [judge(measures, **chosen(judge, of_packages)) for judge in _JUDGES]
    of_run = (chosen(option, of_packages).items() for option in RUN_OPTIONS.values())
    share = None if only is None else Share.parse(only)
    limits, ENDING.grace_seconds = Limits(max_inferences, max_hours), grace_seconds
    console = args.console_progress(verbose, quiet)
    if metrics is not None:
        if share is not None:
            raise ConfigError(
                f"--metrics is the file of one launcher, and --only {only} is one of several: use "
                "`beamrank status DIR --format prometheus`"
            )
        with errors_as(PreflightError, metrics):
            _write_metrics(settings.output, metrics)
        write = partial(_try_write_metrics, settings.output, metrics, console)
        console.on_update = at_most_every(0.0, write)
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
            dict(chain.from_iterable(of_run)),
        )
    if metrics is not None:
        _write_metrics(settings.output, metrics)
    for job in result.submitted:
        write_line(job)
    if result.evaluations:
        print_measures(result.evaluations)
    if result.runs:
        console.note(f"to see what the run did: beamrank report {shlex.quote(result.output)}")
        for judge in judges:
            args.end_if_failed(judge(result.report))


def _write_metrics(output: str, file: str) -> None:
    has_plan = storage.exists(storage.join(output, CURRENT))
    text = metrics_of(read_plan(output)) if has_plan else ""
    storage.replace_stream(file, [text.encode()], through_link=True)


def _try_write_metrics(output: str, file: str, console: ConsoleProgress) -> None:
    try:
        _write_metrics(output, file)
    except OSError as error:
        console.warn(f"--metrics: {error}")


_JUDGES = [section.judges for section in SECTIONS.values() if section.judges]
args.add_options(run, [*RUN_OPTIONS.values(), *_JUDGES])
