"""Gives the open shards of a first stage their rows of a given run: in this process, or as Beam jobs in turn."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import watch_scans
from beamrank.commit.shards import ShardTask
from beamrank.join.run_units import SMALL_BYTES, UNIT_BYTES, unit_ranges, write_units
from models.stages.given_run import GivenRun, RunScan
from pipelines.console.progress import Bar, Scan
from pipelines.corpus_join import RunJob
from pipelines.plan.estimate import shuffle_passes
from transforms.join import ReadRun


def join_run(
    plan: Plan,
    stage: GivenRun,
    tasks: Sequence[ShardTask],
    run_job: RunJob,
    bar: Bar,
    note: Callable[[str], None],
    units_prefix: str,
    room_bytes: float,
) -> None:
    """Reads a small run here, and a larger one as a Beam job: several where one cannot send so many bytes.

    `tasks` are the open shards of the stage; `note` prints a note for the user; the list of units is named with
    `units_prefix`.
    """
    reader, units = stage.open()
    folder, sizes = plan.folder(stage.name), [unit.size_bytes for unit in units]
    scan = RunScan(stage, folder, reader, units, plan.shards.first_hashes, _are_open(plan, tasks))
    if sum(sizes) <= SMALL_BYTES:
        done: list[int] = []

        def count(shard: int) -> None:
            done.append(shard)
            bar.update(len(done), len(tasks), "shards")

        scan.run_here(tasks, count)
        return
    url, ranges = write_units(folder.url, units_prefix, units), unit_ranges(sizes, UNIT_BYTES)
    passes = shuffle_passes(reader.sent_bytes(units), len(tasks), room_bytes) if room_bytes < math.inf else 1
    if passes > 1:
        note(f"{stage.name}: one job cannot send all rows; {passes} passes over the run")
    for number in range(passes):
        some = tasks[number * len(tasks) // passes : (number + 1) * len(tasks) // passes]
        work = ReadRun(replace(scan, units=url, is_open=_are_open(plan, some)), ranges)
        before, total = number * len(ranges), passes * len(ranges)
        run_job(some, work, Scan(watch_scans(folder.url), len(ranges), before, total, noun="units of the run read"))


def _are_open(plan: Plan, tasks: Sequence[ShardTask]) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    is_open = np.zeros(len(plan.shards), np.bool_)
    is_open[[task.shard for task in tasks]] = True
    return is_open
