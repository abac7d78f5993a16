"""What a topics format is; topics whose columns or fields have names, in TSV, CSV, JSONL, Parquet and of BEIR."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.errors import PreflightError
from beamrank.formats import checks, files
from beamrank.formats.checks import RowError
from beamrank.formats.columns import PLAIN, Columns, Names, Table, find_header, split_tsv
from beamrank.formats.texts.lines import parse_tsv
from beamrank.storage.streams import errors_as, open_stream

# The id and the text of each topic of a file, or why a row has none, with the line on which it begins.
Topics: TypeAlias = Iterator[tuple[int, tuple[str, str] | RowError]]
_Rows: TypeAlias = Iterator[tuple[int, Any]]
_LONE_CR = re.compile(rb"\r(?!\n)")
_TEXTS = ("text", "query")
_IDS = ("query_id", "_id", "id", "qid", "topic_id")
_BEIR_IDS = ("_id", "query_id", "qid", "topic_id")


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
        """The lines that are not empty, each with its number."""
        for number, line in enumerate(self.content.split(b"\n"), start=1):
            line = line.removesuffix(b"\r")
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


def _records(
    rows_of: Callable[[TopicsFile], _Rows],
    file: TopicsFile,
    ids: tuple[str, ...] = _IDS,
    texts: tuple[str, ...] = _TEXTS,
) -> Topics:
    """The topics of JSONL or Parquet, by `columns` or by usual names. A field that is null in all of them is none."""
    rows = list(rows_of(file))
    present = {name for _, row in rows if isinstance(row, dict) for name, value in row.items() if value is not None}

    def keys(meaning: str, usual: tuple[str, ...]) -> tuple[str, ...]:
        names = (file.columns[meaning],) if meaning in file.columns else usual
        return tuple(name for name in names if name in present) or names

    id_keys, text_keys = keys("query_id", ids), keys("text", texts)

    def parse(row: Any) -> tuple[str, str]:
        if isinstance(row, RowError):
            raise row
        text_key = _key(row, text_keys)
        query_id, text = checks.id_of(row[_key(row, id_keys)]), checks.text_of(text_key, row[text_key])
        return checks.check_utf8(query_id, text, checks.SURROGATE_REASON)

    return parse_topics(rows, parse)


def _json_rows(file: TopicsFile) -> _Rows:
    """The objects of lines, or why one cannot be read."""
    for number, line in file.lines():
        try:
            yield number, checks.json_object(topic_text(line))
        except RowError as error:
            yield number, error


def _parquet_rows(file: TopicsFile) -> _Rows:
    """The rows of a Parquet file; of its columns, those that topics have."""
    usual = [*_IDS, *_TEXTS, *file.columns.values()]
    try:
        with pq.ParquetFile(pa.BufferReader(file.content)) as table:
            names = table.schema_arrow.names
            found = [name for name in dict.fromkeys(usual) if name in names]
            rows = table.read(columns=found).to_pylist()
    except pa.ArrowInvalid as error:
        raise RowError(f"is not Parquet: {error}") from error
    if rows and not found:
        raise checks.missing_field("` or `".join(_IDS), names)
    for number, row in enumerate(rows, start=1):
        yield number, {name: checks.whole_of(value) for name, value in row.items()}


def _key(row: Mapping[str, object], keys: tuple[str, ...]) -> str:
    found = next((key for key in keys if key in row), None)
    if found is None:
        raise checks.missing_field("` or `".join(keys), row)
    return found


def _beir(file: TopicsFile) -> Topics:
    rows_of = _parquet_rows if file.content.startswith(b"PAR1") else _json_rows
    return _records(rows_of, file, _BEIR_IDS, ("text",))


TSV = TopicsFormat(_tsv, look=files.TSV, has_columns=True, table="tsv")
CSV = TopicsFormat(_csv, look=files.CSV, noun="row", has_columns=True, table="csv")
JSONL = TopicsFormat(partial(_records, _json_rows), look=files.JSONL, has_columns=True)
PARQUET = TopicsFormat(partial(_records, _parquet_rows), look=files.PARQUET, noun="row", has_columns=True)
BEIR = TopicsFormat(_beir, look=files.BEIR, file_in_folder="queries.jsonl", has_columns=True)
