"""Commands on a run's output: `beamrank status|verify|gc|aggregate DIR`."""

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from beamrank.commit.check import (
    Garbage,
    Verification,
    collect_garbage,
    find_garbage,
    verify_stages,
)
from beamrank.commit.metrics import metrics
from beamrank.commit.parts import sealed_stages
from beamrank.commit.plan import read_plan
from beamrank.commit.status import StageStatus, read_status, run_eta_seconds
from beamrank.config.load import stored_config
from beamrank.errors import ConfigError, PreflightError
from beamrank.formats.rejects import REJECTS
from beamrank.notes import counted
from beamrank.ranking.aggregation import METHODS
from beamrank.storage import files as storage
from beamrank.system import system
from pipelines.commands.arguments import (
    AsJson,
    RunFolder,
    one_of,
    option,
)
from pipelines.console.progress import ConsoleProgress, duration
from pipelines.console.tables import cost_words, left_open_words
from pipelines.console.terminal import write_error, write_line

_HOUR_SECONDS = 3600.0


def status(
    folder: RunFolder,
    as_json: AsJson = False,
    shown_format: Annotated[
        str | None,
        one_of("--format", ["prometheus"], "Print metrics in the text format of Prometheus."),
    ] = None,
) -> None:
    """Show the progress, the ETA and the cost of each stage. Reads receipts, so it works with every
    runner.
    """
    plan = read_plan(folder)
    if shown_format is not None:
        print(metrics(plan), end="")
        return
    stages = read_status(plan)
    for note in plan.changed_qrels():
        write_error(f"note: {note}")
    eta = run_eta_seconds(stages)
    if as_json:
        rows = [asdict(stage) for stage in stages]
        rejects = {kind: asdict(rejected) for kind, rejected in plan.rejects.items()}
        print(json.dumps({"stages": rows, "eta_seconds": eta, "rejects": rejects}))
        return
    # Lines rather than a table: they fit any terminal.
    if plan.limited:
        print(f"a trial on {counted(len(plan.topics), 'topic')} (topics.limit)")
    for kind, rejected in plan.rejects.items():
        write_line(
            f"{kind}: {counted(rejected.rows, 'bad row')} left out ({REJECTS}/{rejected.file})"
        )
    for stage in stages:
        write_line(f"{stage.stage}: {', '.join(_facts(stage))}")
    print(f"run: {_run(stages, eta)}")


def _facts(stage: StageStatus) -> Iterator[str]:
    yield f"{stage.done:,} of {stage.shards:,} shards"
    if stage.at_work:
        done, inputs = (
            sum(getattr(work, name) for work in stage.at_work) for name in ("done", "inputs")
        )
        yield f"{done:,} of {inputs:,} inputs of {counted(len(stage.at_work), 'shard')} at work"
    yield from left_open_words(stage.left_open)
    if stage.kept_answers:
        yield counted(stage.kept_answers, "kept answer")
    if stage.elapsed_seconds is not None:
        yield f"elapsed {duration(stage.elapsed_seconds)}"
    if stage.finished or stage.eta_seconds is None:
        yield "finished" if stage.finished else "ETA unknown"
    else:
        stopped = " when resumed" if stage.elapsed_seconds is None else ""
        yield f"ETA {duration(stage.eta_seconds)}{stopped}"
    yield from cost_words(stage)
    if stage.bad_rows:
        yield counted(stage.bad_rows, "bad row")


def _run(stages: Sequence[StageStatus], eta: float | None) -> str:
    if all(stage.finished for stage in stages):
        return "all stages finished"
    if eta is not None:
        return f"ETA {duration(eta)}"
    unknown = [stage.stage for stage in stages if stage.eta_seconds is None]
    return f"ETA unknown until {unknown[-1]} starts"


def verify(folder: RunFolder, as_json: AsJson = False) -> None:
    """Check every file of a run's output, and its local index, against receipts and digests. Writes
    nothing.

    Prints one line for each corrupted or missing file: what is wrong with it, and what to do. Exit
    code 1 if there are any.
    """
    console = ConsoleProgress()
    checked = _verified(storage.absolute(folder), console)
    if as_json:
        print(json.dumps(asdict(checked)))
    else:
        for finding in checked.findings:
            write_line(finding)
    for note in checked.notes:
        console.note(note)
    if checked.stray:
        console.note(f"unreferenced files: {checked.stray:,}; `beamrank gc` removes them")
    read = f"files read: {checked.files:,} ({checked.bytes:,} bytes)"
    if checked.findings:
        console.note(
            f"{read}; corrupted or missing: {len({finding.file for finding in checked.findings}):,}"
        )
        raise typer.Exit(1)
    console.note(f"{read}; all files verified")


def _verified(output: str, console: ConsoleProgress) -> Verification:
    # They take a second to import, and other commands do without.
    from models.stages.core import open_stages
    from pipelines.runs.verify_runs import verify_runs

    with console.bar("verify") as bar:
        verification = verify_stages(output, bar)
    try:
        plan = read_plan(output)
        config = stored_config(plan.config, output) if plan.has_runs else None
        stages = open_stages(plan.stages)
    except PreflightError as error:
        verification.notes.append(f"the runs were not checked: {error}")
        return verification
    if config is not None:
        verify_runs(plan, stages, config, verification)
    for stage in stages:
        stage.verify(plan, verification)
    return verification


def gc(
    folder: RunFolder,
    dry_run: Annotated[bool, option("List the files and remove nothing.", "--dry-run")] = False,
    yes: Annotated[bool, option("Remove without asking.", "--yes")] = False,
    min_age_hours: Annotated[
        float, option("Keep files newer than this; a running job may use them.", min=0)
    ] = 24.0,
) -> None:
    """Remove unreferenced files: parts of lost attempts, temporary files, unfinished work of
    earlier plans.

    Keeps all plans, runs and logs, and what an interrupted run of the current plan needs to resume.
    Prints the path of each file, its bytes and the reason, separated by tabs. Links, and what is
    behind them, stay.
    """
    console = ConsoleProgress()
    garbage = find_garbage(folder, system.time(), min_age_hours * _HOUR_SECONDS)
    for item in garbage:
        write_line(storage.join(storage.absolute(folder), item.file), item.size_bytes, item.reason)
    if not garbage:
        console.note(f"files to remove: 0 (older than {min_age_hours:g} hours)")
    elif dry_run:
        console.note(f"files to remove: {_total(garbage)}")
    elif yes or _confirmed(garbage):
        # The user may have answered after hours.
        still = collect_garbage(folder, garbage, min_age_hours * _HOUR_SECONDS)
        console.note(f"files removed: {_total(still)}")
    else:
        console.note("files removed: 0")


def _total(garbage: Collection[Garbage]) -> str:
    return f"{len(garbage):,} ({sum(item.size_bytes for item in garbage):,} bytes)"


def _confirmed(garbage: Collection[Garbage]) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("not interactive: pass --yes to remove these files, or --dry-run")
    sys.stdout.flush()
    return typer.confirm(f"files to remove: {_total(garbage)}. Remove them?", err=True)


def aggregate(
    folder: RunFolder,
    aggregation: Annotated[
        str, option(f"One or several, separated by commas: {', '.join(METHODS)}.")
    ],
    k1: Annotated[
        int | None, option("The number of candidates, at most the stage's k.", min=1)
    ] = None,
    opponents: Annotated[
        int | None, option("With sample: the number of opponents of a candidate.", min=1)
    ] = None,
    seed: Annotated[int | None, option("With sample: the random seed; 0 by default.")] = None,
    stage: Annotated[
        str | None,
        option("The stage that compared pairs, where there are several.", metavar="NAME"),
    ] = None,
) -> None:
    """Write runs with other aggregations of the stored pairs, or with a smaller k1, in the formats
    of DIR's runs.

    Prints the path of each.
    """
    from pipelines.runs.aggregate import other_runs
    from pipelines.runs.run_files import write_run_files

    names = [name.strip() for name in aggregation.split(",")]
    plan, config, stages, files = other_runs(folder, names, k1, opponents, seed, stage)
    for path in write_run_files(plan, config, files, stages, sealed_stages(plan)).values():
        write_line(path)
