"""Joins the open shards of a stage with the corpus, or with a given run, for a launcher: one Beam
job, or several.

Units of the corpus that did not change, and whose docs have tokens in an earlier run, are not read
again.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import apache_beam as beam
import numpy as np

from beamrank.commit import listing
from beamrank.commit.job_files import UnitFile, UnitSource
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import ScanReport, StageFolder, watch_scans
from beamrank.commit.shards import ShardTask
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, DataError
from beamrank.formats.corpora import list_units, unit_digest
from beamrank.formats.decode.base import unit_ranges
from beamrank.join.doc_hashes import (
    RANGE_BYTES,
    NeededList,
    count_ranges,
    find_unread,
    listed,
    open_unit_docs,
    write_needed,
)
from beamrank.join.run_units import SMALL_BYTES, UNIT_BYTES, write_units
from beamrank.notes import counted
from beamrank.storage import files as storage
from beamrank.storage.disk_cache import local_copy
from models.stages.given_run import GivenRun, RunScan
from models.stages.tokenize import LISTS, TokenizeDocs
from pipelines.console.progress import Bar, Scan
from pipelines.plan.estimate import join_passes, shuffle_passes
from pipelines.plan.reuse import ReusableTokens
from transforms.join import JoinCorpus, ListNeededDocs, ReadRun

# Runs one Beam job over some tasks, and shows its progress.
RunJob = Callable[[Sequence[ShardTask], beam.PTransform, Scan | None], None]
_FILES_AT_ONCE = 8
# A report on a unit of an earlier corpus, and the number that its unit has in this one: None if it
# changed, or has bad rows, which every run reports with their place.
_EarlierUnit = tuple[ScanReport, int | None]


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
        tokens: those of an earlier run.
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
    tokens: ReusableTokens | None = None

    def run(self) -> None:
        """One Beam job, or several where one cannot send all docs.

        Shards for which tokens turn out to be unusable are joined at the end, with the whole
        corpus.
        """
        sources = self._open_corpus()
        units: list[_EarlierUnit] = []
        with self._noting_failure():
            units = self._earlier_units(sources)
        tokens = self.tokens if any(number is not None for _, number in units) else None
        tasks = (
            [replace(task, reusable_tokens=tokens.parts(task)) for task in self.tasks]
            if tokens
            else self.tasks
        )
        needed = self._list(tasks, tokens)
        unread, reusable = set[int](), None
        if tokens is not None:
            with self._noting_failure():
                unread, reusable = self._find_unread(tokens, units, needed)
        if tokens is None or not unread:
            self._join(tasks, needed, sources)
            return
        self.note(
            f"{self.stage.name}: {len(unread)} of {counted(len(sources), 'unit')} of the corpus "
            f"not read: unchanged, and the tokens are reused from {tokens.folder.url}"
        )
        self._join(tasks, needed, sources, unread, reusable)
        present = storage.sizes_bytes(storage.join(self._folder.url, listing.RECEIPTS))
        left = [
            task for task in tasks if listing.RECEIPT.name(task.digest, task.shard) not in present
        ]
        if left:
            self.note(
                f"{self.stage.name}: the whole corpus is read for {counted(len(left), 'shard')}: "
                f"tokens cannot be reused ({_problem(left[0])})"
            )
            self._join(left, self._list(left), sources)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Tokens that cannot be reused are read from the corpus."""
        try:
            yield
        except (BeamrankError, OSError) as error:
            place = "" if self.tokens is None else f"{self.tokens.folder.url}: "
            self.note(f"{self.stage.name}: not reused: {place}{error}")

    def _list(self, tasks: Sequence[ShardTask], tokens: ReusableTokens | None = None) -> NeededList:
        """The list of the docs that some shards need, marked where an earlier run has their tokens.

        The launcher writes it where it fits in one file, or where a job would hold all of it in
        this machine's memory, or would not be waited for; it holds one range of the list at a time.
        """
        most = (min(task.inputs[0].receipt.rows, self.stage.k * len(task.topics)) for task in tasks)
        ranges = count_ranges(sum(most))
        prefix = self._prefix(tasks, "" if tokens is None else tokens.tokens.digest)
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

    def _prefix(self, tasks: Sequence[ShardTask], what: str) -> str:
        """How the files of a list are named: lists of other shards, or that say something else,
        have other names.
        """
        return listing.needed_prefix(self.digests, [what, *(task.digest for task in tasks)])

    def _earlier_units(self, sources: Sequence[UnitSource]) -> list[_EarlierUnit]:
        """The units of the earlier corpus."""
        if self.tokens is None:
            return []
        number_of = {unit_digest(unit, file): unit.index for unit, file in sources}
        reports = self.tokens.reports()
        return [
            (report, None if report.bad_rows else number_of.get(report.content))
            for report in reports
        ]

    def _find_unread(
        self, tokens: ReusableTokens, units: Sequence[_EarlierUnit], needed: NeededList
    ) -> tuple[set[int], NeededList]:
        """The numbers of the units that are not read, whose reports are written, and the list of
        their needed docs.

        A unit is not read if it did not change and every doc that is needed from it has tokens: a
        part has it that the shard's topics have in the earlier run, and no other doc of the earlier
        corpus has its hash: then the doc of the part is that of the unit.
        """
        unnamed = next((report.unit for report, _ in units if not report.docs_file), None)
        if unnamed is not None:
            raise DataError(f"its report on unit {unnamed} of the corpus does not name the docs")
        old, new = (storage.join(each.url, listing.SCANS) for each in (tokens.folder, self._folder))

        def publish(report: ScanReport) -> None:
            """Writes the docs that it names too: the earlier output may be deleted."""
            if old != new:
                content = storage.read_bytes(storage.join(old, report.docs_file))
                storage.publish_content(storage.join(new, report.docs_file), content)
            report.publish(self._folder.url, self.stage.corpus_digest)

        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            urls = [storage.join(old, report.docs_file) for report, _ in units]
            docs = list(pool.map(lambda url: open_unit_docs(local_copy(LISTS, url)), urls))
            unchanged = np.array([number is not None for _, number in units])
            prefix = self._prefix(self.tasks, "reused")
            is_unread, reusable = find_unread(needed, docs, unchanged, self._folder.url, prefix)
            unread = {
                number: report
                for (report, number), each in zip(units, is_unread, strict=True)
                if each and number is not None
            }
            list(
                pool.map(
                    publish,
                    (
                        replace(report, unit=number, seconds=0.0)
                        for number, report in unread.items()
                    ),
                )
            )
        return set(unread), reusable

    def _join(
        self,
        tasks: Sequence[ShardTask],
        needed: NeededList,
        sources: Sequence[UnitSource],
        unread: Collection[int] = (),
        reusable: NeededList | None = None,
    ) -> None:
        units = UnitFile.write(self._folder.url, listing.tasks_prefix(self.digests), sources)
        read = [unit.index for unit, _ in sources if unit.index not in unread]
        passes = 1
        if self.room_bytes < math.inf:
            docs = needed.entries - (0 if reusable is None else reusable.entries)
            passes = join_passes(
                docs, units.like, len(tasks), self.stage.max_doc_tokens, self.room_bytes
            )
        if passes > 1:
            self.note(
                f"{self.stage.name}: one job cannot send all docs; {passes} passes over the corpus"
            )
        for number in range(passes):
            some = tasks[number * len(tasks) // passes : (number + 1) * len(tasks) // passes]
            of_pass = replace(needed, shards=(some[0].shard, some[-1].shard + 1))
            count = watch_scans(self._folder.url)
            scan = Scan(count, len(read), before=number * len(read), total=passes * len(read))
            self.run_job(
                some,
                JoinCorpus(self.stage, self._folder, of_pass, units, _ranges(read), reusable),
                scan,
            )

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


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of sorted numbers: one for each that follow each other."""
    runs = np.split(np.asarray(numbers, np.int64), np.flatnonzero(np.diff(numbers) != 1) + 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]


def _problem(task: ShardTask) -> str:
    """Why tokens could not be reused for a shard, as far as this machine sees it."""
    try:
        for part in task.reusable_tokens:
            part.tokens.read()
    except (BeamrankError, OSError) as error:
        return str(error)
    return "the workers' log has the reason"


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
