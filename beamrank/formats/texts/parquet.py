"""Parquet: an id column `doc_id`, `_id` or `id`, and text columns; a unit is a row group."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.errors import DataError, PreflightError
from beamrank.formats import files
from beamrank.formats.checks import RowError, WrongFormatError, id_of, joined, text_of, whole_of
from beamrank.formats.columns import TITLE, find_id
from beamrank.formats.texts.units import CorpusFormat, CorpusUnit, DocBatch, parse_rows
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as

ENDINGS = (".parquet", ".pq")
_TEXT = "text"
_TEXT_COLUMNS = ("contents", _TEXT)
_BATCH_ROWS = 4096


def is_parquet(url: str) -> bool:
    """Whether a file has the name of one."""
    return url.endswith(ENDINGS)


def check(unit: CorpusUnit, title: bool = False) -> None:
    """Checks that a file has the columns, each once and of a type that can hold them."""
    url = unit.url
    with open_parquet(url) as file:
        id_name, names = _columns(unit, file.schema_arrow.names, title)
        for name in (id_name, *names):
            if file.schema_arrow.names.count(name) > 1:
                raise PreflightError(f"{url} has more than one column `{name}`: give each its own name")
            check_text_type(file, url, name, number=name == id_name)


def row_groups(url: str, _unit_bytes: int) -> list[tuple[int, int]]:
    """The row groups of a file."""
    with open_parquet(url) as file:
        return [(group, group + 1) for group in range(file.num_row_groups)]


def read(unit: CorpusUnit, title: bool = False) -> Iterator[DocBatch]:
    """The docs of a unit; with `title`, a column of that name, which may hold null, begins a text."""
    with open_parquet(unit.url) as file:
        id_name, names = _columns(unit, file.schema_arrow.names, title)
        may_be_null = TITLE if title and unit.fields is None else None
        row = sum(file.metadata.row_group(group).num_rows for group in range(unit.start))

        def parse(cells: tuple[object, ...]) -> tuple[str, str]:
            doc_id, *values = cells
            texts = zip(names, values, strict=True)
            return id_of(doc_id), joined(
                ["" if value is None and name == may_be_null else text_of(name, value) for name, value in texts]
            )

        columns = list(dict.fromkeys((id_name, *names)))
        groups = list(range(unit.start, unit.end))
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, columns=columns):
            values = [column_values(batch.column(name)) for name in (id_name, *names)]
            yield parse_rows(unit, range(row, row + batch.num_rows), zip(*values, strict=True), parse)
            row += batch.num_rows


@contextmanager
def open_parquet(url: str, buffer_bytes: int = 0) -> Iterator[Any]:
    """A Parquet file; errors of reading it inside the `with` block become DataError.

    With `buffer_bytes`, batches of a column are read in pieces of this size, and not from the whole row group.

    Raises:
        WrongFormatError: it is not one.
    """
    with errors_as(DataError, url), storage.open_binary(url) as source:
        try:
            file = pq.ParquetFile(source, buffer_size=buffer_bytes, pre_buffer=not buffer_bytes)
        except pa.ArrowInvalid as error:
            raise WrongFormatError(f"{url} is not a Parquet file: {error}") from error
        yield file


def _columns(unit: CorpusUnit, names: list[str], title: bool) -> tuple[str, tuple[str, ...]]:
    """The id column of some columns, and those that make the text."""
    try:
        at = find_id(names, "doc_id", unit.names.columns)
    except RowError as error:
        raise PreflightError(f"{unit.url} {error}") from error
    if at is None:
        raise PreflightError(
            f"{unit.url} has no column `doc_id` or `_id` or `id`; it has: {', '.join(names)}. Name it in "
            "`corpus.columns: {doc_id: ...}`"
        )
    usual = tuple(name for name in _TEXT_COLUMNS if name in names)[:1]
    if title:
        usual = (TITLE, _TEXT) if TITLE in names else (_TEXT,)
    texts = unit.fields or usual
    missing = next((name for name in texts if name not in names), None) if texts else "` or `".join(_TEXT_COLUMNS)
    if missing is not None:
        raise PreflightError(
            f"{unit.url} has no column `{missing}`; it has: {', '.join(names)}. Name the text columns in "
            "`corpus.fields`"
        )
    return names[at], texts


def check_text_type(file: Any, url: str, name: str, number: bool = False) -> None:
    """Raises PreflightError where a column of a file does not hold strings; with `number` it may hold integers.

    A column that is null in every row can have any type: programs that write it choose one.
    """
    column_type = file.schema_arrow.field(name).type
    if holds_texts(column_type, number):
        return
    batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=[name])
    if not all(len(batch) == batch.column(0).null_count for batch in batches):
        raise PreflightError(f"the column `{name}` of {url} is of type {column_type}: it must hold strings")


def holds_texts(column_type: Any, number: bool = False) -> bool:
    """Whether a column of a type holds strings; with `number` it may hold integers."""
    if pa.types.is_dictionary(column_type):
        column_type = column_type.value_type
    tests = [pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view]
    tests += [pa.types.is_binary, pa.types.is_large_binary]
    tests += [pa.types.is_integer, pa.types.is_decimal] if number else []
    return any(test(column_type) for test in tests)


def column_values(column: Any) -> list[object]:
    """A column as Python values; bytes that are not valid UTF-8 stay bytes, and numbers that are not whole Decimal."""
    if pa.types.is_dictionary(column.type):
        # Views, which polars has, cannot be taken.
        is_view = pa.types.is_string_view(column.type.value_type)
        values = column.dictionary.cast(pa.large_string()) if is_view else column.dictionary
        column = pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_integer(column.type):
        return list(column.to_pylist())
    if pa.types.is_decimal(column.type):
        return [whole_of(value) for value in column.to_pylist()]
    return [_decoded(value) for value in column.cast(pa.large_binary()).to_pylist()]


def _decoded(value: bytes | None) -> object:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def place(unit: CorpusUnit, position: int) -> str:
    """The place of a row."""
    return f"{unit.url} at row {position} (from 0)"


PARQUET = CorpusFormat("parquet", ENDINGS, row_groups, read, place, check, look=files.PARQUET, has_columns=True)
