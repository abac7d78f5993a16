"""The topics formats, and the section of a configuration that names one."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import model_validator

from beamrank.formats.columns import Columns, Table, TopicColumns, check_header
from beamrank.formats.guess import AUTO, Look
from beamrank.formats.ids import check_query_id
from beamrank.formats.row_checks import RowError
from beamrank.plugins import Registry
from beamrank.records import Topic
from beamrank.section import OneOf, Paths, Section, Unset

_LONE_CR = re.compile(rb"\r(?!\n)")


class TopicsFile(NamedTuple):
    """A file of topics, the names of its columns, and whether it has a header, if the configuration says so."""

    url: str
    content: bytes
    columns: Columns
    header: bool | None


# Reads the id and the text of one topic; raises RowError if it has none.
ParseTopic: TypeAlias = Callable[[Any], tuple[str, str]]
# The topics of a file, each with its line.
Rows: TypeAlias = Iterable[tuple[int, Any]]


def split_lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, each with its number."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        line = line.removesuffix(b"\r")
        if line:
            yield number, line


@dataclass(frozen=True)
class TopicsFormat:
    """A topics format: `parse` (and `split`), `rows`, or `read`.

    Attributes:
        parse: of a format without names, reads the text of one topic.
        split: the topics of a file, each with the line on which it begins, for `parse`.
        rows: of a format whose columns have names, or may have them below a header: the topics of a file and their
            `parse`; raises RowError if it has none.
        read: all topics of a file that is too large for the memory.
        look: how its files begin; None if `auto` does not find it.
        noun: the unit of a file that holds a topic, for messages.
        file_in_folder: the one file that a folder of this format holds.
        repeats: whether a topic may appear again; it counts once.
        parse_original: `parse` for `decoding: original`, if the format has one.
        table: the kind of table, if the first line can name the columns.
    """

    parse: ParseTopic | None = None
    split: Callable[[bytes], Iterator[tuple[int, bytes]]] = split_lines
    rows: Callable[[TopicsFile], tuple[Rows, ParseTopic]] | None = None
    read: Callable[[str], list[Topic]] | None = None
    look: Look | None = None
    noun: str = "line"
    file_in_folder: str | None = None
    repeats: bool = False
    parse_original: ParseTopic | None = None
    table: Table | None = None

    @property
    def parse_row(self) -> ParseTopic:
        """`parse` of a format that has it."""
        assert self.parse is not None
        return self.parse


FORMATS: Registry[TopicsFormat] = Registry(
    "topics format",
    "beamrank.topics",
    {
        "beir": "beamrank.formats.topics.named:BEIR",
        "csv": "beamrank.formats.topics.named:CSV",
        "jsonl": "beamrank.formats.topics.named:JSONL",
        "parquet": "beamrank.formats.topics.named:PARQUET",
        "top1000": "beamrank.formats.top1000:TOPICS",
        "trec": "beamrank.formats.topics.trec:TREC",
        "tsv": "beamrank.formats.topics.named:TSV",
    },
)


def decoded(row: bytes) -> str:
    """A row as text.

    Raises:
        RowError: it is not UTF-8, or lines in it end in CR alone.
    """
    if _LONE_CR.search(row):
        raise RowError("holds a carriage return (CR) without a line feed. Lines must end in LF or CR LF")
    try:
        return row.decode()
    except UnicodeDecodeError as error:
        raise RowError(f"is not valid UTF-8 (byte 0x{row[error.start]:02x})") from error


def checked_topic(query_id: str, text: str) -> Topic:
    """A topic whose id and text can be used.

    Raises:
        IdError: the id cannot be used.
        RowError: there is no text.
    """
    check_query_id(query_id)
    if "\0" in text:
        raise RowError(f"{query_id!r} has a NUL character in its text")
    if not text.strip():
        raise RowError(f"{query_id!r} has no text")
    return Topic(query_id, text)


class TopicsConfig(Section):
    """The topics."""

    path: Paths
    """A file, a glob, or a list of them."""
    format: Annotated[str, OneOf(FORMATS, (AUTO,))] = AUTO
    """Its format; `auto` guesses it from the first file."""
    decoding: Literal["full", "original"] = "full"
    """Of TREC CAR's ids: `full` decodes every percent escape, `original` only `%20`, as the code of 2019 does."""
    ids: Literal["file", "order"] = "file"
    """`order` numbers the topics from 1 in the order of the file, as the qrels of Cranfield do."""
    columns: Annotated[TopicColumns | None, Unset.LEFT_OUT] = None
    """Where the id or the text has another name than usual."""
    header: Annotated[bool | None, Unset.LEFT_OUT] = None
    """Whether the first line of each TSV or CSV file names the columns; default: recognized, and said."""
    only_judged: bool = False
    """Keep only the topics of the qrels (BEIR has the topics of all splits in one file)."""

    @model_validator(mode="after")
    def _check_header(self) -> Self:
        check_header(self.header, {"columns": self.columns})
        return self

    @model_validator(mode="after")
    def _check_decoding(self) -> Self:
        if self.decoding == "original" and self.format != AUTO and FORMATS[self.format].parse_original is None:
            having = ", ".join(name for name, each in FORMATS.items() if each.parse_original)
            raise ValueError(f"decoding `original` exists for the formats {having}, not for {self.format}")
        return self
