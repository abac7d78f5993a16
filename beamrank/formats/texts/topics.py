"""What a topics format is; topics whose columns or fields have names, in TSV, CSV, JSONL, Parquet and of BEIR."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.errors import PreflightError
from beamrank.formats import checks, files
from beamrank.formats.checks import RowError
from beamrank.formats.columns import PLAIN, Columns, Names, Table, find_header, split_tsv
from beamrank.formats.texts.lines import parse_tsv
from beamrank.formats.texts.parquet import column_values
from beamrank.storage import files as storage
from beamrank.storage.streams import compression, errors_as, open_stream

# The id and the text of each topic of a file, or why a row has none, with the line on which it begins.
Topics: TypeAlias = Iterator[tuple[int, tuple[str, str] | RowError]]
_Rows: TypeAlias = Iterator[tuple[int, Any]]
_LONE_CR = re.compile(rb"\r(?!\n)")
_TEXTS = ("text", "query")
_IDS = ("query_id", "_id", "id", "qid", "topic_id")
_BEIR_IDS = ("_id", "query_id", "qid", "topic_id")
_TEXT_TYPES = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary),
)


@dataclass(frozen=True)
class TopicsFile:
    """A file of topics, and what the configuration says of it.

    Attributes:
        url: the file.
        columns: the names of its columns.
        header: whether it has a header; None to recognize one.
        original: whether ids are decoded as the code of 2019 did.
    """

    url: str
    columns: Columns
    header: bool | None = None
    original: bool = False

    @property
    def names(self) -> Names:
        """What the configuration tells about the columns."""
        return Names("query_id", self.columns, None, self.header)

    @cached_property
    def content(self) -> bytes:
        """The whole file, decompressed, without a byte order mark."""
        with errors_as(PreflightError, self.url), open_stream(self.url) as file:
            return file.read().removeprefix(checks.BYTE_ORDER_MARK)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, each with its number; read as they are used."""
        with errors_as(PreflightError, self.url), open_stream(self.url) as file:
            for number, line in enumerate(file, start=1):
                line = line.removeprefix(checks.BYTE_ORDER_MARK) if number == 1 else line
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                if line:
                    yield number, line


@dataclass(frozen=True)
class TopicsFormat:
    """A topics format.

    Attributes:
        read: the topics of a file; raises WrongFormatError if it has a different format, RowError about the whole file.
        look: how its files begin; None if `auto` does not find it.
        noun: the unit of a file that holds a topic, for messages.
        file_in_folder: the one file that a folder of this format holds.
        repeats: whether a topic may appear again, with the same text; it counts once.
        has_original: whether it has the `decoding: original`.
        has_columns: whether `topics.columns` can name the columns.
        table: the kind of table, if the first line can name the columns.
    """

    read: Callable[[TopicsFile], Topics]
    look: files.Look | None = None
    noun: str = "line"
    file_in_folder: str | None = None
    repeats: bool = False
    has_original: bool = False
    has_columns: bool = False
    table: Table | None = None


def parse_topics(rows: Iterable[tuple[int, Any]], parse: Callable[[Any], tuple[str, str]]) -> Topics:
    """Turns rows into topics; `parse` is given text where a row is bytes, and raises RowError if it has no topic."""
    for line, row in rows:
        try:
            yield line, parse(topic_text(row) if isinstance(row, bytes) else row)
        except RowError as error:
            error.row = error.row or row
            yield line, error


def topic_text(row: bytes) -> str:
    """A row as text; raises RowError if it is not UTF-8, or lines in it end in CR only."""
    if _LONE_CR.search(row):
        raise RowError("holds a carriage return (CR) without a line feed. Lines must end in LF or CR LF")
    return checks.decoded(row)


def _tsv(file: TopicsFile) -> Topics:
    rows = file.lines()
    first = next(rows, None)
    if first is None:
        return iter(())
    header = find_header(file.url, "tsv", split_tsv(first[1]), file.names)
    if header is None:
        return parse_topics(chain([first], rows), parse_tsv)
    return parse_topics(rows, lambda line: header.parse(line.split("\t")))


def _csv(file: TopicsFile) -> Topics:
    rows = checks.csv_rows(file.content.splitlines(keepends=True), file.url)
    first = next(rows, None)
    if first is None:
        return iter(())
    found = find_header(file.url, "csv", first[1], file.names)
    header = found or PLAIN
    return parse_topics(rows if found else chain([first], rows), lambda row: checks.check_utf8(*header.parse(row)))


def _json(file: TopicsFile, ids: tuple[str, ...] = _IDS, texts: tuple[str, ...] = _TEXTS) -> Topics:
    """The topics of JSONL, by `columns` or by usual names."""

    @cache
    def present() -> frozenset[str]:
        """The fields that are not null in all rows: the others are none. Few files have a null: only these need it."""
        rows = (row for _, row in _json_rows(file) if isinstance(row, dict))
        return frozenset(name for row in rows for name, value in row.items() if value is not None)

    def key(row: Mapping[str, object], usual: tuple[str, ...]) -> str:
        found = next((name for name in usual if name in row), None)
        if found is not None and row[found] is None:
            found = next((name for name in usual if name in row and name in present()), found)
        if found is None:
            raise checks.missing_field("` or `".join(usual), row)
        return found

    id_keys, text_keys = _named(file, "query_id", ids), _named(file, "text", texts)

    def parse(row: Any) -> tuple[str, str]:
        if isinstance(row, RowError):
            raise row
        text_key = key(row, text_keys)
        query_id, text = checks.id_of(row[key(row, id_keys)]), checks.text_of(text_key, row[text_key])
        return checks.check_utf8(query_id, text, checks.SURROGATE_REASON)

    return parse_topics(_json_rows(file), parse)


def _named(file: TopicsFile, meaning: str, usual: tuple[str, ...]) -> tuple[str, ...]:
    return (file.columns[meaning],) if meaning in file.columns else usual


def _json_rows(file: TopicsFile) -> _Rows:
    """The objects of lines, or why one cannot be read."""
    for number, line in file.lines():
        try:
            yield number, checks.json_object(topic_text(line))
        except RowError as error:
            error.row = line
            yield number, error


def _parquet(file: TopicsFile, ids: tuple[str, ...] = _IDS, texts: tuple[str, ...] = _TEXTS) -> Topics:
    """The topics of Parquet, by `columns` or by usual names; read a batch of rows at a time."""
    with _opened(file) as table:
        if table.metadata.num_rows == 0:
            return
        named = _column(table, _named(file, "query_id", ids)), _column(table, _named(file, "text", texts))

        def parse(cells: tuple[object, object]) -> tuple[str, str]:
            return checks.id_of(cells[0]), checks.text_of(named[1], cells[1])

        row = 1
        for batch in table.iter_batches(columns=list(dict.fromkeys(named))):
            cells = zip(*(_values(batch.column(name)) for name in named), strict=True)
            yield from parse_topics(enumerate(cells, row), parse)
            row += len(batch)


@contextmanager
def _opened(file: TopicsFile) -> Iterator[Any]:
    """A Parquet file; raises RowError if it is not one."""
    with errors_as(PreflightError, file.url), storage.open_binary(file.url) as source:
        try:
            yield pq.ParquetFile(source if compression(file.url) is None else pa.BufferReader(file.content))
        except pa.ArrowInvalid as error:
            raise RowError(f"is not Parquet: {error}") from error


def _column(table: Any, names: tuple[str, ...]) -> str:
    """The first of the columns that a file has. One that is null in all rows is none."""
    found = [name for name in names if name in table.schema_arrow.names]
    if not found:
        raise checks.missing_field("` or `".join(names), table.schema_arrow.names)
    for name in found[:-1]:
        if any(batch.column(0).null_count < len(batch) for batch in table.iter_batches(columns=[name])):
            return name
    return found[-1]


def _values(column: Any) -> list[object]:
    """The values of a column, whole numbers of any type as integers."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if any(test(kind) for test in _TEXT_TYPES):
        return column_values(column)
    return [checks.whole_of(value) for value in column.to_pylist()]


def _beir(file: TopicsFile) -> Topics:
    read = _parquet if files.Beginning(file.url).is_parquet else _json
    return read(file, _BEIR_IDS, ("text",))


TSV = TopicsFormat(_tsv, look=files.TSV, has_columns=True, table="tsv")
CSV = TopicsFormat(_csv, look=files.CSV, noun="row", has_columns=True, table="csv")
JSONL = TopicsFormat(_json, look=files.JSONL, has_columns=True)
PARQUET = TopicsFormat(_parquet, look=files.PARQUET, noun="row", has_columns=True)
BEIR = TopicsFormat(_beir, look=files.BEIR, file_in_folder="queries.jsonl", has_columns=True)
