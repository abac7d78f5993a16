"""Joins the open shards of a stage with the corpus, or with a given run, for a launcher: one Beam
job, or several.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import apache_beam as beam
import numpy as np

from beamrank.commit import listing
from beamrank.commit.job_files import UnitFile, UnitSource
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import StageFolder, watch_scans
from beamrank.commit.shards import ShardTask
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, DataError
from beamrank.formats.corpora import list_units
from beamrank.formats.decode.base import unit_ranges
from beamrank.join.doc_hashes import (
    RANGE_BYTES,
    NeededList,
    count_ranges,
    listed,
    write_needed,
)
from beamrank.join.run_units import SMALL_BYTES, UNIT_BYTES, write_units
from models.stages.given_run import GivenRun, RunScan
from models.stages.tokenize import TokenizeDocs
from pipelines.console.progress import Bar, Scan
from pipelines.plan.estimate import join_passes, shuffle_passes
from transforms.join import JoinCorpus, ListNeededDocs, ReadRun

# Runs one Beam job over some tasks, and shows its progress.
RunJob = Callable[[Sequence[ShardTask], beam.PTransform, Scan | None], None]


@dataclass(frozen=True)
class CorpusJoin:
    """The join of the open shards of a stage with the corpus.

    Attributes:
        tasks: the open shards.
        note: prints a note for the user.
        digests: those of all shards, by which the files of a job are named.
        in_memory: whether the runner keeps the shuffle in this machine's memory.
        room_bytes: how many bytes one job can send to its shards.
        waits: whether the end of a job is waited for.
    """

    plan: Plan
    config: RunConfig
    stage: TokenizeDocs
    tasks: Sequence[ShardTask]
    note: Callable[[str], None]
    run_job: RunJob
    digests: Sequence[str]
    in_memory: bool
    room_bytes: float
    waits: bool

    def run(self) -> None:
        """One Beam job, or several where one cannot send all docs."""
        sources = self._open_corpus()
        needed = self._list()
        units = UnitFile.write(self._folder.url, listing.tasks_prefix(self.digests), sources)
        tasks, passes = self.tasks, 1
        if self.room_bytes < math.inf:
            passes = join_passes(
                needed.entries, units.like, len(tasks), self.stage.max_doc_tokens, self.room_bytes
            )
        if passes > 1:
            self.note(
                f"{self.stage.name}: one job cannot send all docs; {passes} passes over the corpus"
            )
        for number in range(passes):
            some = tasks[number * len(tasks) // passes : (number + 1) * len(tasks) // passes]
            of_pass = replace(needed, shards=(some[0].shard, some[-1].shard + 1))
            count, units_read = watch_scans(self._folder.url), number * units.count
            scan = Scan(count, units.count, before=units_read, total=passes * units.count)
            self.run_job(some, JoinCorpus(self.stage, self._folder, of_pass, units), scan)

    def _list(self) -> NeededList:
        """The list of the docs that the shards need.

        The launcher writes it where it fits in one file, or where a job would hold all of it in
        this machine's memory, or would not be waited for; it holds one range of the list at a time.
        """
        tasks = self.tasks
        most = (min(task.inputs[0].receipt.rows, self.stage.k * len(task.topics)) for task in tasks)
        ranges = count_ranges(sum(most))
        prefix = listing.needed_prefix(self.digests, [task.digest for task in tasks])
        if ranges == 1 or self.in_memory or not self.waits:
            needed = (entries for task in tasks for entries in self.stage.needed(task, ranges))
            return write_needed(needed, ranges, self._folder.url, prefix)
        find = partial(listing.list_ranges, self._folder.url, prefix)
        scan = Scan(lambda: len(find()), ranges, total=ranges, noun="ranges of needed docs listed")
        at_once = int(max(1, min(ranges, self.room_bytes // RANGE_BYTES)))
        for first in range(0, ranges, at_once):
            some = range(first, min(first + at_once, ranges))
            self.run_job(
                tasks, ListNeededDocs(self.stage, self._folder, prefix, ranges, some), scan
            )
        found = find()
        if len(found) < ranges:
            raise BeamrankError(
                f"{self.stage.name}: {ranges - len(found)} of {ranges} files of needed docs are "
                f"missing below {self._folder.url}, and docs would be missing from the join: run "
                "the same command again"
            )
        return listed([found[number] for number in range(ranges)])

    @property
    def _folder(self) -> StageFolder:
        return self.plan.folder(self.stage.name)

    def _open_corpus(self) -> list[UnitSource]:
        """The units of the corpus, each with its file as it was planned with; a worker checks the
        file when it reads.

        Raises:
            DataError: a file was added, removed or changed.
        """
        corpus = self.plan.corpus
        assert corpus is not None
        with corpus.unchanged():
            units = list_units(self.config.corpus)
        added = sorted({unit.url for unit in units} - corpus.files.keys())
        if added:
            raise DataError(
                f"{added[0]} was added to the corpus {self.config.corpus.path} after the run was "
                "planned, and the plan's digest does not cover it. Nothing was read from it, and "
                "finished shards are kept. Run the same command again to plan with it, or remove "
                "the file first"
            )
        return [(unit, corpus.files[unit.url]) for unit in units]


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
    """Reads a small run here, and a larger one as a Beam job: several where one cannot send so many
    bytes.

    `tasks` are the open shards of the stage; `note` prints a note for the user; the list of units
    is named with `units_prefix`.
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
    passes = (
        shuffle_passes(reader.sent_bytes(units), len(tasks), room_bytes)
        if room_bytes < math.inf
        else 1
    )
    if passes > 1:
        note(f"{stage.name}: one job cannot send all rows; {passes} passes over the run")
    for number in range(passes):
        some = tasks[number * len(tasks) // passes : (number + 1) * len(tasks) // passes]
        work = ReadRun(replace(scan, units=url, is_open=_are_open(plan, some)), ranges)
        before, total = number * len(ranges), passes * len(ranges)
        run_job(
            some,
            work,
            Scan(watch_scans(folder.url), len(ranges), before, total, noun="units of the run read"),
        )


def _are_open(
    plan: Plan, tasks: Sequence[ShardTask]
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    is_open = np.zeros(len(plan.shards), np.bool_)
    is_open[[task.shard for task in tasks]] = True
    return is_open
