"""Parquet: an id column `doc_id`, `_id` or `id`, and text columns; a unit is a row group."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

import pyarrow as pa

from beamrank.errors import PreflightError
from beamrank.formats import files
from beamrank.formats.checks import (
    SURROGATE_REASON,
    check_utf8,
    id_of,
    joined,
    missing_field,
    text_of,
)
from beamrank.formats.columns import TITLE, find_id
from beamrank.formats.decode.base import WrongFormatError
from beamrank.formats.decode.parquet import batches_of, open_parquet
from beamrank.formats.texts.units import CorpusUnit, DocBatch, TextFormat, parse_rows
from beamrank.formats.values import RowError, whole_of

ENDINGS = (".parquet", ".pq")
_TEXT_COLUMNS = ("contents", "text")
# Of topics; BEIR's are called otherwise.
_TOPIC_IDS = ("query_id", "_id", "id", "qid", "topic_id")
_BEIR_IDS = ("_id", "query_id", "qid", "topic_id")


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
