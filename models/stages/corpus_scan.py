"""The scan of a corpus for the open shards of a stage that joins them with it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import ShardTask
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join.doc_hashes import NeededDocs, NeededList
from beamrank.storage.digested import DigestedFile
from beamrank.storage.row_files import read_row, write_rows
from models.stages.scatter import Scatter, SentRows
from models.stages.tokenize import TokenizeDocs

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
    """Tokenizes needed docs of the corpus.

    Attributes:
        needed: the list of the needed docs.
        units: those of the corpus.
    """

    stage: TokenizeDocs
    needed: NeededList
    units: UnitFile

    source = "corpus"

    @property
    def schema(self) -> pa.Schema:
        return self.stage.sent_schema

    @property
    def count(self) -> int:
        return self.units.count

    def for_shards(self, shards: Sequence[int]) -> Self:
        return replace(self, needed=replace(self.needed, shards=(shards[0], shards[-1] + 1)))

    def sent_bytes(self) -> float:
        return self.stage.sent_bytes(self.needed.entries, self.units.like)

    def scan(self, number: int) -> Iterator[SentRows]:
        return self.stage.scan(*self.units.read(number), self.needed, self.folder)

    def gather(self, task: ShardTask, rows: Sequence[pa.RecordBatch]) -> Receipt:
        return self.stage.join(task, rows, self.units.place)


@dataclass(frozen=True)
class NeededRanges:
    """Some ranges of the hash by which the needed docs of shards are listed, a file each.

    Attributes:
        folder: where the files are.
        prefix: the beginning of their names.
        ranges: how many ranges there are in all.
        chosen: these.
    """

    stage: TokenizeDocs
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
