"""Gives the open shards of a first stage their rows of a given run: in this process, or as Beam jobs in turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from beamrank.commit.plan import Plan
from beamrank.commit.scan_reports import ScanWatch
from beamrank.commit.shards import ShardTask
from beamrank.join.run_files import SMALL_BYTES
from beamrank.join.run_units import UNIT_BYTES, unit_ranges, write_units
from models.stages.given_run import GivenRun, OpenShards
from pipelines.console.progress import Bar, Scan
from pipelines.corpus_join import RunJob
from pipelines.plan.estimate import shuffle_passes
from transforms.given_run import GivenRunJob, ReadRun


@dataclass(frozen=True)
class RunJoin:
    """The rows of a given run, for the open shards of a stage.

    Attributes:
        plan: the plan.
        stage: the stage.
        tasks: its open shards.
        note: prints a note for the user.
        run_job: runs a job.
        bar: shows what this process does.
        units_prefix: how the list of a run's units is named.
        shuffles_in_memory: whether the runner keeps the shuffle in this machine's memory.
    """

    plan: Plan
    stage: GivenRun
    tasks: Sequence[ShardTask]
    note: Callable[[str], None]
    run_job: RunJob
    bar: Bar
    units_prefix: str
    shuffles_in_memory: bool

    def run(self) -> None:
        """Reads a small run here, and a larger one as a Beam job: several where the shuffle does not fit in memory."""
        reader, units = self.stage.open()
        size = sum(unit.size_bytes for unit in units)
        if size <= SMALL_BYTES:
            done: list[int] = []

            def note(shard: int) -> None:
                done.append(shard)
                self.bar.update(len(done), len(self.tasks), "shards")

            self.stage.run_here(self.tasks, reader, units, self._shards(self.tasks), note)
            return
        folder = self.plan.folder(self.stage.name)
        url, ranges = write_units(folder.url, self.units_prefix, units), unit_ranges(units, UNIT_BYTES)
        passes = shuffle_passes(reader.sent_bytes(units), len(self.tasks)) if self.shuffles_in_memory else 1
        if passes > 1:
            self.note(f"{self.stage.name}: the shuffle does not fit in memory at once; {passes} passes over the run")
        for number in range(passes):
            some = self.tasks[number * len(self.tasks) // passes : (number + 1) * len(self.tasks) // passes]
            work = GivenRunJob(self.stage, folder, reader, url, self._shards(some))
            watch = ScanWatch(folder.url)
            before, total = number * len(ranges), passes * len(ranges)
            read = Scan(watch.count, len(ranges), before, total, noun="units of the run read")
            self.run_job(some, ReadRun(work, ranges), read)

    def _shards(self, tasks: Sequence[ShardTask]) -> OpenShards:
        is_open = np.zeros(len(self.plan.shards), np.bool_)
        is_open[[task.shard for task in tasks]] = True
        return OpenShards(self.plan.shards.first_hashes, is_open)
