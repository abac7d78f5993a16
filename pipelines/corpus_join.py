"""Joins the open shards of a stage with the corpus, for a launcher: one Beam job, or several in turn.

Units of the corpus that did not change, and whose docs have tokens in an earlier run, are not read again.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import apache_beam as beam
import numpy as np
import numpy.typing as npt

from beamrank.commit.listing import RECEIPTS, SCANS, receipt_name
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import StageFolder
from beamrank.commit.scan_reports import ScanReport, ScanWatch
from beamrank.commit.shards import InputPart, ShardTask
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, DataError
from beamrank.formats.corpora import list_units, unit_digest
from beamrank.formats.notes import counted
from beamrank.join.doc_hashes import Hashes, NeededDocs, open_unit_docs
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64
from models.stages.tokenize import TokenizeDocs
from pipelines.console.progress import Scan
from pipelines.plan.estimate import join_passes
from pipelines.plan.reuse import ReusableTokens
from transforms.join import JoinCorpus, UnitSource

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
        needed_prefix: how the docs that a join needs are named.
        shuffles_in_memory: whether the runner keeps the shuffle in this machine's memory.
        tokens: those of an earlier run.
    """

    plan: Plan
    config: RunConfig
    stage: TokenizeDocs
    tasks: Sequence[ShardTask]
    note: Callable[[str], None]
    run_job: RunJob
    needed_prefix: str
    shuffles_in_memory: bool
    tokens: ReusableTokens | None = None

    def run(self) -> None:
        """One Beam job, or several where the shuffle does not fit in the launcher's memory.

        Shards for which tokens turn out to be unusable are joined at the end, with the whole corpus.
        """
        sources = self._open_corpus()
        needed = {task.shard: np.unique(hashes64(self.stage.needed_keys(task))) for task in self.tasks}
        unread = self._find_unread(sources, needed)
        if unread is None:
            self._join(self.tasks, needed, sources, None)
            return
        self.note(
            f"{self.stage.name}: {len(unread.reports)} of {counted(len(sources), 'unit')} of the corpus not read: "
            f"unchanged, and the tokens are reused from {unread.tokens.folder.url}"
        )
        tasks = [replace(task, reusable_tokens=unread.tokens.parts(task)) for task in self.tasks]
        self._join(tasks, needed, sources, unread)
        present = storage.sizes_bytes(storage.join(self._folder.url, RECEIPTS))
        left = [task for task in self.tasks if receipt_name(task.shard, task.digest) not in present]
        if left:
            self.note(
                f"{self.stage.name}: the whole corpus is read for {counted(len(left), 'shard')}: "
                f"tokens cannot be reused ({_problem(unread.tokens.parts(left[0]))})"
            )
            self._join(left, needed, sources, None)

    def _find_unread(self, sources: Sequence[UnitSource], needed: Mapping[int, Hashes]) -> "_UnreadUnits | None":
        """The units that are not read, once their reports are written; None if all are read."""
        if self.tokens is None:
            return None
        try:
            units = {unit.index: unit_digest(unit, file) for unit, file in sources}
            unread = _find_unread(self.tokens, self.tasks, needed, units)
            _publish_reports(unread, self._folder.url, self.stage.corpus_digest)
        except (BeamrankError, OSError) as error:
            self.note(f"{self.stage.name}: not reused: {self.tokens.folder.url}: {error}")
            return None
        return unread if unread.reports else None

    def _join(
        self,
        tasks: Sequence[ShardTask],
        needed: Mapping[int, Hashes],
        sources: Sequence[UnitSource],
        unread: "_UnreadUnits | None",
    ) -> None:
        reused_url, numbers, reused_docs = None, set[int](), 0
        if unread is not None:
            reused_url = unread.docs.publish(self._folder.url, self.needed_prefix)
            numbers, reused_docs = {report.unit for report in unread.reports}, len(unread.docs.hashes)
        units = [unit for unit, _ in sources]
        read = [source for source in sources if source[0].index not in numbers]
        passes = 1
        if self.shuffles_in_memory:
            docs = sum(len(needed[task.shard]) for task in tasks) - reused_docs
            passes = join_passes(docs, units, len(tasks), self.stage.max_doc_tokens)
        if passes > 1:
            self.note(f"{self.stage.name}: the shuffle does not fit in memory at once; {passes} passes over the corpus")
        for number in range(passes):
            some = tasks[number * len(tasks) // passes : (number + 1) * len(tasks) // passes]
            listed = NeededDocs.of_hashes((task.shard, needed[task.shard]) for task in some)
            needed_url = listed.publish(self._folder.url, self.needed_prefix)
            count = ScanWatch(self._folder.url).count
            scan = Scan(count, len(read), before=number * len(read), total=passes * len(read))
            self.run_job(some, JoinCorpus(self.stage, self._folder, needed_url, read, units, reused_url), scan)

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
        tokens: those of their docs.
        reports: on them, each with the number that its unit has in the corpus now.
        docs: those whose tokens are reused, with the shards that need them.
    """

    tokens: ReusableTokens
    reports: Sequence[ScanReport]
    docs: NeededDocs


def _find_unread(
    tokens: ReusableTokens, tasks: Sequence[ShardTask], needed: Mapping[int, Hashes], units: Mapping[int, str]
) -> _UnreadUnits:
    """The units that did not change and of which every doc has tokens for each shard that needs it.

    A doc has tokens for a shard if a part has it that the shard's topics have in the earlier run, and no other doc of
    the earlier corpus has its hash: then the doc of the part is that of the unit. Units with bad rows are read, since
    every run reports the rows with their place.

    Args:
        tokens: of an earlier run.
        tasks: the shards.
        needed: the hashes of the docs that each shard needs, sorted.
        units: the `unit_digest` of each unit of the corpus now, by its number.

    Raises:
        DataError: what is known of a unit is missing or damaged.
    """
    number_of = {content: number for number, content in units.items()}
    reports = tokens.reports()
    if number_of.keys().isdisjoint(report.content for report in reports):
        return _UnreadUnits(tokens, (), NeededDocs.collect(()))
    docs, times_needed = np.unique(np.concatenate([np.empty(0, np.uint64), *needed.values()]), return_counts=True)
    with_tokens = NeededDocs.of_hashes(
        (task.shard, np.intersect1d(needed[task.shard], tokens.docs(task), assume_unique=True)) for task in tasks
    )
    rows_with_tokens = np.searchsorted(docs, with_tokens.hashes)
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        found = list(pool.map(lambda report: _needed_rows(docs, tokens.folder.url, report), reports))
    complete = np.bincount(rows_with_tokens, minlength=len(docs)) == times_needed
    complete &= np.bincount(np.concatenate(found), minlength=len(docs)) == 1
    unread, reused = [], np.zeros(len(docs), np.bool_)
    for report, rows in zip(reports, found, strict=True):
        if report.content in number_of and not report.bad_rows and complete[rows].all():
            unread.append(replace(report, unit=number_of[report.content], seconds=0.0))
            reused[rows] = True
    kept = reused[rows_with_tokens]
    return _UnreadUnits(tokens, unread, NeededDocs(with_tokens.hashes[kept], with_tokens.shards[kept]))


def _needed_rows(docs: Hashes, folder: str, report: ScanReport) -> npt.NDArray[np.int64]:
    """Which of some sorted docs are in a unit, each as often as it is there."""
    if not report.docs_file:
        raise DataError(f"its report on unit {report.unit} of the corpus does not name the docs")
    hashes = open_unit_docs(storage.join(folder, SCANS, report.docs_file))
    rows = np.searchsorted(docs, hashes)
    inside = rows < len(docs)
    return rows[inside][docs[rows[inside]] == hashes[inside]]


def _publish_reports(unread: _UnreadUnits, folder: str, corpus_digest: str) -> None:
    """Writes the reports for the new corpus, and the docs that they name: the earlier output may be deleted."""
    old, new = storage.join(unread.tokens.folder.url, SCANS), storage.join(folder, SCANS)

    def publish(report: ScanReport) -> None:
        if old != new:
            content = storage.read_bytes(storage.join(old, report.docs_file))
            storage.publish_content(storage.join(new, report.docs_file), content)
        report.publish(folder, corpus_digest)

    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        list(pool.map(publish, unread.reports))


def _problem(parts: Sequence[InputPart]) -> str:
    """Why tokens could not be reused, as far as this machine sees it."""
    try:
        for part in parts:
            part.read()
    except (BeamrankError, OSError) as error:
        return str(error)
    return "the workers' log has the reason"
