"""A run file as topics: its lines are read one by one, the unusual ones are inspected, a topic's
rows are columns.
"""

import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.decode.base import BYTE_ORDER_MARK
from beamrank.formats.decode.tables import is_table
from beamrank.formats.files import InputFile
from beamrank.formats.reader import TableReader
from beamrank.formats.run_writer import RunFormat, text_formats
from beamrank.formats.runs import open_run_file, run_files
from beamrank.formats.schemas import NO_HINTS, Hints
from beamrank.formats.values import shown, text_or_bytes
from beamrank.storage.streams import errors_as

MAX_LINE_BYTES = 1 << 16
# Problems of lines have a check of their own.
_LINES = ("columns", "lone-cr", "header-missing", "damaged", "binary")
_LINE_BITS = 40


class Places(NamedTuple):
    """The lines of the files of a run as numbers, with the number of the file in the upper
    bits.
    """

    files: Sequence[str]

    def find(self, number: int) -> tuple[str, int]:
        """The file and the line of a number."""
        file, line = divmod(number, 1 << _LINE_BITS)
        return self.files[file], line

    def shown(self, number: int) -> str:
        """The line of a number, with its file where there are several."""
        file, line = self.find(number)
        return f"line {line}" if len(self.files) == 1 else f"line {line} of {file}"


class Line(NamedTuple):
    """A line that is not simply a row like the first one.

    Attributes:
        number: counted from 1.
        text: the line without its LF.
        columns: its columns; a byte order mark is not part of the first.
        ended: whether it ends in LF.
        format: of the run; None if no row came before this line.
        separator: of the columns of the first row.
    """

    number: int
    text: bytes
    columns: list[bytes]
    ended: bool
    format: RunFormat | None
    separator: bytes

    @property
    def is_comment(self) -> bool:
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
        return self.format is None or len(self.columns) != len(self.format.columns)

    @property
    def is_row(self) -> bool:
        broken = self.is_comment or self.is_too_long or self.has_inner_cr or self.has_wrong_columns
        return bool(self.columns) and not broken


@dataclass
class TopicRows:
    """All rows of one topic, in the order of the file.

    Attributes:
        query_id: the topic.
        format: the format of the run.
        rows: the columns of each row.
        lines: the number of each row, which is its line in a run of one file.
        returns: the numbers of rows at which the topic comes back after rows of other topics.
        places: tells the file and the line of a number.
    """

    query_id: bytes
    format: RunFormat
    rows: list[list[bytes]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    returns: Sequence[int] = ()
    places: Places = field(default_factory=lambda: Places([""]))

    def column(self, name: str) -> list[bytes]:
        at = self.format.columns.index(name)
        return [row[at] for row in self.rows]

    @property
    def shown(self) -> str:
        return shown(self.query_id)

    def place(self, row: int) -> str:
        """The place of one of the rows."""
        return self.places.shown(self.lines[row])

    @cached_property
    def doc_ids(self) -> list[bytes]:
        return self.column("doc_id")

    @cached_property
    def doc_hashes(self) -> NDArray[np.int64]:
        """The hash of each doc_id; it differs from process to process."""
        return np.fromiter(map(hash, self.doc_ids), np.int64, len(self.doc_ids))

    @cached_property
    def has_duplicates(self) -> bool:
        return len(set(self.doc_ids)) < len(self.doc_ids)

    @cached_property
    def ranks(self) -> NDArray[np.int64] | None:
        """The ranks; None if one is not a whole number, or there are none."""
        if "rank" not in self.format.columns:
            return None
        return _numbers(int, self.column("rank"), "q")

    @cached_property
    def scores(self) -> NDArray[np.float64] | None:
        """The scores; None if the format has none, or one is not a finite number in float32."""
        return _finite(self.column("score")) if self.format.has_scores else None

    @cached_property
    def finite(self) -> "TopicRows":
        """The rows with finite scores, which are compared; all if the format has none."""
        if self.scores is not None or not self.format.has_scores:
            return self
        texts = self.column("score")
        kept = [place for place, text in enumerate(texts) if _finite([text]) is not None]
        return replace(self, rows=[self.rows[i] for i in kept], lines=[self.lines[i] for i in kept])

    @cached_property
    def is_constant(self) -> bool:
        """Whether three or more docs all have the same score."""
        scores = self.scores
        return (
            scores is not None
            and len(scores) > 2
            and len(np.unique(scores.astype(np.float32))) == 1
        )

    @cached_property
    def order(self) -> NDArray[np.int64] | None:
        """The rows in the order of an evaluation (`read_run`), best first; None if a number is
        missing for it.
        """
        if not self.format.has_scores:
            return None if self.ranks is None else np.argsort(self.ranks, kind="stable")
        if self.scores is None:
            return None
        by_doc_id = np.array(
            sorted(range(len(self.doc_ids)), key=self.doc_ids.__getitem__, reverse=True)
        )
        return by_doc_id[np.argsort(-self.scores.astype(np.float32)[by_doc_id], kind="stable")]


def _numbers(
    kind: Callable[[bytes], float], texts: Sequence[bytes], dtype: str
) -> NDArray[Any] | None:
    try:
        return None if b"_" in b"".join(texts) else np.fromiter(map(kind, texts), dtype, len(texts))
    except (ValueError, OverflowError):
        return None


def _finite(texts: Sequence[bytes]) -> NDArray[np.float64] | None:
    """Scores; None if one is not a finite number in float32."""
    numbers = _numbers(float, texts, "d")
    if numbers is None:
        return None
    with np.errstate(over="ignore"):
        return numbers if np.isfinite(numbers.astype(np.float32)).all() else None


def is_rank(text: bytes) -> bool:
    """Whether a column is a whole number that `read_run` reads."""
    return _numbers(int, [text], "q") is not None


def is_score(text: bytes) -> bool:
    """Whether a column is a number that `read_run` reads, finite or not."""
    return _numbers(float, [text], "d") is not None


class TopicReturnsError(Exception):
    """A topic comes back after rows of other topics: `RunRows.gathered` can read the file."""


class RunRows:
    """The rows of one run, topic by topic.

    Attributes:
        url: a file, a folder or a glob.
        places: tells the file and the line of a row's number.
        format: found at the first row.
        separator: of the columns of the first row, or of the format where that row mixes
            separators.
        comments: the comments, by line.
    """

    def __init__(self, url: str, inspect: Callable[[Line], None], hints: Hints = NO_HINTS) -> None:
        """`inspect` is given each line that is not simply a row like the first one, and the first
        row; `hints` say how the files are laid out.
        """
        self._hints = hints
        self._files = run_files(url)
        self.url, self.places = url, Places([file.url for file in self._files])
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
        for query_id, rows in groupby(self._rows(), lambda row: row[1][self._query_at]):
            if query_id in seen:
                raise TopicReturnsError
            seen.add(query_id)
            yield self._topic(rows)

    def gathered(self) -> Iterator[TopicRows]:
        """Each topic, in the order of their first rows, after the whole file was read into a
        temporary database.
        """
        ordinals: dict[bytes, int] = {}
        returns: dict[bytes, array[int]] = {}

        def numbered() -> Iterator[tuple[int, int, bytes]]:
            last: bytes | None = None
            for number, columns in self._rows():
                query_id = columns[self._query_at]
                if query_id != last and query_id in ordinals:
                    returns.setdefault(query_id, array("Q")).append(number)
                last = query_id
                yield ordinals.setdefault(query_id, len(ordinals)), number, b"\t".join(columns)

        with closing(sqlite3.connect("")) as database:
            database.execute("CREATE TABLE rows (topic, line, columns)")
            database.executemany("INSERT INTO rows VALUES (?, ?, ?)", numbered())
            stored = database.execute("SELECT topic, line, columns FROM rows ORDER BY topic, line")
            for _, rows in groupby(stored, itemgetter(0)):
                topic = self._topic((line, columns.split(b"\t")) for _, line, columns in rows)
                topic.returns = returns.get(topic.query_id, ())
                yield topic

    def _topic(self, rows: Iterable[tuple[int, list[bytes]]]) -> TopicRows:
        """The topic of some rows with their numbers."""
        lines, columns = map(list, zip(*rows, strict=True))
        assert self.format is not None
        query_id = columns[0][self._query_at]
        return TopicRows(query_id, self.format, columns, lines, places=self.places)

    def _rows(self) -> Iterator[tuple[int, list[bytes]]]:
        for place, file in enumerate(self._files):
            first, named = place << _LINE_BITS, _with_names(file, self._hints)
            if named is None:
                yield from self._text_rows(file, first + 1)
            else:
                yield from self._named_rows(named, first)

    def _named_rows(self, rows: TableReader, first: int) -> Iterator[tuple[int, list[bytes]]]:
        """The rows of a file whose columns have names, which are checked as they are read."""
        for batch in rows.batches():
            names = [name for name in batch.schema.names if name in rows.binding]
            self.format = self.format or RunFormat("named", tuple(names), "", "parquet")
            columns = [batch.column(name).to_pylist() for name in ("place", *names)]
            for line, *values in zip(*columns, strict=True):
                yield first + line, [str(value).encode() for value in values]
        rows.check()

    def _text_rows(self, file: InputFile, first: int) -> Iterator[tuple[int, list[bytes]]]:
        for number, line in enumerate(_lines(file), first):
            text = line.removesuffix(b"\n")
            columns = text.split()
            is_usual = (
                len(columns) == self._width
                and text == self.separator.join(columns)
                and len(text) < len(line) <= MAX_LINE_BYTES
                and text[0] != ord("#")
                and b"\0" not in text
                and (text.isascii() or isinstance(text_or_bytes(text), str))
            )
            if is_usual or self._is_row(number, text, columns, len(text) < len(line)):
                yield number, columns

    def _is_row(self, number: int, text: bytes, columns: list[bytes], ended: bool) -> bool:
        """Inspects a line, and finds out whether it is a row."""
        if self.places.find(number)[1] == 1 and text.startswith(BYTE_ORDER_MARK):
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
        self.format = next(
            (
                run_format
                for run_format in text_formats().values()
                if len(run_format.columns) == len(columns)
            ),
            None,
        )
        if self.format is None:
            return
        self._width, self._query_at = len(columns), self.format.columns.index("query_id")
        usual = self.format.separator.encode()
        other = b"\t" if usual == b" " else b" "
        self.separator = other if text.rstrip(b"\r") == other.join(columns) else usual


def _with_names(file: InputFile, hints: Hints) -> TableReader | None:
    """The reader of a file whose columns have names; None for rows by the places of columns."""
    try:
        rows = open_run_file(file, hints)
    except PreflightError as error:
        if error.kind in _LINES and not is_table(file.url):
            return None
        raise
    return rows if rows.decoder.names or hints.numbers else None


def _lines(file: InputFile) -> Iterator[bytes]:
    """The lines of a file; raises PreflightError where it cannot be read."""
    with errors_as(PreflightError, file.url), file.source.open() as lines:
        yield from lines
