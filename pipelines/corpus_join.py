"""Joins the open shards of a stage with the corpus, for a launcher: one Beam job, or several in turn.

Units of the corpus that did not change, and whose docs have tokens in an earlier run, are not read again.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import apache_beam as beam
import numpy as np

from beamrank.commit.listing import (
    RECEIPTS,
    SCANS,
    list_ranges,
    needed_list_prefix,
    needed_prefix,
    receipt_name,
    tasks_prefix,
)
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import StageFolder
from beamrank.commit.scan_reports import ScanReport, ScanWatch
from beamrank.commit.shards import ShardTask
from beamrank.commit.unit_file import UnitFile, UnitSource
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, DataError
from beamrank.formats.corpora import list_units, unit_digest
from beamrank.formats.notes import counted
from beamrank.join.doc_hashes import NeededList, count_ranges, listed, write_needed
from beamrank.join.unread_units import EarlierUnits, local_unit_docs
from beamrank.storage import files as storage
from models.stages.tokenize import TokenizeDocs
from pipelines.console.progress import Scan
from pipelines.plan.estimate import join_passes
from pipelines.plan.reuse import ReusableTokens
from transforms.join import JoinCorpus, ListNeededDocs

# Runs one Beam job over some tasks, and shows its progress.
RunJob = Callable[[Sequence[ShardTask], beam.PTransform, Scan | None], None]
_FILES_AT_ONCE = 8


@dataclass(frozen=True)
class CorpusJoin:
    """The join of the open shards of a stage with the corpus.

    Attributes:
        plan: the plan.
        config: its configuration.
        stage: the stage.
        tasks: its open shards.
        note: prints a note for the user.
        run_job: runs a job.
        digests: those of all shards, by which the files of a job are named.
        shuffles_in_memory: whether the runner keeps the shuffle in this machine's memory.
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
    shuffles_in_memory: bool
    waits: bool
    tokens: ReusableTokens | None = None

    def run(self) -> None:
        """One Beam job, or several where the shuffle does not fit in the launcher's memory.

        Shards for which tokens turn out to be unusable are joined at the end, with the whole corpus.
        """
        sources = self._open_corpus()
        earlier = self._read_earlier(sources)
        if earlier is None:
            self._join(self.tasks, self._list(self.tasks), sources, None)
            return
        tasks = [replace(task, reusable_tokens=earlier.tokens.parts(task)) for task in self.tasks]
        needed = self._list(tasks, of_run=earlier.tokens)
        unread = self._find_unread(earlier, needed)
        if unread is None:
            self._join(self.tasks, needed, sources, None)
            return
        self.note(
            f"{self.stage.name}: {len(unread.reports)} of {counted(len(sources), 'unit')} of the corpus not read: "
            f"unchanged, and the tokens are reused from {earlier.tokens.folder.url}"
        )
        self._join(tasks, needed, sources, unread)
        present = storage.sizes_bytes(storage.join(self._folder.url, RECEIPTS))
        left = [task for task in tasks if receipt_name(task.shard, task.digest) not in present]
        if left:
            self.note(
                f"{self.stage.name}: the whole corpus is read for {counted(len(left), 'shard')}: "
                f"tokens cannot be reused ({_problem(left[0])})"
            )
            self._join(left, self._list(left), sources, None)

    def _list(self, tasks: Sequence[ShardTask], of_run: ReusableTokens | None = None) -> NeededList:
        """The list of the docs that some shards need, marked where the tokens are those `of_run`.

        The launcher writes it where it fits in one file, or where a job would hold all of it in this machine's memory,
        or would not be waited for; it holds one range of the list at a time.
        """
        most = (min(task.inputs[0].receipt.rows, self.stage.k * len(task.topics)) for task in tasks)
        ranges = count_ranges(sum(most))
        prefix = self._prefix(tasks, "" if of_run is None else of_run.tokens.digest)
        if ranges == 1 or self.shuffles_in_memory or not self.waits:
            needed = (entries for task in tasks for entries in self.stage.needed(task, ranges))
            return write_needed(needed, ranges, self._folder.url, prefix)
        find = partial(list_ranges, self._folder.url, prefix)
        scan = Scan(lambda: len(find()), ranges, total=ranges, noun="ranges of needed docs listed")
        self.run_job(tasks, ListNeededDocs(self.stage, self._folder, prefix, ranges), scan)
        found = find()
        if len(found) < ranges:
            raise BeamrankError(
                f"{self.stage.name}: {ranges - len(found)} of {ranges} files of needed docs are missing below "
                f"{self._folder.url}, and docs would be missing from the join: run the same command again"
            )
        return listed([found[number] for number in range(ranges)])

    def _prefix(self, tasks: Sequence[ShardTask], what: str) -> str:
        """How the files of a list are named: lists of other shards, or that say something else, have other names."""
        return needed_list_prefix(needed_prefix(self.digests), [what, *(task.digest for task in tasks)])

    def _read_earlier(self, sources: Sequence[UnitSource]) -> "_Earlier | None":
        """What is known of the units of an earlier corpus; None if none of them is in this one."""
        if self.tokens is None:
            return None
        try:
            number_of = {unit_digest(unit, file): unit.index for unit, file in sources}
            reports = self.tokens.reports()
            numbers = [None if report.bad_rows else number_of.get(report.content) for report in reports]
            return None if set(numbers) <= {None} else _Earlier(self.tokens, reports, numbers)
        except (BeamrankError, OSError) as error:
            self._note_unused(self.tokens, error)
            return None

    def _find_unread(self, earlier: "_Earlier", needed: NeededList) -> "_UnreadUnits | None":
        """The units that are not read, once their reports are written; None if all are read."""
        try:
            unread = earlier.find_unread(needed, self._folder.url, self._prefix(self.tasks, "reused"))
            _publish_reports(unread.reports, earlier.tokens.folder.url, self._folder.url, self.stage.corpus_digest)
        except (BeamrankError, OSError) as error:
            self._note_unused(earlier.tokens, error)
            return None
        return unread if unread.reports else None

    def _note_unused(self, tokens: ReusableTokens, error: Exception) -> None:
        self.note(f"{self.stage.name}: not reused: {tokens.folder.url}: {error}")

    def _join(
        self,
        tasks: Sequence[ShardTask],
        needed: NeededList,
        sources: Sequence[UnitSource],
        unread: "_UnreadUnits | None",
    ) -> None:
        numbers = set[int]() if unread is None else {report.unit for report in unread.reports}
        reusable = None if unread is None else unread.docs
        units = UnitFile.write(self._folder.url, tasks_prefix(self.digests), sources)
        read = [unit.index for unit, _ in sources if unit.index not in numbers]
        passes = 1
        if self.shuffles_in_memory:
            docs = needed.entries - (0 if reusable is None else reusable.entries)
            passes = join_passes(docs, units.like, len(tasks), self.stage.max_doc_tokens)
        if passes > 1:
            self.note(f"{self.stage.name}: the shuffle does not fit in memory at once; {passes} passes over the corpus")
        for number in range(passes):
            some = tasks[number * len(tasks) // passes : (number + 1) * len(tasks) // passes]
            of_pass = replace(needed, shards=(some[0].shard, some[-1].shard + 1))
            count = ScanWatch(self._folder.url).count
            scan = Scan(count, len(read), before=number * len(read), total=passes * len(read))
            self.run_job(some, JoinCorpus(self.stage, self._folder, of_pass, units, _ranges(read), reusable), scan)

    @property
    def _folder(self) -> StageFolder:
        return self.plan.folder(self.stage.name)

    def _open_corpus(self) -> list[UnitSource]:
        """The units of the corpus, each with its file as it was planned with; a worker checks the file when it reads.

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
                f"{added[0]} was added to the corpus {self.config.corpus.path} after the run was planned, and the "
                "plan's digest does not cover it. Nothing was read from it, and finished shards are kept. Run the same "
                "command again to plan with it, or remove the file first"
            )
        return [(unit, corpus.files[unit.url]) for unit in units]


@dataclass(frozen=True)
class _UnreadUnits:
    """Units that are not read.

    Attributes:
        reports: on them, each with the number that its unit has in the corpus now.
        docs: the list of those whose tokens are reused, with the shards that need them.
    """

    reports: Sequence[ScanReport]
    docs: NeededList


@dataclass(frozen=True)
class _Earlier:
    """The corpus of an earlier run.

    Attributes:
        tokens: those of its docs.
        reports: on its units.
        numbers: of each unit, its number in the corpus now; None if it changed, or has bad rows: every run reports
            these with their place.
    """

    tokens: ReusableTokens
    reports: Sequence[ScanReport]
    numbers: Sequence[int | None]

    def find_unread(self, needed: NeededList, folder: str, prefix: str) -> _UnreadUnits:
        """The units that did not change and of which every doc has tokens for each shard that needs it.

        A doc has tokens for a shard if a part has it that the shard's topics have in the earlier run, and no other doc
        of the earlier corpus has its hash: then the doc of the part is that of the unit.

        Args:
            needed: the list of the needed docs.
            folder: where the list of the docs whose tokens are reused is written.
            prefix: how its files are named.

        Raises:
            DataError: what is known of a unit is missing or damaged.
        """
        unnamed = next((report.unit for report in self.reports if not report.docs_file), None)
        if unnamed is not None:
            raise DataError(f"its report on unit {unnamed} of the corpus does not name the docs")
        urls = [storage.join(self.tokens.folder.url, SCANS, report.docs_file) for report in self.reports]
        with local_unit_docs(urls) as paths:
            units = EarlierUnits(needed, paths)
            unread = units.find_complete() & np.array([number is not None for number in self.numbers])
            reports = [
                replace(report, unit=number, seconds=0.0)
                for report, number, kept in zip(self.reports, self.numbers, unread, strict=True)
                if kept and number is not None
            ]
            return _UnreadUnits(reports, units.publish_docs(unread, folder, prefix))


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of sorted numbers: one for each that follow each other."""
    runs = np.split(np.asarray(numbers, np.int64), np.flatnonzero(np.diff(numbers) != 1) + 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]


def _publish_reports(reports: Sequence[ScanReport], old: str, new: str, corpus_digest: str) -> None:
    """Writes reports for the new corpus, and the docs that they name: the earlier output may be deleted."""

    def publish(report: ScanReport) -> None:
        if old != new:
            content = storage.read_bytes(storage.join(old, SCANS, report.docs_file))
            storage.publish_content(storage.join(new, SCANS, report.docs_file), content)
        report.publish(new, corpus_digest)

    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        list(pool.map(publish, reports))


def _problem(task: ShardTask) -> str:
    """Why tokens could not be reused for a shard, as far as this machine sees it."""
    try:
        for part in task.reusable_tokens:
            part.tokens.read()
    except (BeamrankError, OSError) as error:
        return str(error)
    return "the workers' log has the reason"
