"""The scan of a corpus for the open shards of the stages that join them with it."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa

from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.scans import report_scan
from beamrank.commit.schemas import DOCS
from beamrank.commit.shards import ShardTask
from beamrank.formats.corpora import read_unit
from beamrank.formats.rejects import NO_LIMIT, Rejects
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join.doc_hashes import NeededDocs, NeededList, OpenedList
from beamrank.join.join import by_shard, sent_docs
from beamrank.storage.digested import DigestedFile
from beamrank.storage.documents import hashes64, text_digests
from beamrank.storage.row_files import read_row, write_rows
from models.stages.join_docs import JoinDocs
from models.stages.scatter import Scatter, SentRows

_FLUSH_BYTES = 8 << 20
_ROW_OVERHEAD_BYTES = 64
_SAMPLE_DOCS = 1000
_open_list = lru_cache(maxsize=2)(OpenedList)
_FILE = dict.fromkeys(("url", "version", "sha256"), pa.string())
_UNITS = pa.schema({**_FILE, "start": pa.int64(), "end": pa.int64(), "header": pa.bool_()})

# (a unit of the corpus, its file as it was digested)
UnitSource = tuple[CorpusUnit, DigestedFile]


@dataclass(frozen=True)
class UnitFile:
    """All units of a corpus, by number.

    Attributes:
        url: of the file, named after its content; a worker reads its own units from it.
        like: one of them: all have its format and its columns.
        count: how many they are.
    """

    url: str
    like: CorpusUnit
    count: int

    @classmethod
    def write(cls, folder: str, prefix: str, sources: Sequence[UnitSource]) -> Self:
        """Writes the units, in order, under a prefix and their content's own name."""
        rows = ({**vars(unit), **vars(file)} for unit, file in sources)
        return cls(write_rows(folder, prefix, _UNITS, rows), sources[0][0], len(sources))

    def read(self, number: int) -> UnitSource:
        """A unit and its file; raises DataError where the file with the units is missing or was
        changed.
        """
        row = read_row(self.url, number)
        file = DigestedFile(row["url"], row.pop("version"), row.pop("sha256"))
        return replace(self.like, index=number, **row), file

    def place(self, number: int, position: int) -> str:
        """The place of a doc of a unit, for messages."""
        return self.read(number)[0].place(position)


@dataclass(frozen=True)
class CorpusScan(Scatter):
    """Reads needed docs of the corpus, once for several stages.

    Attributes:
        joins: the stages whose parts are made of the same rows, each with its folder. The first
            one's has the reports of the scan.
        needed: the list of the needed docs.
        units: those of the corpus.
    """

    joins: tuple[tuple[JoinDocs, StageFolder], ...]
    needed: NeededList
    units: UnitFile

    source = "corpus"

    @property
    def schema(self) -> pa.Schema:
        stored = (stage.schema.field(DOCS).type.value_type for stage, _ in self.joins)
        return sent_docs(*stored)

    @property
    def count(self) -> int:
        return self.units.count

    def for_shards(self, shards: Sequence[int]) -> Self:
        return replace(self, needed=replace(self.needed, shards=(shards[0], shards[-1] + 1)))

    def sent_bytes(self) -> float:
        stages = [stage for stage, _ in self.joins]
        return docs_bytes(stages, self.needed.entries, self.units.like)

    def scan(self, number: int) -> Iterator[SentRows]:
        unit, file = self.units.read(number)
        opened, start = _open_list(self.needed.urls), time.monotonic()
        first, end = self.needed.shards
        rejects = Rejects("docs", NO_LIMIT)
        docs = 0
        buffer: list[pa.RecordBatch] = []
        shards: list[np.ndarray] = []
        with file.unchanged():
            for batch in read_unit(unit, rejects):
                docs += len(batch.keys)
                rows, needed_by = opened.lookup(hashes64(batch.keys))
                in_job = (needed_by >= first) & (needed_by < end)
                distinct, row_of = np.unique(rows[in_job], return_inverse=True)
                if len(distinct):
                    columns = (
                        [column[row] for row in distinct]
                        for column in (batch.keys, batch.positions, batch.texts)
                    )
                    found = self._stored(unit.index, *columns)
                    buffer.append(found.take(pa.array(row_of)))
                    shards.append(needed_by[in_job])
                if sum(each.nbytes for each in buffer) > _FLUSH_BYTES:
                    yield from by_shard(buffer, shards)
                    buffer, shards = [], []
            yield from by_shard(buffer, shards)
        stage, folder = self.joins[0]
        report_scan(folder.url, stage.corpus_digest, unit.index, docs, rejects, start)

    def _stored(
        self, unit: int, keys: Sequence[str], positions: Sequence[int], texts: Sequence[str]
    ) -> pa.RecordBatch:
        """The rows of some docs of a unit, each once."""
        columns: list[Any] = []
        for stage, _ in self.joins:
            stored = stage.encoder.encode(texts, stage.most)
            columns += [stored.ids, stored.truncated]
        place = [keys, np.full(len(keys), unit), positions, text_digests(texts)]
        return pa.record_batch([*place, *columns], schema=self.schema)

    def gather(self, task: ShardTask, rows: Sequence[pa.RecordBatch]) -> Receipt:
        number = [folder for _, folder in self.joins].index(task.folder)
        docs = pa.Table.from_batches(rows, self.schema)
        return self.joins[number][0].join(task, docs, number, self.units.place)


def docs_bytes(stages: Sequence[JoinDocs], docs: int, unit: CorpusUnit) -> float:
    """About how many bytes so many docs have in the shuffle, by the letters of the first docs of a
    unit.
    """
    letters: list[int] = []
    for batch in read_unit(unit):
        letters += map(len, batch.texts)
        if len(letters) >= _SAMPLE_DOCS:
            break
    stored = sum(
        stage.item_bytes * min(count / stage.item_letters, stage.most)
        for stage in stages
        for count in letters
    )
    return docs * (_ROW_OVERHEAD_BYTES + stored / max(1, len(letters)))


@dataclass(frozen=True)
class NeededRanges:
    """Some ranges of the hash by which the needed docs of shards are listed, a file each.

    Attributes:
        folder: where the files are.
        prefix: the beginning of their names.
        ranges: how many ranges there are in all.
        chosen: these.
    """

    stage: JoinDocs
    folder: str
    prefix: str
    ranges: int
    chosen: range

    def needed(self, task: ShardTask) -> Iterator[tuple[int, bytes]]:
        """The docs that a shard needs, by range."""
        needed = self.stage.needed(task, self.ranges)
        return (entries for entries in needed if entries[0] in self.chosen)

    def publish(self, number: int, entries: Iterable[bytes]) -> None:
        """Writes the file of a range from the entries of all shards."""
        NeededDocs.of(entries).publish(self.folder, self.prefix, number)
