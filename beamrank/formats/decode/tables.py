"""Tables: Parquet by row groups, Arrow's files by record batches, Arrow's streams, and tables in
memory.

Only wanted columns are decoded. pyarrow.dataset reads no streams, and opens files in its own way.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from beamrank.errors import DataError
from beamrank.formats.decode.base import Bad, Decoder, Rows, Wanted, WrongFormatError, unit_ranges
from beamrank.formats.decode.parquet import (
    ParquetFile,
    batches_of,
    check_room,
    room_bytes,
    text_bytes,
)
from beamrank.formats.values import holds_texts, plain_type
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as

PARQUET_ENDINGS = (".parquet", ".pq")
ENDINGS = (*PARQUET_ENDINGS, ".arrow", ".feather", ".ipc")
_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 32 << 20
_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
_PARQUET, _ARROW_FILE, _ARROW_STREAM = b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff"


def is_table(url: str, beginning: bytes = b"") -> bool:
    """Whether a file has the name or the first bytes of a table."""
    magics = (_PARQUET, _ARROW_FILE, _ARROW_STREAM)
    return url.lower().endswith(ENDINGS) or beginning.startswith(magics)


class _Opened(NamedTuple):
    """An open table.

    Attributes:
        schema: its columns.
        group_bytes: about how large each row group or record batch is.
        group_rows: how many rows each has.
        has_rows: whether any has one.
        read: the record batches of some groups, of some columns by their numbers.
    """

    schema: pa.Schema
    group_bytes: Sequence[int]
    group_rows: Callable[[int], int]
    has_rows: Callable[[], bool]
    read: Callable[[range, list[int]], Iterable[pa.RecordBatch]]


class TableDecoder(Decoder):
    """A table; see `Decoder`. A range is one of row groups or record batches."""

    def __init__(
        self,
        url: str,
        opened: Callable[[], AbstractContextManager[_Opened]],
        first_row: int = 1,
    ) -> None:
        """Takes the number of the first row."""
        self.noun = "row"
        self._url = url
        self._opened = opened
        self._first_row = first_row
        with self._open() as table:
            self.names = tuple(table.schema.names)
            self.types = dict(enumerate(table.schema.types))
            self._group_bytes = table.group_bytes
            self._metadata = table.schema.metadata or {}
            self.width = len(self.names) if table.has_rows() else 0

    @contextmanager
    def _open(self) -> Iterator[_Opened]:
        with errors_as(DataError, self._url), self._opened() as table:
            try:
                yield table
            except (pa.ArrowInvalid, OSError) as error:
                if getattr(error, "errno", None):
                    raise
                raise _damaged(self._url, "a whole", error) from error

    def classes(self, at: int) -> Sequence[str]:
        # As `datasets` keeps them.
        try:
            kept = json.loads(self._metadata.get(b"huggingface", b"{}"))
            return list(map(str, kept["info"]["features"][self.names[at]]["names"]))
        except (ValueError, LookupError, TypeError):
            return []

    @property
    def texts(self) -> list[int]:
        return [at for at, kind in self.types.items() if holds_texts(plain_type(kind))]

    @property
    def empty(self) -> list[int]:
        return [at for at, kind in self.types.items() if pa.types.is_null(kind)]

    def starts(self) -> list[int]:
        """The first row of each row group, from 0, and, last, the number of rows."""
        with self._open() as table:
            return [0, *accumulate(map(table.group_rows, range(len(table.group_bytes))))]

    def ranges(self, unit_bytes: int) -> list[tuple[int, int]]:
        return unit_ranges(self._group_bytes, unit_bytes)

    def rows(
        self,
        start: int,
        end: int,
        wanted: Wanted,
        bad: Bad,  # noqa: ARG002
    ) -> Iterator[Rows]:
        with self._open() as table:
            place = self._first_row + sum(map(table.group_rows, range(start)))
            groups = range(start, end or len(table.group_bytes))
            for batch in table.read(groups, list(wanted)):
                columns = dict(zip(wanted, batch.columns, strict=True))
                yield Rows(columns, np.arange(place, place + len(batch)))
                place += len(batch)


def open_table_file(url: str, beginning: bytes) -> TableDecoder:
    """Opens a Parquet or Arrow file; raises WrongFormatError where it is none, or damaged."""
    opened = _parquet
    if beginning.startswith(_ARROW_STREAM):
        opened = _stream
    elif beginning.startswith(_ARROW_FILE):
        opened = _arrow
    return TableDecoder(url, partial(opened, url))


def table_in_memory(name: str, table: pa.Table) -> TableDecoder:
    """A table as a decoder, whose rows count from 0."""

    @contextmanager
    def opened() -> Iterator[_Opened]:
        yield _Opened(
            table.schema,
            [table.nbytes],
            lambda _: len(table),
            lambda: len(table) > 0,
            lambda _, columns: table.select(columns).to_batches(_BATCH_ROWS),
        )

    return TableDecoder(name, opened, first_row=0)


@contextmanager
def _opening(url: str, what: str, make: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """The bytes of a file, and what reads them; raises WrongFormatError where nothing can."""
    with storage.open_binary(url) as source:
        try:
            file = make(source)
        except (pa.ArrowInvalid, OSError) as error:
            if getattr(error, "errno", None):
                raise
            raise _damaged(url, what, error) from error
        yield source, file


@contextmanager
def _parquet(url: str) -> Iterator[_Opened]:
    with _opening(url, "a Parquet", ParquetFile) as (_, file):
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        names = file.schema_arrow.names

        def read(numbers: range, columns: list[int]) -> Iterator[pa.RecordBatch]:
            wanted = [names[at] for at in columns]
            chosen = [groups[number] for number in numbers]
            size_bytes = sum(group.total_byte_size for group in chosen)
            rows = _rows_at_once(sum(group.num_rows for group in chosen), size_bytes)
            # A name can be there twice, among columns that are not read.
            batches = batches_of(file, wanted, numbers, rows)
            return (batch.select(wanted) for batch in batches)

        yield _Opened(
            file.schema_arrow,
            [group.total_byte_size for group in groups],
            lambda number: groups[number].num_rows,
            lambda: file.metadata.num_rows > 0,
            read,
        )


@contextmanager
def _arrow(url: str) -> Iterator[_Opened]:
    with _opening(url, "an Arrow", pa.ipc.open_file) as (source, file):
        count = file.num_record_batches
        size = source.seek(0, 2) // max(count, 1)

        def read(numbers: range, columns: list[int]) -> Iterator[pa.RecordBatch]:
            for number in numbers:
                batch = file.get_batch(number).select(columns)
                check_room(room_bytes(size) - sum(map(text_bytes, batch.columns)), number)
                yield from _pieces(batch)

        def rows(number: int) -> int:
            return len(file.get_batch(number))

        yield _Opened(file.schema, [size] * count, rows, lambda: any(map(rows, range(count))), read)


@contextmanager
def _stream(url: str) -> Iterator[_Opened]:
    with _opening(url, "an Arrow", pa.ipc.open_stream) as (_, file):

        def read(_: range, columns: list[int]) -> Iterator[pa.RecordBatch]:
            return (piece for batch in file for piece in _pieces(batch.select(columns)))

        # It is read to know its rows.
        yield _Opened(
            file.schema,
            [storage.size_bytes(url)],
            lambda _: sum(map(len, file)),
            lambda: any(map(len, file)),
            read,
        )


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    # Offsets of a damaged file would lead out of its memory. Text that is not UTF-8 is bytes, so
    # that its row can be named.
    columns = [
        column.view(_BYTES[column.type]) if column.type in _BYTES else column
        for column in batch.columns
    ]
    batch = pa.record_batch(columns, list(map(str, range(len(columns)))))
    batch.validate(full=True)
    rows = _rows_at_once(len(batch), batch.nbytes)
    return (batch.slice(at, rows) for at in range(0, len(batch), rows))


def _rows_at_once(rows: int, size_bytes: int) -> int:
    """How many rows a batch has, so that it is of a few megabytes."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(size_bytes, 1)))


def _damaged(url: str, what: str, error: Exception) -> WrongFormatError:
    return WrongFormatError(f"{url} is not {what} file: {error}", kind="damaged", file=url)
