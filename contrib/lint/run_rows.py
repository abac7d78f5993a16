"""A run file as topics: its lines are read one by one, and the unusual ones are inspected."""

import os
import tempfile
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from beamrank.errors import DataError, PreflightError
from beamrank.formats.guess import packed_as
from beamrank.formats.ids import BYTE_ORDER_MARK
from beamrank.formats.rows import unreadable
from beamrank.formats.run_writer import FORMATS, RunFormat
from beamrank.storage.streams import open_stream
from contrib.lint.topic_rows import TopicRows

MAX_LINE_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 20
_BUCKET_TOPICS = 256
_SPILL_BYTES = 32 << 20


class Line(NamedTuple):
    """A line that is not simply a row like the first one.

    Attributes:
        number: counted from 1.
        text: the line without its LF.
        columns: its columns; a byte order mark is not part of the first.
        ended: whether it ends in LF.
        format: that of the run; None if no row came before this line.
        separator: that of the first row.
    """

    number: int
    text: bytes
    columns: list[bytes]
    ended: bool
    format: RunFormat | None
    separator: bytes

    @property
    def is_comment(self) -> bool:
        """Whether it begins with `#`."""
        return bool(self.columns) and self.columns[0].startswith(b"#")

    @property
    def is_too_long(self) -> bool:
        """Whether no row can be as long; the rest of the line may be missing."""
        return len(self.text) > MAX_LINE_BYTES

    @property
    def has_inner_cr(self) -> bool:
        """Whether a CR is elsewhere than at its end."""
        return b"\r" in self.text.removesuffix(b"\r")

    @property
    def has_wrong_columns(self) -> bool:
        """Whether it has another number of columns than a row of the run."""
        return self.format is None or len(self.columns) != len(self.format.columns)

    @property
    def is_row(self) -> bool:
        """Whether it is a row of the run."""
        broken = self.is_comment or self.is_too_long or self.has_inner_cr or self.has_wrong_columns
        return bool(self.columns) and not broken


class TopicReturnsError(Exception):
    """A topic comes back after rows of other topics: `RunRows.gathered` can read the file."""


class RunRows:
    """The rows of one run file, topic by topic.

    Attributes:
        url: the file.
        format: found at the first row.
        separator: of the columns of the first row; that of the format where the row mixes separators.
        comments: the comments, by line.
    """

    def __init__(self, url: str, inspect: Callable[[Line], None]) -> None:
        """`inspect` is given each line that is not simply a row like the first one, and the first row."""
        self.url = url
        self.format: RunFormat | None = None
        self.separator = b" "
        self.comments: dict[int, bytes] = {}
        self._inspect = inspect
        self._width = -1
        self._query_at = 0

    def topics(self) -> Iterator[TopicRows]:
        """Each topic as soon as its rows are read.

        Raises:
            TopicReturnsError: a topic comes back later.
            PreflightError: the file cannot be read.
        """
        seen: set[bytes] = set()
        current: TopicRows | None = None
        for number, columns in self._rows():
            if current is None or columns[self._query_at] != current.query_id:
                if current is not None:
                    yield current
                current = self._topic(columns[self._query_at])
                if current.query_id in seen:
                    raise TopicReturnsError
                seen.add(current.query_id)
            current.rows.append(columns)
            current.lines.append(number)
        if current is not None:
            yield current

    def gathered(self) -> Iterator[TopicRows]:
        """Each topic, in the order of their first rows, after the whole file was read into temporary files.

        Raises:
            PreflightError: the file cannot be read.
        """
        ordinals: dict[bytes, int] = {}
        returns: dict[bytes, array[int]] = {}
        last: bytes | None = None
        with tempfile.TemporaryDirectory() as folder:
            spilled = _Buckets(Path(folder))
            for number, columns in self._rows():
                query_id = columns[self._query_at]
                if query_id != last and query_id in ordinals:
                    returns.setdefault(query_id, array("Q")).append(number)
                last = query_id
                bucket = ordinals.setdefault(query_id, len(ordinals)) // _BUCKET_TOPICS
                spilled.add(bucket, b"%d\t%b\n" % (number, b"\t".join(columns)))
            for content in spilled.contents():
                topics: dict[bytes, TopicRows] = {}
                for row in content.splitlines():
                    line, *columns = row.split(b"\t")
                    query_id = columns[self._query_at]
                    topic = topics.setdefault(query_id, self._topic(query_id))
                    topic.rows.append(columns)
                    topic.lines.append(int(line))
                for topic in topics.values():
                    topic.returns = returns.get(topic.query_id, ())
                    yield topic

    def _topic(self, query_id: bytes) -> TopicRows:
        assert self.format is not None
        return TopicRows(query_id, self.format)

    def _rows(self) -> Iterator[tuple[int, list[bytes]]]:
        """The line and the columns of each row."""
        number = 0
        try:
            with open_stream(self.url, pipe=True) as file:
                for chunk in _chunks(file):
                    if not number and (packed := packed_as(chunk)):
                        raise PreflightError(f"{self.url} does not hold text{packed}")
                    *lines, last = chunk.split(b"\n")
                    usual = _is_usual(chunk, lines)
                    for text in lines:
                        number += 1
                        columns = text.split()
                        if (
                            usual
                            and len(columns) == self._width
                            and text == self.separator.join(columns)
                            and text[0] != ord("#")
                        ) or self._is_row(number, text, columns, True):
                            yield number, columns
                    if last:
                        number += 1
                        columns = last.split()
                        if self._is_row(number, last, columns, False):
                            yield number, columns
        except DataError as error:
            raise PreflightError(unreadable(self.url, error)) from error

    def _is_row(self, number: int, text: bytes, columns: list[bytes], ended: bool) -> bool:
        """Inspects a line, and finds out whether it is a row."""
        if number == 1 and text.startswith(BYTE_ORDER_MARK):
            columns[:] = text.removeprefix(BYTE_ORDER_MARK).split()
        if self.format is None and columns and not columns[0].startswith(b"#"):
            self._detect(text.removeprefix(BYTE_ORDER_MARK), columns)
        line = Line(number, text, columns, ended, self.format, self.separator)
        if line.is_comment:
            self.comments[number] = text.removeprefix(BYTE_ORDER_MARK)
        self._inspect(line)
        return line.is_row

    def _detect(self, text: bytes, columns: list[bytes]) -> None:
        """Finds the format and the separator at the first row."""
        self.format = next((each for each in FORMATS.values() if len(each.columns) == len(columns)), None)
        if self.format is None:
            return
        self._width, self._query_at = len(columns), self.format.columns.index("query_id")
        usual = self.format.separator.encode()
        other = b"\t" if usual == b" " else b" "
        self.separator = other if text.rstrip(b"\r") == other.join(columns) else usual


def _is_usual(chunk: bytes, lines: list[bytes]) -> bool:
    """Whether some lines hold no NUL, are valid UTF-8 and not too long."""
    if b"\0" in chunk or max(map(len, lines), default=0) > MAX_LINE_BYTES:
        return False
    try:
        return chunk.isascii() or bool(chunk.decode())
    except UnicodeDecodeError:
        return False


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Whole lines, about a megabyte at a time; the middle of a line that is too long is left out."""
    rest = b""
    while block := file.read(_CHUNK_BYTES):
        block = rest + block
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        if end:
            yield block[:end]
        if len(rest) > MAX_LINE_BYTES:
            rest = rest[: MAX_LINE_BYTES + 1]
    if rest:
        yield rest


class _Buckets:
    """Rows in temporary files, a file for some hundred topics."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._buffers: dict[int, bytearray] = {}
        self._bytes = 0

    def add(self, bucket: int, row: bytes) -> None:
        """Adds a row to a bucket."""
        self._buffers.setdefault(bucket, bytearray()).extend(row)
        self._bytes += len(row)
        if self._bytes > _SPILL_BYTES:
            self._spill()

    def contents(self) -> Iterator[bytes]:
        """What each bucket holds."""
        self._spill()
        for name in sorted(os.listdir(self._folder), key=int):
            yield (self._folder / name).read_bytes()

    def _spill(self) -> None:
        for bucket, rows in self._buffers.items():
            with open(self._folder / str(bucket), "ab") as file:
                file.write(rows)
        self._buffers.clear()
        self._bytes = 0
