"""Tables with named columns: Parquet files by row groups, Arrow IPC (Feather) files by record batches."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.errors import DataError
from beamrank.formats.checks import WrongFormatError
from beamrank.formats.texts.parquet import ENDINGS as _PARQUET
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as

ENDINGS = (*_PARQUET, ".arrow", ".feather", ".ipc")
_BATCH_ROWS = 4096
# A folder whose name holds the value of a column for all files below it.
_PARTITION = re.compile(r"([^/=]+)=([^/]*)/")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def is_table(url: str) -> bool:
    """Whether a file has the name of one."""
    return url.endswith(ENDINGS)


class Table(Protocol):
    """An open file."""

    @property
    def schema(self) -> Any:
        """Its columns, those of its partition among them."""

    @property
    def group_bytes(self) -> Sequence[int]:
        """About how large each row group or record batch is."""

    def batches(
        self, start: int, end: int | None, columns: list[str] | None = None, batch_rows: int = _BATCH_ROWS
    ) -> Iterator[tuple[int, Any]]:
        """Record batches of some row groups or record batches, each with the number of its first row, from 1."""


@contextmanager
def open_table(url: str) -> Iterator[Table]:
    """A Parquet or an Arrow file; errors of reading it inside the `with` block become DataError.

    Raises:
        WrongFormatError: it is not one.
    """
    kind, name = (_Parquet, "a Parquet") if url.endswith(_PARQUET) else (_Arrow, "an Arrow IPC")
    with errors_as(DataError, url), storage.open_binary(url) as source:
        try:
            table = kind(source, dict(_PARTITION.findall(storage.absolute(url))))
        except pa.ArrowInvalid as error:
            raise WrongFormatError(f"{url} is not {name} file: {error}") from error
        yield table


class _Partitioned:
    """The columns that the folders of a partitioned table name, as Hive and Spark do, beside those of a file."""

    def __init__(self, schema: Any, partition: dict[str, str]) -> None:
        self._partition = {
            name: None if value == _NULL_PARTITION else value
            for name, value in ((unquote(name), unquote(value)) for name, value in partition.items())
            if name not in schema.names
        }
        fields = [pa.field(name, pa.string()) for name in self._partition]
        self.schema = pa.schema([*schema, *fields])

    def _completed(self, batch: Any, columns: list[str] | None) -> Any:
        for name, value in self._partition.items():
            if columns is None or name in columns:
                batch = batch.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(batch)))
        return batch


class _Parquet(_Partitioned):
    def __init__(self, source: Any, partition: dict[str, str]) -> None:
        self._file = pq.ParquetFile(source)
        super().__init__(self._file.schema_arrow, partition)

    @property
    def _groups(self) -> list[Any]:
        return [self._file.metadata.row_group(group) for group in range(self._file.num_row_groups)]

    @property
    def group_bytes(self) -> list[int]:
        return [group.total_byte_size for group in self._groups]

    def batches(
        self, start: int, end: int | None, columns: list[str] | None = None, batch_rows: int = _BATCH_ROWS
    ) -> Iterator[tuple[int, Any]]:
        row = 1 + sum(group.num_rows for group in self._groups[:start])
        groups = list(range(self._file.num_row_groups))[start : end or None]
        own = None if columns is None else [name for name in columns if name not in self._partition]
        for batch in self._file.iter_batches(batch_size=batch_rows, row_groups=groups, columns=own):
            yield row, self._completed(batch, columns)
            row += len(batch)


class _Arrow(_Partitioned):
    def __init__(self, source: Any, partition: dict[str, str]) -> None:
        self._bytes = source.seek(0, 2)
        self._file = pa.ipc.open_file(source)
        super().__init__(self._file.schema, partition)

    @property
    def group_bytes(self) -> list[int]:
        count = self._file.num_record_batches
        return [self._bytes // count] * count

    def batches(
        self, start: int, end: int | None, columns: list[str] | None = None, batch_rows: int = _BATCH_ROWS
    ) -> Iterator[tuple[int, Any]]:
        row = 1
        for number in range(end or self._file.num_record_batches):
            whole = self._file.get_batch(number)
            if number >= start:
                own = [name for name in columns or self.schema.names if name not in self._partition]
                for at in range(0, len(whole), batch_rows):
                    yield row + at, self._completed(whole.select(own).slice(at, batch_rows), columns)
            row += len(whole)


def numbered_rows(
    url: str, columns: list[str] | None = None, batch_rows: int = _BATCH_ROWS, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file, or of some of its groups, which count from 1; of some columns, or of all.

    Raises:
        WrongFormatError: a row is not UTF-8.
    """
    with open_table(url) as table:
        for row, batch in table.batches(start, end, columns, batch_rows):
            yield from numbered(url, row, batch)


def numbered(url: str, row: int, batch: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a batch of a file, which begins at a row; raises as `numbered_rows`."""
    try:
        values = batch.to_pylist()
    except UnicodeDecodeError as error:
        last = row + len(batch) - 1
        raise WrongFormatError(f"{url}: one of rows {row} to {last} is not UTF-8") from error
    return enumerate(values, row)
