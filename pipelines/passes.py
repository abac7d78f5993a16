"""The jobs of a stage that reads the corpus, or a given run, for all its shards: several passes
over its units where one job cannot send all bytes. The launcher runs them.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

from beamrank.commit import listing
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import StageFolder
from beamrank.commit.scans import watch_scans
from beamrank.commit.shards import ShardTask
from beamrank.config.run import JobConfig, RunConfig
from beamrank.errors import BeamrankError, DataError
from beamrank.formats.corpora import CorpusConfig, list_units
from beamrank.join.doc_hashes import RANGE_BYTES, NeededList, count_ranges, listed, write_needed
from beamrank.storage.digested import reread
from models.stages.attempt import scatter_here
from models.stages.corpus_scan import CorpusScan, NeededRanges, UnitFile
from models.stages.given_run import GivenRun, RunScan
from models.stages.join_docs import JoinDocs
from models.stages.scatter import Scatter
from pipelines.console.progress import Bar, Scan

# Of a small run, which may be compressed, the launcher holds about so many bytes of rows.
_HELD_BYTES = 96 << 20
_Scatter = TypeVar("_Scatter", bound=Scatter)


class Job(NamedTuple):
    """A job: what it does with some tasks, and what it reads before it makes their parts."""

    tasks: Sequence[ShardTask]
    work: Scatter | NeededRanges
    scan: Scan


@dataclass(frozen=True)
class Passes:
    """The jobs of one stage.

    Attributes:
        room_bytes: how many bytes a job can send.
        list_needed: whether jobs may list needed docs; otherwise this process does.
        bar: shows what this process does, and notes.
    """

    room_bytes: float
    list_needed: bool
    bar: Bar

    def jobs(
        self,
        stage: GivenRun | JoinDocs,
        plan: Plan,
        config: JobConfig,
        tasks: Sequence[ShardTask],
        digests: Sequence[str],
        beside: Sequence[JoinDocs] = (),
    ) -> Iterator[Job]:
        """Yields the jobs that do the open shards of a stage: none for a small run, which is read
        here, else one, or several where one cannot send all bytes. Each must end before the next.

        `digests` has the digest of each shard; they name the files of a job. The stages `beside` it
        are made by the same scan.
        """
        folder, prefix = plan.folder(stage.name), listing.tasks_prefix(digests)
        scatter: Scatter
        if isinstance(stage, GivenRun):
            scatter = RunScan.open(stage, folder, prefix, plan.shards.first_hashes)
            if scatter.is_small:
                self._do_here(scatter, tasks)
                return
        else:
            assert isinstance(config, RunConfig)
            units = _corpus_units(plan, config.corpus, folder, prefix)
            prefix_needed = listing.needed_prefix(digests, [task.digest for task in tasks])
            needed = yield from self._list_needed(stage, tasks, prefix_needed)
            joins = tuple((join, plan.folder(join.name)) for join in (stage, *beside))
            scatter = CorpusScan(joins, needed, units)
        passes = shuffle_passes(reread(scatter.sent_bytes), len(tasks), self.room_bytes)
        if passes > 1:
            self.bar.note(
                f"{stage.name}: one job cannot send all rows; {passes} passes over the "
                f"{scatter.source}"
            )
        noun = f"{scatter.source} units read"
        for number, (group, work) in enumerate(_groups(scatter, tasks, passes)):
            before, total = number * scatter.count, passes * scatter.count
            scan = Scan(watch_scans(folder.url), scatter.count, before, total, noun)
            yield Job(group, work, scan)

    def _do_here(self, scatter: RunScan, tasks: Sequence[ShardTask]) -> None:
        """Does the shards in this process, which holds the rows of some of them at a time."""
        passes = shuffle_passes(reread(scatter.sent_bytes), len(tasks), _HELD_BYTES)
        here = (scatter_here(work, group) for group, work in _groups(scatter, tasks, passes))
        for done, _ in enumerate(chain.from_iterable(here), 1):
            self.bar.update(done, len(tasks), "shards")

    def _list_needed(
        self, stage: JoinDocs, tasks: Sequence[ShardTask], prefix: str
    ) -> Generator[Job, None, NeededList]:
        """The list of the docs that the shards need, a file for each range of their hash.

        This process writes it where it fits in one file or no job may; one range at a time is in
        memory.
        """
        most = (min(task.inputs[0].receipt.rows, stage.k * len(task.topics)) for task in tasks)
        ranges = count_ranges(sum(most))
        if ranges == 1 or not self.list_needed:
            needed = (entries for task in tasks for entries in stage.needed(task, ranges))
            return write_needed(needed, ranges, tasks[0].folder.url, prefix)
        part = NeededRanges(stage, tasks[0].folder.url, prefix, ranges, range(ranges))
        list_files = partial(listing.list_ranges, part.folder, part.prefix)
        noun = "ranges of needed docs listed"
        scan = Scan(lambda: len(list_files()), ranges, total=ranges, noun=noun)
        at_once = int(max(1, min(ranges, self.room_bytes // RANGE_BYTES)))
        for first in range(0, ranges, at_once):
            yield Job(tasks, replace(part, chosen=part.chosen[first : first + at_once]), scan)
        files = list_files()
        if len(files) < ranges:
            raise BeamrankError(
                f"{part.stage.name}: {ranges - len(files)} of {ranges} files of needed docs are "
                f"missing below {part.folder}, and docs would be missing from the join: run the "
                "same command again"
            )
        return listed([files[number] for number in range(ranges)])


def shuffle_passes(size_bytes: float, shards: int, room_bytes: float) -> int:
    """The number of jobs, each with some of the shards, so that each sends at most `room_bytes`."""
    return max(1, min(shards, -int(-size_bytes // room_bytes)))


def _groups(
    scatter: _Scatter, tasks: Sequence[ShardTask], passes: int
) -> Iterator[tuple[Sequence[ShardTask], _Scatter]]:
    """The tasks of each pass, and the scatter for them."""
    for number in range(passes):
        group = tasks[number * len(tasks) // passes : (number + 1) * len(tasks) // passes]
        yield group, scatter.for_shards([task.shard for task in group])


def _corpus_units(plan: Plan, corpus: CorpusConfig, folder: StageFolder, prefix: str) -> UnitFile:
    """The units of the corpus, each with its file as it was planned with; a worker checks the file
    when it reads.

    Raises:
        DataError: a file was added, removed or changed.
    """
    digested = plan.corpus
    assert digested is not None
    with digested.unchanged():
        units = list_units(corpus)
    added = sorted({unit.url for unit in units} - digested.files.keys())
    if added:
        raise DataError(
            f"{added[0]} was added to the corpus {corpus.path} after the run was planned, and the "
            "plan's digest does not cover it. Nothing was read from it, and finished shards are "
            "kept. Run the same command again to plan with it, or remove the file first"
        )
    return UnitFile.write(folder.url, prefix, [(unit, digested.files[unit.url]) for unit in units])
