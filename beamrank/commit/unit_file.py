"""The units of a corpus in a file: a job's graph carries ranges of them, and a worker reads those that it scans."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from beamrank.formats.texts.units import CorpusUnit
from beamrank.storage.digested import DigestedFile
from beamrank.storage.row_files import read_row, write_rows

# (a unit of the corpus, its file as it was digested)
UnitSource = tuple[CorpusUnit, DigestedFile]

_OF_UNIT = {"url": pa.string(), "start": pa.int64(), "end": pa.int64(), "header": pa.bool_()}
_SCHEMA = pa.schema({**_OF_UNIT, "version": pa.string(), "sha256": pa.string()})


@dataclass(frozen=True)
class UnitFile:
    """All units of a corpus, by number.

    Attributes:
        url: of the file.
        like: one of them: all have its format and its columns.
    """

    url: str
    like: CorpusUnit

    @classmethod
    def write(cls, folder: str, prefix: str, sources: Sequence[UnitSource]) -> Self:
        """Writes the units, in order, under a prefix and their content's own name."""
        rows = (
            {**{name: getattr(unit, name) for name in _OF_UNIT}, "version": file.version, "sha256": file.sha256}
            for unit, file in sources
        )
        return cls(write_rows(folder, prefix, _SCHEMA, rows), sources[0][0])

    def read(self, number: int) -> UnitSource:
        """A unit and its file.

        Raises:
            DataError: the file with the units is missing or was changed.
        """
        row = read_row(self.url, number)
        file = DigestedFile(row["url"], row.pop("version"), row.pop("sha256"))
        return replace(self.like, index=number, **row), file

    def place(self, number: int, position: int) -> str:
        """The place of a doc of a unit, for messages."""
        return self.read(number)[0].place(position)
