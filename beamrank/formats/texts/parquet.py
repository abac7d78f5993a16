"""Parquet files as batches of Python values."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.errors import DataError, PreflightError
from beamrank.formats.checks import (
    WrongFormatError,
    whole_of,
)
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as

ENDINGS = (".parquet", ".pq")
_BATCH_ROWS = 4096


def is_parquet(url: str) -> bool:
    """Whether a file has the name of one."""
    return url.endswith(ENDINGS)


@contextmanager
def open_parquet(url: str, buffer_bytes: int = 0) -> Iterator[Any]:
    """A Parquet file; errors of reading it inside the `with` block become DataError.

    With `buffer_bytes`, batches of a column are read in pieces of this size, and not from the whole
    row group.

    Raises:
        WrongFormatError: it is not one.
    """
    with errors_as(DataError, url), storage.open_binary(url) as source:
        try:
            file = pq.ParquetFile(source, buffer_size=buffer_bytes, pre_buffer=not buffer_bytes)
        except pa.ArrowInvalid as error:
            raise WrongFormatError(f"{url} is not a Parquet file: {error}") from error
        yield file


def batches_of(
    file: Any,
    columns: Sequence[str],
    groups: Iterable[int] | None = None,
    batch_rows: int = _BATCH_ROWS,
) -> Iterator[Any]:
    """Record batches of some row groups; raises ArrowInvalid where rows are missing, at which Arrow
    just ends.
    """
    numbers = list(range(file.num_row_groups) if groups is None else groups)
    missing = sum(file.metadata.row_group(group).num_rows for group in numbers)
    for batch in file.iter_batches(batch_size=batch_rows, row_groups=numbers, columns=columns):
        missing -= len(batch)
        yield batch
    if missing:
        raise pa.ArrowInvalid(f"it states {missing} more rows than it holds")


def check_text_type(file: Any, url: str, name: str, number: bool = False) -> None:
    """Raises PreflightError where a column of a file does not hold strings; with `number` it may
    hold integers.

    A column that is null in every row can have any type: programs that write it choose one.
    """
    column_type = file.schema_arrow.field(name).type
    if holds_texts(column_type, number):
        return
    batches = batches_of(file, [name])
    if not all(len(batch) == batch.column(0).null_count for batch in batches):
        raise PreflightError(
            f"the column `{name}` of {url} is of type {column_type}: it must hold strings"
        )


def holds_texts(column_type: Any, number: bool = False) -> bool:
    """Whether a column of a type holds strings; with `number` it may hold integers."""
    if pa.types.is_dictionary(column_type):
        column_type = column_type.value_type
    tests = [pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view]
    tests += [pa.types.is_binary, pa.types.is_large_binary]
    tests += [pa.types.is_integer, pa.types.is_decimal] if number else []
    return any(test(column_type) for test in tests)


def column_values(column: Any) -> list[object]:
    """A column as Python values, whole numbers of any type as integers; bytes that are not valid
    UTF-8 stay bytes.
    """
    if pa.types.is_dictionary(column.type):
        # Views, which polars has, cannot be taken.
        is_view = pa.types.is_string_view(column.type.value_type)
        values = column.dictionary.cast(pa.large_string()) if is_view else column.dictionary
        column = pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if holds_texts(column.type):
        return [_decoded(value) for value in column.cast(pa.large_binary()).to_pylist()]
    values = column.to_pylist()
    return (
        list(values) if pa.types.is_integer(column.type) else [whole_of(value) for value in values]
    )


def _decoded(value: bytes | None) -> object:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value
