"""The topics formats, and the section of a configuration that names one."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import model_validator

from beamrank.errors import PreflightError
from beamrank.formats.columns import Columns, Table, TopicColumns, check_header
from beamrank.formats.guess import AUTO, Look
from beamrank.formats.ids import BYTE_ORDER_MARK
from beamrank.formats.row_checks import RowError
from beamrank.plugins import Registry
from beamrank.section import OneOf, Paths, Section, Unset
from beamrank.storage.streams import errors_as, open_stream

# The id and the text of each topic of a file, or why a row has none, with the line on which it begins.
Topics: TypeAlias = Iterator[tuple[int, tuple[str, str] | RowError]]
_LONE_CR = re.compile(rb"\r(?!\n)")


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

    @cached_property
    def content(self) -> bytes:
        """The whole file, decompressed, without a byte order mark."""
        with errors_as(PreflightError, self.url), open_stream(self.url) as file:
            return file.read().removeprefix(BYTE_ORDER_MARK)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, each with its number."""
        for number, line in enumerate(self.content.split(b"\n"), start=1):
            line = line.removesuffix(b"\r")
            if line:
                yield number, line


def parse_topics(rows: Iterable[tuple[int, Any]], parse: Callable[[Any], tuple[str, str]]) -> Topics:
    """Turns rows into topics; `parse` is given text where a row is bytes, and raises RowError if it has no topic."""
    for line, row in rows:
        try:
            yield line, parse(decoded(row) if isinstance(row, bytes) else row)
        except RowError as error:
            yield line, error


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


@dataclass(frozen=True)
class TopicsFormat:
    """A topics format.

    Attributes:
        read: the topics of a file; raises WrongFormatError if it has another format, RowError about the whole file.
        look: how its files begin; None if `auto` does not find it.
        noun: the unit of a file that holds a topic, for messages.
        file_in_folder: the one file that a folder of this format holds.
        repeats: whether a topic may appear again, with the same text; it counts once.
        has_original: whether it has the `decoding: original`.
        has_columns: whether `topics.columns` can name the columns.
        table: the kind of table, if the first line can name the columns.
    """

    read: Callable[[TopicsFile], Topics]
    look: Look | None = None
    noun: str = "line"
    file_in_folder: str | None = None
    repeats: bool = False
    has_original: bool = False
    has_columns: bool = False
    table: Table | None = None


FORMATS: Registry[TopicsFormat] = Registry(
    "topics format",
    "beamrank.topics",
    {
        "beir": "beamrank.formats.topics.named:BEIR",
        "csv": "beamrank.formats.topics.named:CSV",
        "jsonl": "beamrank.formats.topics.named:JSONL",
        "parquet": "beamrank.formats.topics.named:PARQUET",
        "top1000": "beamrank.formats.topics.top1000:TOPICS",
        "trec": "beamrank.formats.topics.trec:TREC",
        "tsv": "beamrank.formats.topics.named:TSV",
    },
)


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
        if self.decoding == "original" and self.format != AUTO and not FORMATS[self.format].has_original:
            having = ", ".join(name for name, each in FORMATS.items() if each.has_original)
            raise ValueError(f"decoding `original` exists for the formats {having}, not for {self.format}")
        return self
