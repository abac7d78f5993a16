"""Corpus units that need not be read again: they did not change, and an earlier run stored the tokens of their docs."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from beamrank.commit.listing import SCANS
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, StageFolder
from beamrank.commit.scan_reports import ScanReport, read_reports
from beamrank.commit.shards import InputPart, ShardTask
from beamrank.commit.stage import StageRecord
from beamrank.errors import DataError
from beamrank.join.doc_hashes import Hashes, NeededDocs, open_unit_docs
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64
from models.stages.core import open_stage

_FILES_AT_ONCE = 8


@dataclass(frozen=True)
class EarlierTokens:
    """A sealed stage of an earlier plan that tokenized docs in the same way."""

    plan: Plan
    record: StageRecord
    candidates: Manifest
    tokens: Manifest
    _hashes: dict[int, Hashes] = field(default_factory=dict, compare=False, repr=False)

    @property
    def folder(self) -> StageFolder:
        """The stage's folder."""
        return self.plan.folder(self.record.name)

    @cached_property
    def _shard_of(self) -> dict[str, int]:
        return {topic.query_id: shard.index for shard in self.plan.shards for topic in shard.topics}

    @cached_property
    def _tasks(self) -> Sequence[ShardTask]:
        return self.plan.tasks(self.record, [self.candidates])

    def shards(self, task: ShardTask) -> list[int]:
        """The shards that have the topics of a task."""
        return sorted({self._shard_of[topic.query_id] for topic in task.topics if topic.query_id in self._shard_of})

    def parts(self, task: ShardTask) -> tuple[InputPart, ...]:
        """The parts of those shards."""
        receipts = (replace(self.tokens.receipts[shard], counts={}, examples=()) for shard in self.shards(task))
        return tuple(InputPart(self.folder, receipt) for receipt in receipts)

    def docs(self, task: ShardTask) -> Hashes:
        """The docs of those shards; a few of them may have been missing from the corpus."""
        return np.unique(np.concatenate([np.empty(0, np.uint64), *map(self._docs, self.shards(task))]))

    def _docs(self, shard: int) -> Hashes:
        if shard not in self._hashes:
            stage = open_stage(self.plan.stages, self.record.name)
            self._hashes[shard] = hashes64(stage.needed_keys(self._tasks[shard]))
        return self._hashes[shard]

    def reports(self) -> list[ScanReport]:
        """The reports on the units of its corpus."""
        assert self.record.corpus_digest is not None
        return read_reports(self.folder.url, [self.record.corpus_digest])


@dataclass(frozen=True)
class UnreadUnits:
    """Units that are not read.

    Attributes:
        earlier: where their tokens are.
        reports: on them, each with the number that its unit has in the corpus now.
        docs: those that are taken over, with the shards that want them.
    """

    earlier: EarlierTokens
    reports: Sequence[ScanReport]
    docs: NeededDocs

    @property
    def numbers(self) -> set[int]:
        """The numbers of the units."""
        return {report.unit for report in self.reports}

    def given_to(self, tasks: Sequence[ShardTask]) -> list[ShardTask]:
        """The tasks, each with the parts that hold the tokens of its docs."""
        return [replace(task, tokens=self.earlier.parts(task)) for task in tasks]

    def publish_reports(self, folder: str, corpus_digest: str) -> None:
        """Writes the reports for the new corpus, and the docs that they name: the earlier output may be deleted."""
        old, new = storage.join(self.earlier.folder.url, SCANS), storage.join(folder, SCANS)

        def publish(report: ScanReport) -> None:
            if old != new:
                content = storage.read_bytes(storage.join(old, report.docs_file))
                storage.publish_content(storage.join(new, report.docs_file), content)
            report.publish(folder, corpus_digest)

        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            list(pool.map(publish, self.reports))


def find_unread(
    earlier: EarlierTokens, tasks: Sequence[ShardTask], wanted: Mapping[int, Hashes], units: Mapping[int, str]
) -> UnreadUnits:
    """The units that did not change and of which every doc has stored tokens for each shard that wants it.

    A doc is stored for a shard if a part has it that the shard's topics have in the earlier run, and no other doc of
    the earlier corpus has its hash: then the doc of the part is that of the unit. Units with bad rows are read, since
    every run reports the rows with their place.

    Args:
        earlier: where tokens are.
        tasks: the shards.
        wanted: the hashes of the docs that each shard wants, sorted.
        units: the `unit_digest` of each unit of the corpus now, by its number.

    Raises:
        DataError: what is known of a unit is missing or damaged.
    """
    number_of = {content: number for number, content in units.items()}
    reports = earlier.reports()
    if number_of.keys().isdisjoint(report.content for report in reports):
        return UnreadUnits(earlier, (), NeededDocs.collect(()))
    docs, wanted_times = np.unique(np.concatenate([np.empty(0, np.uint64), *wanted.values()]), return_counts=True)
    stored = NeededDocs.of_hashes(
        (task.shard, np.intersect1d(wanted[task.shard], earlier.docs(task), assume_unique=True)) for task in tasks
    )
    stored_rows = np.searchsorted(docs, stored.hashes)
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        found = list(pool.map(lambda report: _wanted_rows(docs, earlier.folder.url, report), reports))
    complete = np.bincount(stored_rows, minlength=len(docs)) == wanted_times
    complete &= np.bincount(np.concatenate(found), minlength=len(docs)) == 1
    unread, taken = [], np.zeros(len(docs), np.bool_)
    for report, rows in zip(reports, found, strict=True):
        if report.content in number_of and not report.bad_rows and complete[rows].all():
            unread.append(replace(report, unit=number_of[report.content], seconds=0.0))
            taken[rows] = True
    kept = taken[stored_rows]
    return UnreadUnits(earlier, unread, NeededDocs(stored.hashes[kept], stored.shards[kept]))


def _wanted_rows(docs: Hashes, folder: str, report: ScanReport) -> npt.NDArray[np.int64]:
    """Which of some sorted docs are in a unit, each as often as it is there."""
    if not report.docs_file:
        raise DataError(f"its report on unit {report.unit} of the corpus does not name the docs")
    hashes = open_unit_docs(storage.join(folder, SCANS, report.docs_file))
    rows = np.searchsorted(docs, hashes)
    inside = rows < len(docs)
    return rows[inside][docs[rows[inside]] == hashes[inside]]
