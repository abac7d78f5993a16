"""Tables with named columns: Parquet files by row groups, Arrow IPC (Feather) files by record
batches.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

import pyarrow as pa

from beamrank.errors import DataError
from beamrank.formats.decode.base import WrongFormatError
from beamrank.formats.decode.parquet import (
    ParquetFile,
    batches_of,
    check_room,
    room_bytes,
    text_bytes,
)
from beamrank.formats.texts.parquet import ENDINGS as _PARQUET
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as

ENDINGS = (*_PARQUET, ".arrow", ".feather", ".ipc")
# A folder whose name holds the value of a column for all files below it.
_PARTITION = re.compile(r"([^/=]+)=([^/]*)/")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def is_table(url: str) -> bool:
    """Whether a file has the name of one."""
    return url.endswith(ENDINGS)


class Table(NamedTuple):
    """An open file.

    Attributes:
        schema: its columns, those of its partition among them.
        group_bytes: about how large each row group or record batch is.
        partition: the columns that its folders name, as Hive and Spark do.
        count: how many rows a group has.
        read: the record batches of a group, of some columns, of at most so many rows.
    """

    schema: pa.Schema
    group_bytes: Sequence[int]
    partition: Mapping[str, str | None]
    count: Callable[[int], int]
    read: Callable[[int, list[str], int], Iterable[pa.RecordBatch]]

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """A table in memory."""
        read = lambda _, columns, batch_rows: table.select(columns).to_batches(batch_rows)  # noqa: E731
        return cls(table.schema, [table.nbytes], {}, lambda _: len(table), read)

    def batches(
        self, start: int, end: int | None, columns: Sequence[str] | None, batch_rows: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Record batches of some row groups or record batches, each with the number of its first
        row, from 1.
        """
        row = 1 + sum(map(self.count, range(start)))
        own = [name for name in columns or self.schema.names if name not in self.partition]
        for group in range(start, end or len(self.group_bytes)):
            for batch in filter(len, self.read(group, own, batch_rows)):
                for name, value in self.partition.items():
                    if columns is None or name in columns:
                        batch = batch.append_column(
                            name, pa.repeat(pa.scalar(value, pa.string()), len(batch))
                        )
                yield row, batch
                row += len(batch)


@contextmanager
def open_table(url: str) -> Iterator[Table]:
    """A Parquet or an Arrow file; errors of reading it inside the `with` block become DataError.

    Raises:
        WrongFormatError: it is not one.
    """
    is_parquet = url.endswith(_PARQUET)
    with errors_as(DataError, url), storage.open_binary(url) as source:
        try:
            file = ParquetFile(source) if is_parquet else pa.ipc.open_file(source)
        except pa.ArrowInvalid as error:
            name = "a Parquet" if is_parquet else "an Arrow IPC"
            raise WrongFormatError(f"{url} is not {name} file: {error}") from error
        schema = file.schema_arrow if is_parquet else file.schema
        partition = {
            unquote(name): None if value == _NULL_PARTITION else unquote(value)
            for name, value in _PARTITION.findall(storage.absolute(url))
            if unquote(name) not in schema.names
        }
        schema = pa.schema([*schema, *(pa.field(name, pa.string()) for name in partition)])
        if is_parquet:
            groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
            sizes = [group.total_byte_size for group in groups]
            yield Table(
                schema,
                sizes,
                partition,
                lambda group: groups[group].num_rows,
                partial(_read_group, file),
            )
        else:
            sizes = [source.seek(0, 2) // max(file.num_record_batches, 1)] * file.num_record_batches
            yield Table(
                schema,
                sizes,
                partition,
                lambda at: len(file.get_batch(at)),
                partial(_read_batch, file, room_bytes(max(sizes, default=0))),
            )


def _read_group(
    file: Any, group: int, columns: list[str], batch_rows: int
) -> Iterable[pa.RecordBatch]:
    return batches_of(file, columns, [group], batch_rows)


def _read_batch(
    file: Any, room: int, number: int, columns: list[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    batch = file.get_batch(number).select(columns)
    # Offsets of a damaged file would lead out of its memory.
    batch.validate(full=True)
    check_room(room - sum(map(text_bytes, batch.columns)), number)
    return (batch.slice(at, batch_rows) for at in range(0, len(batch), batch_rows))


def numbered(url: str, row: int, batch: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a batch of a file, which begins at a row; raises WrongFormatError where one is no
    value in Python.
    """
    try:
        values = batch.to_pylist()
    except (ValueError, OverflowError) as error:  # Such as a date beyond the year 9999.
        problem = (
            "is not UTF-8" if isinstance(error, UnicodeDecodeError) else f"cannot be read: {error}"
        )
        raise WrongFormatError(
            f"{url}: one of rows {row} to {row + len(batch) - 1} {problem}"
        ) from error
    return enumerate(values, row)
