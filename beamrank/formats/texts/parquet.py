"""Parquet: an id column `doc_id`, `_id` or `id`, and text columns; a unit is a row group."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beamrank.errors import DataError, PreflightError
from beamrank.formats import files
from beamrank.formats.checks import (
    SURROGATE_REASON,
    RowError,
    WrongFormatError,
    check_utf8,
    id_of,
    joined,
    missing_field,
    text_of,
    whole_of,
)
from beamrank.formats.columns import TITLE, find_id
from beamrank.formats.texts.units import CorpusUnit, DocBatch, TextFormat, parse_rows
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as

ENDINGS = (".parquet", ".pq")
_TEXT_COLUMNS = ("contents", "text")
# Of topics; BEIR's are called otherwise.
_TOPIC_IDS = ("query_id", "_id", "id", "qid", "topic_id")
_BEIR_IDS = ("_id", "query_id", "qid", "topic_id")
_BATCH_ROWS = 4096
# A row group's texts may be so large when they are decoded, or so many times as in the file. The
# first is the limit of JSON's values too.
_MOST_BYTES, _MOST_TIMES, _FEW_ROWS = 1 << 28, 100, 64


def is_parquet(url: str) -> bool:
    """Whether a file has the name of one."""
    return url.endswith(ENDINGS)


def check(unit: CorpusUnit) -> None:
    """Checks that a file has the columns, each once and of a type that can hold them."""
    with open_parquet(unit.url) as file:
        present = file.schema_arrow.names
        id_name, texts = _columns(unit, present)
        check_once(unit.url, present, (id_name, *texts))
        for name in (id_name, *texts):
            check_text_type(file, unit.url, name, number=name == id_name)


def check_once(url: str, names: Sequence[str], used: Iterable[str]) -> None:
    """Raises PreflightError where a name that is used is that of several columns."""
    counts = Counter(names)
    if twice := next((name for name in used if counts[name] > 1), None):
        raise PreflightError(f"{url} has more than one column `{twice}`: give each its own name")


def row_groups(url: str, _unit_bytes: int) -> list[tuple[int, int]]:
    """The row groups of a file."""
    with open_parquet(url) as file:
        return [(group, group + 1) for group in range(file.num_row_groups)]


def read(unit: CorpusUnit) -> Iterator[DocBatch]:
    """The docs or topics of a unit."""
    if unit.of_topics:
        yield from _read_topics(unit)
        return
    with open_parquet(unit.url) as file:
        id_name, names = _columns(unit, file.schema_arrow.names)
        may_be_null = TITLE if unit.may_lack_title else None
        row = sum(file.metadata.row_group(group).num_rows for group in range(unit.start))

        def parse(cells: tuple[object, ...]) -> tuple[str, str]:
            doc_id, *values = cells
            texts = zip(names, values, strict=True)
            parts = [
                "" if value is None and name == may_be_null else text_of(name, value)
                for name, value in texts
            ]
            return id_of(doc_id), joined(parts, unit.template)

        columns = list(dict.fromkeys((id_name, *names)))
        groups = range(unit.start, unit.end)
        for batch in batches_of(file, columns, groups):
            values = [column_values(batch.column(name)) for name in (id_name, *names)]
            yield parse_rows(
                unit, range(row, row + batch.num_rows), zip(*values, strict=True), parse
            )
            row += batch.num_rows


def _read_topics(unit: CorpusUnit) -> Iterator[DocBatch]:
    parse, first = topic_parser(unit, lambda: chain.from_iterable(_topic_rows(unit))), 0
    for rows in _topic_rows(unit):
        yield parse_rows(unit, range(first, first + len(rows)), rows, parse)
        first += len(rows)


def _topic_rows(unit: CorpusUnit) -> Iterator[list[dict[str, object]]]:
    """Rows of the columns that can be the id or the text of a topic, some at a time."""
    with open_parquet(unit.url) as file:
        present, usual = file.schema_arrow.names, topic_names(unit)
        for names in usual if file.metadata.num_rows else ():
            if not set(names) & set(present):
                raise WrongFormatError(f"{unit.url} {missing_field('` or `'.join(names), present)}")
        columns = [name for name in dict.fromkeys(chain(*usual)) if name in present]
        check_once(unit.url, present, columns)
        for batch in batches_of(file, columns):
            cells = zip(*(column_values(batch.column(name)) for name in columns), strict=True)
            yield [dict(zip(columns, each, strict=True)) for each in cells]


def topic_names(unit: CorpusUnit) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields that can be the id of a topic, and those that can be its text, best first."""
    is_beir = unit.format.id_field == "_id"
    ids = (unit.id_name,) if unit.id_name else _BEIR_IDS if is_beir else _TOPIC_IDS
    return ids, unit.fields or (("text",) if is_beir else ("text", "query"))


def topic_parser(
    unit: CorpusUnit, read: Callable[[], Iterator[dict[str, object]]]
) -> Callable[[dict[str, object]], tuple[str, str]]:
    """A function that reads the id and the text of a row; a field that is null in all rows (`read`)
    is none.
    """
    ids, texts = topic_names(unit)

    @cache
    def with_values() -> frozenset[str]:
        """The fields that are not null in all rows. Few files have a null: only these need it."""
        return frozenset(name for row in read() for name, value in row.items() if value is not None)

    def value(row: dict[str, object], usual: tuple[str, ...]) -> tuple[str, object]:
        found = [name for name in usual if name in row]
        if not found:
            raise missing_field("` or `".join(usual), row)
        name = found[0]
        if row[name] is None:
            name = next((each for each in found if each in with_values()), name)
        return name, row[name]

    return lambda row: check_utf8(
        id_of(value(row, ids)[1]), text_of(*value(row, texts)), SURROGATE_REASON
    )


class ParquetFile(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file that can be opened in another way too."""

    def __init__(self, source: Any, **settings: Any) -> None:
        self.source, self.size_bytes = source, source.seek(0, os.SEEK_END)
        super().__init__(source, **settings)

    def longest(self, names: Sequence[str], group: int) -> int:
        """The bytes of a row of the longest texts in the dictionaries of columns, or of the first
        texts.
        """
        file = pq.ParquetFile(
            self.source, metadata=self.metadata, read_dictionary=names, pre_buffer=False
        )
        try:
            first = next(file.iter_batches(1, row_groups=[group], columns=names), None)
        except (OSError, pa.ArrowException):
            # Arrow cannot do that where texts repeat the beginning of others. Other errors come
            # again.
            return _MOST_BYTES // _FEW_ROWS
        columns = () if first is None else first.columns
        repeated = [each.dictionary for each in columns if pa.types.is_dictionary(each.type)]
        return sum(
            pc.max(_lengths(each)).as_py() or 0 for each in repeated if _has_texts(each.type)
        )


@contextmanager
def open_parquet(url: str, buffer_bytes: int = 0) -> Iterator[ParquetFile]:
    """A Parquet file; errors of reading it inside the `with` block become DataError.

    With `buffer_bytes`, batches of a column are read in pieces of this size, and not from the whole
    row group.

    Raises:
        WrongFormatError: it is not one.
    """
    with errors_as(DataError, url), storage.open_binary(url) as source:
        try:
            file = ParquetFile(source, buffer_size=buffer_bytes, pre_buffer=not buffer_bytes)
        except pa.ArrowInvalid as error:
            raise WrongFormatError(f"{url} is not a Parquet file: {error}") from error
        yield file


def batches_of(
    file: ParquetFile,
    columns: Sequence[str],
    groups: Iterable[int] | None = None,
    batch_rows: int = _BATCH_ROWS,
) -> Iterator[Any]:
    """Record batches of some row groups, of at most so many rows.

    Raises:
        ArrowInvalid: rows are missing, at which Arrow just ends.
        MemoryError: a row group is too large when it is decoded.
    """
    schema = file.schema_arrow
    places = ((name, schema.get_field_index(name)) for name in columns)
    kinds = {name: schema.field(at).type for name, at in places if at >= 0}
    texts = [name for name, kind in kinds.items() if _has_texts(kind)]
    single = [name for name in texts if holds_texts(kinds[name])]
    for group in range(file.num_row_groups) if groups is None else groups:
        missing = file.metadata.row_group(group).num_rows
        if not missing:
            continue
        rows, room = _sizes(file, single, group) if texts else (batch_rows, _MOST_BYTES)
        batches = file.iter_batches(min(batch_rows, rows), row_groups=[group], columns=columns)
        for batch in batches:
            missing -= len(batch)
            room -= sum(text_bytes(batch.column(name)) for name in texts)
            check_room(room, group)
            yield batch
        if missing:
            raise pa.ArrowInvalid(f"row group {group} states {missing} more rows than it holds")


def _sizes(file: ParquetFile, texts: list[str], group: int) -> tuple[int, int]:
    """How many rows of a row group with these columns of texts fit in memory, and the bytes that
    all may take.
    """
    # Not the metadata of its columns: Arrow ends the process where their statistics are damaged.
    metadata = file.metadata.row_group(group)
    rows, encoded = metadata.num_rows, metadata.total_byte_size
    packed = file.size_bytes * rows // max(file.metadata.num_rows, 1)
    room = room_bytes(packed)
    check_room(room - encoded, group)
    longest = file.longest(texts, group) if texts else 0
    row_bytes = max(1, longest, encoded // rows)
    return max(1, _MOST_BYTES // row_bytes), room


def room_bytes(packed_bytes: int) -> int:
    """How large a part of a file may be when it is decoded."""
    return max(_MOST_BYTES, _MOST_TIMES * packed_bytes)


def check_room(left_bytes: int, part: int) -> None:
    """Raises MemoryError where a row group or record batch has less than nothing left."""
    if left_bytes < 0:
        raise MemoryError(
            f"part {part} (from 0) takes more than {_MOST_BYTES >> 20} MiB, and more than "
            f"{_MOST_TIMES} times as much as in the file, when it is decoded"
        )


def _has_texts(kind: Any) -> bool:
    """Whether a column of a type holds texts, or lists of them."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return holds_texts(kind.value_type if is_list else kind)


def text_bytes(column: Any) -> int:
    """The bytes of a column of texts when those of a dictionary are repeated."""
    if not (pa.types.is_dictionary(column.type) and holds_texts(column.type)):
        return int(column.nbytes)
    return pc.sum(_lengths(column.dictionary).take(column.indices)).as_py() or 0


def _lengths(texts: Any) -> Any:
    """The bytes of each text."""
    # A view has no such function.
    is_view = pa.types.is_string_view(texts.type)
    return pc.binary_length(texts.cast(pa.large_string()) if is_view else texts)


def _columns(unit: CorpusUnit, names: list[str]) -> tuple[str, tuple[str, ...]]:
    """The id column of some columns, and those that make the text."""
    try:
        at = find_id(names, "doc_id", unit.names.columns)
    except RowError as error:
        raise PreflightError(f"{unit.url} {error}") from error
    if unit.fields:
        texts = unit.fields
    elif unit.format.has_title:
        texts = (TITLE, "text") if TITLE in names else ("text",)
    else:
        texts = tuple(name for name in _TEXT_COLUMNS if name in names)[:1]
    lacking = next(
        (name for name in texts if name not in names),
        None if texts else "` or `".join(_TEXT_COLUMNS),
    )
    missing, key = (
        (lacking, "corpus.fields")
        if at is not None
        else ("doc_id` or `_id` or `id", "corpus.columns")
    )
    if at is None or missing is not None:
        raise PreflightError(
            f"{unit.url} has no column `{missing}`; it has: {', '.join(names)}. Name its own in "
            f"`{key}`"
        )
    return names[at], texts


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


def place(unit: CorpusUnit, position: int) -> str:
    """The place of a row."""
    return f"{unit.url} at row {position} (from 0)"


PARQUET = TextFormat(
    "parquet",
    ENDINGS,
    row_groups,
    read,
    place,
    check,
    look=files.PARQUET,
    has_columns=True,
    noun="row",
)
