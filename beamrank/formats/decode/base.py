"""The interface of decoders: names of columns, ranges that are read on their own, and rows."""

import io
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.values import RowError
from beamrank.notes import Note
from beamrank.storage.local_files import is_pipe
from beamrank.storage.streams import open_stream

# Takes a row that no decoder can read: its place, the reason, and the row.
Bad: TypeAlias = Callable[[int, RowError, Any], None]
# The numbers of columns, with the types that suit the reader best.
Wanted: TypeAlias = Mapping[int, pa.DataType]
# Rows of values, each with its place.
Records: TypeAlias = Iterator[tuple[int, Sequence[Any]]]
_RECORDS_AT_ONCE = 1 << 12
# They are enough to see what a file holds.
_FIRST_RECORDS = 16
_CR = re.compile(rb"\r(?!\n)")
LONE_CR = "has a carriage return (CR) inside. Lines must end in LF or CR LF"
BYTE_ORDER_MARK = "\ufeff".encode()


class Source:
    """A file, which can be opened again; a named pipe is read into memory for that.

    Attributes:
        url: its URL, for messages.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._content: bytes | None = None

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Opens the file, decompressed; raises DataError where it cannot be read."""
        if self._content is None and is_pipe(self.url):
            with open_stream(self.url, pipe=True) as file:
                self._content = file.read()
        if self._content is None:
            return open_stream(self.url)
        return nullcontext(io.BytesIO(self._content))


class WrongFormatError(PreflightError):
    """A file is not of the format that it is read as; the reader adds the format that it looks
    like.
    """


class Rows(NamedTuple):
    """Some rows of a file, in order.

    Attributes:
        columns: the wanted columns by their numbers: an Arrow array, or a list of Python values.
            Text that is not UTF-8 is bytes.
        places: of each row: its line or row from 1, or its byte.
    """

    columns: Mapping[int, Any]
    places: Sequence[int] | NDArray[np.int64]


def unit_ranges(sizes: Sequence[int], unit_bytes: int) -> list[tuple[int, int]]:
    """Ranges of parts of about the size of a unit, by their sizes; a range has at least one."""
    ranges, start, size = [], 0, 0
    for number, part_bytes in enumerate(sizes):
        size += part_bytes
        if size >= unit_bytes or number == len(sizes) - 1:
            ranges.append((start, number + 1))
            start, size = number + 1, 0
    return ranges


def collected(records: Records, wanted: Wanted) -> Iterator[Rows]:
    """Records, each with its place, as columns."""
    while batch := list(itertools.islice(records, _RECORDS_AT_ONCE)):
        places, rows = zip(*batch, strict=True)
        yield Rows({at: [row[at] for row in rows] for at in wanted}, places)


def ignore(*_: object) -> None:
    """Takes a row that cannot be read where only others matter."""


class Decoder(ABC):
    """An open file.

    Attributes:
        noun: what a place counts: `line`, `byte` or `row`.
        names: the names of the columns; empty where rows have none.
        types: the Arrow types of the columns, where the file has such.
        width: how many columns a row has; 0 in a file without rows.
        first: the values of the first row; empty in a file without rows, or where none is known.
        notes: what a user should know about the file.
        comments: the lines that begin with `#`, of what was read.
    """

    noun: str = "line"
    names: tuple[str, ...] = ()
    types: Mapping[int, pa.DataType] = MappingProxyType({})
    width: int = 0
    first: Sequence[Any] = ()
    notes: Sequence[Note] = ()
    comments: Sequence[bytes] = ()

    def ranges(self, unit_bytes: int) -> list[tuple[int, int]]:  # noqa: ARG002
        """The ranges that can be read on their own, each start and end; (0, 0) for the whole
        file.
        """
        return [(0, 0)]

    @abstractmethod
    def rows(self, start: int, end: int, wanted: Wanted, bad: Bad) -> Iterator[Rows]:
        """The rows of a range, in which `end` 0 stands for the end of the file.

        Raises:
            DataError: the file cannot be read.
            WrongFormatError: it is not of this format.
        """

    @property
    def texts(self) -> Collection[int] | None:
        """The columns that hold strings; None where all do."""
        return None

    @property
    def empty(self) -> Collection[int]:
        """The columns without values."""
        return ()

    def classes(self, at: int) -> Sequence[str]:  # noqa: ARG002
        """The names that the numbers of a column stand for."""
        return ()


class RecordsDecoder(Decoder):
    """Rows that a function yields, each with its place, of a format that is read whole; see
    `Decoder`.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        records: Callable[[Bad], Records],
        noun: str = "line",
    ) -> None:
        self.noun, self.names, self.width = noun, names, len(names)
        self._records = records

    def rows(
        self,
        start: int,  # noqa: ARG002
        end: int,  # noqa: ARG002
        wanted: Wanted,
        bad: Bad,
    ) -> Iterator[Rows]:
        records = self._records(bad)
        yield from collected(itertools.islice(records, _FIRST_RECORDS), wanted)
        yield from collected(records, wanted)


def numbered_lines(source: Source) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, without line ends, each with its number from 1."""
    with source.open() as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(BYTE_ORDER_MARK if number == 1 else b"").rstrip(b"\n")
            if text := text.removesuffix(b"\r"):
                yield number, text


def parsed(
    rows: Iterable[tuple[int, bytes]],
    parse: Callable[[str], Sequence[Any]],
    bad: Bad,
    *,
    lone_cr: bool = False,
) -> Records:
    """The values of rows of text, each with its place, for `RecordsDecoder`.

    A row that is not UTF-8, or for which `parse` raises RowError, is bad; so is one with a carriage
    return (CR) without a line feed, but where `lone_cr` says that it is part of a text.
    """
    for place, row in rows:
        try:
            if not lone_cr and _CR.search(row):
                raise RowError(LONE_CR, "lone-cr")
            yield place, parse(decoded(row))
        except RowError as error:
            bad(place, error, row)


def decoded(row: bytes) -> str:
    """A row as text; raises RowError if it is not UTF-8."""
    try:
        return row.decode()
    except UnicodeDecodeError as error:
        remedy = "convert the file, such as with `iconv -f latin1 -t utf-8`"
        reason = f"is not valid UTF-8 (byte 0x{row[error.start]:02x}): {remedy}"
        raise RowError(reason, "not-utf8") from error


class FolderColumns(Decoder):
    """A decoder's rows with the columns that folders name; see `Decoder`."""

    def __init__(self, rows: Decoder, folders: Mapping[str, str | None]) -> None:
        """Takes the value of each column that a folder names."""
        first = len(rows.names)
        self.names = (*rows.names, *folders)
        folder_types = dict.fromkeys(range(first, len(self.names)), pa.string())
        self.types = {**rows.types, **folder_types} if rows.types else {}
        self.width = rows.width
        self.first = [*rows.first, *folders.values()] if rows.first else []
        self._rows = rows
        self._values = dict(enumerate(folders.values(), first))

    def rows(self, start: int, end: int, wanted: Wanted, bad: Bad) -> Iterator[Rows]:
        from_rows = {at: kind for at, kind in wanted.items() if at not in self._values}
        for rows in self._rows.rows(start, end, from_rows, bad):
            count = len(rows.places)
            folders = {
                at: pa.repeat(pa.scalar(value, pa.string()), count)
                for at, value in self._values.items()
                if at in wanted
            }
            yield Rows({**rows.columns, **folders}, rows.places)
