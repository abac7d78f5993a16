"""Executes `beamrank score`: one stage, by the launcher of runs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from beamrank.commit.listing import manifest_name
from beamrank.commit.receipts import Manifest
from beamrank.commit.status import read_receipts
from beamrank.config.score import ScoreConfig
from beamrank.formats.notes import counted
from beamrank.storage import files as storage
from models.stages.pairs import ScorePairs
from pipelines.console.progress import ConsoleProgress
from pipelines.dataflow_launcher import DataflowLauncher
from pipelines.launcher import Launcher, resumable
from pipelines.plan.make_plan import check_writable
from pipelines.plan.plan_scores import ScorePlan, plan_scores
from pipelines.runners import dataflow
from pipelines.runners.options import Runner, beam_options, server_command
from pipelines.runs.owner import made_current

_SAMPLE_ROWS = 64
_LAUNCHERS = {Runner.DATAFLOW: DataflowLauncher}


@dataclass(frozen=True)
class Prospect:
    """What `score_pairs` will do.

    Attributes:
        pairs: rows of all files.
        files: how many files there are.
        kind: of the model, `mono` for pairs or `duo` for triples.
        shards: how many shards there are.
        remaining_shards: those without a receipt in the output.
        remaining_pairs: the rows of those.
        checkpoint: the reference of the checkpoint.
        device: where the model runs.
        dtype: of the model.
        remaining_seconds: of one worker on this machine, from a measurement of the first rows; None for Dataflow.
    """

    pairs: int
    files: int
    kind: str
    shards: int
    remaining_shards: int
    remaining_pairs: int
    checkpoint: str
    device: str
    dtype: str
    remaining_seconds: float | None


def preview_scores(settings: ScoreConfig, runner: Runner, flags: Sequence[str], console: ConsoleProgress) -> Prospect:
    """What `score_pairs` would do with the same arguments. Writes nothing.

    Raises:
        BeamrankError: an argument or an input is wrong.
    """
    _, found = _plan(settings, runner, flags, console)
    plan, stage = found.plan, found.stage
    done = read_receipts(plan)[stage.name]
    open_shards = [shard for shard in plan.shards if shard.index not in done]
    rows = sum(shard.rows.end - shard.rows.start for shard in open_shards if shard.rows)
    pairs = sum(file.rows for file in found.files)
    return Prospect(
        pairs=pairs,
        files=len(found.files),
        kind=stage.kind,
        shards=len(plan.shards),
        remaining_shards=len(open_shards),
        remaining_pairs=rows,
        checkpoint=stage.checkpoint,
        device=stage.device,
        dtype=stage.dtype,
        remaining_seconds=None if runner is Runner.DATAFLOW else rows * _seconds_a_row(found),
    )


def score_pairs(settings: ScoreConfig, runner: Runner, flags: Sequence[str], console: ConsoleProgress) -> str:
    """Scores all pairs; shards that are done are skipped.

    Args:
        settings: the options.
        runner: where the Beam job runs.
        flags: Beam's own.
        console: where notes and progress go.

    Returns:
        The URL of the manifest, which names the parts in the order of the pairs.

    Raises:
        BeamrankError: an argument or an input is wrong, or the job failed.
    """
    beam_options(runner, flags)
    server_command(runner, flags, console)
    settings, found = _plan(settings, runner, flags, console)
    plan, name = found.plan, found.stage.name
    check_writable(plan.output)
    launcher = _LAUNCHERS.get(runner, Launcher)(plan, settings, console, runner, flags)
    with resumable(), made_current(plan):
        manifest = launcher.run_stage(plan.stage(name))
    _report(manifest, console)
    return storage.join(plan.folder(name).url, manifest_name(manifest.shard_digests))


def _seconds_a_row(found: ScorePlan) -> float:
    """Measured on the first rows; a first call warms the model up."""
    first = found.plan.shards[0].rows
    assert first is not None
    some = first._replace(end=min(first.end, first.start + _SAMPLE_ROWS))
    found.stage.score(some)
    start = time.monotonic()
    found.stage.score(some)
    return (time.monotonic() - start) / (some.end - some.start)


def _plan(
    settings: ScoreConfig, runner: Runner, flags: Sequence[str], console: ConsoleProgress
) -> tuple[ScoreConfig, ScorePlan]:
    """The plan, and the options as the runner settles them."""
    if runner is not Runner.DATAFLOW:
        return settings, plan_scores(settings, console)
    dataflow.check_settings(settings)
    settings, scoring = dataflow.settle(settings)
    dataflow.check_flags(flags, [ScorePairs], scoring.device, wait=True)
    return settings, plan_scores(settings, console, scoring)


def _report(manifest: Manifest, console: ConsoleProgress) -> None:
    rows = sum(receipt.rows for receipt in manifest.receipts)
    bad_rows = sum(receipt.bad_rows for receipt in manifest.receipts)
    if bad_rows:
        first = next(receipt.examples[0] for receipt in manifest.receipts if receipt.examples)
        console.warn(
            f"{counted(bad_rows, 'row')} of {rows:,} could not be scored (first: {first}); their score is null"
        )
