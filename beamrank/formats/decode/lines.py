"""Text with a row a line: columns between tabs, commas or white space, with a header line or not.

A block of lines that needs no look at single characters is converted at once; else its lines are
read one by one.
"""

import csv
import io
import itertools
import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from beamrank.errors import DataError, PreflightError
from beamrank.formats.decode.base import (
    BYTE_ORDER_MARK,
    LONE_CR,
    Bad,
    Decoder,
    Records,
    Rows,
    Source,
    Wanted,
    WrongFormatError,
    collected,
)
from beamrank.formats.decode.packing import check_binary, check_text
from beamrank.formats.schemas import (
    ColumnsError,
    Hints,
    Schema,
    has_usual_name,
    holds_names,
    lacks_names,
    names_columns,
)
from beamrank.formats.values import RowError, text_or_bytes
from beamrank.notes import Note, counted
from beamrank.storage import files as storage
from beamrank.storage.streams import compression

BLOCK_BYTES = 1 << 20
ROWS_AT_ONCE = 1 << 16
_MOST_LINE_BYTES = 1 << 28
_NEWLINE, _SPACE = ord("\n"), ord(" ")
# Where none of so many rows is of a format, the first one says what is wrong.
_FIRST_LINES = 1000
# A smaller block is read faster row by row.
SMALL_BYTES = 1 << 13
# Python's limit of 128 KiB is for a whole process.
csv.field_size_limit(sys.maxsize)


class Dialect(NamedTuple):
    """How a line is divided.

    Attributes:
        separator: between columns; empty for white space.
        quotes: whether columns can be in quotes, as in RFC 4180.
        names: of the columns, if the first line has them.
        width: how many columns a row has.
        comments: whether lines that begin with `#` are no rows.
        lone_cr: whether a carriage return inside a line is part of a text.
        other_widths: of rows of another format, which say that the file is not what it was taken
            for.
    """

    separator: str
    quotes: bool = False
    names: tuple[str, ...] = ()
    width: int = 0
    comments: bool = False
    lone_cr: bool = False
    other_widths: frozenset[int] = frozenset()

    def split(self, line: bytes) -> list[bytes]:
        """The columns of a line without its line end."""
        if self.quotes:
            text = line.decode("utf-8", "surrogateescape")
            rows = csv.reader([text], delimiter=self.separator, strict=True)
            return list(map(_bytes, next(rows, [])))
        return line.split(self.separator.encode()) if self.separator else line.split()


_CSV, _TSV, _WORDS = Dialect(",", quotes=True), Dialect("\t"), Dialect("")
_QUOTED_TSV = _TSV._replace(quotes=True)
# Dialects that are not read, and what to say of them.
_OTHERS = {
    Dialect(";", quotes=True): "has semicolons between its columns: write commas, or tabs",
    Dialect("|", quotes=True): "has pipes between its columns: write commas, or tabs",
    _QUOTED_TSV: "has quotes around the names of its columns: set `quotes: true`",
}


_QUOTED = Note(
    "columns between tabs that begin and end with a quote",
    "in the first rows",
    "the quotes are part of the values; `quotes: true` reads them as in CSV",
)


class BlocksDecoder(Decoder):
    """A file of lines, which is read in blocks; see `Decoder`."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def ranges(self, unit_bytes: int) -> list[tuple[int, int]]:
        return byte_ranges(self._source.url, unit_bytes)

    def rows(self, start: int, end: int, wanted: Wanted, bad: Bad) -> Iterator[Rows]:
        self.noun = "byte" if end else "line"
        with self._source.open() as file:
            for first, block in blocks_of(file, start, end):
                head, rest = _head(block) if self._is_first(first) else (b"", block)
                after = first + (len(head) if end else head.count(b"\n"))
                yield from collected(self._split(first, head, bad), wanted)
                rows = self._parsed(after, rest, wanted)
                if rows is None:
                    yield from collected(self._split(after, rest, bad), wanted)
                else:
                    yield rows

    def _is_first(self, place: int) -> bool:
        """Whether the first line has this place."""
        return place == (0 if self.noun == "byte" else 1)

    @abstractmethod
    def _parsed(self, first: int, block: bytes, wanted: Wanted) -> Rows | None:
        """The rows of a block; None where a line is not regular, so that each is looked at."""

    @abstractmethod
    def _split(self, first: int, block: bytes, bad: Bad) -> Records:
        """The rows of a block, line by line."""


def _head(block: bytes) -> tuple[bytes, bytes]:
    """The lines of a block up to the first row, which can be a header, and the others."""
    if len(block) < SMALL_BYTES:
        return block, b""
    end = 0
    for line in io.BytesIO(block):
        end += len(line)
        text = line.removeprefix(BYTE_ORDER_MARK).strip()
        if text and not text.startswith(b"#"):
            break
    return block[:end], block[end:]


class LinesDecoder(BlocksDecoder):
    """A file of delimited lines; see `Decoder`."""

    comments: list[bytes]

    def __init__(
        self,
        source: Source,
        dialect: Dialect,
        first: Sequence[str] = (),
        notes: Sequence[Note] = (),
    ) -> None:
        super().__init__(source)
        self.comments = []
        self.notes, self.first = notes, first
        self.names, self.width = dialect.names, dialect.width
        self._dialect = dialect

    def ranges(self, unit_bytes: int) -> list[tuple[int, int]]:
        return [(0, 0)] if self._dialect.quotes else super().ranges(unit_bytes)

    def rows(self, start: int, end: int, wanted: Wanted, bad: Bad) -> Iterator[Rows]:
        if not start:
            self.comments = []
        if self._dialect.quotes:
            return collected(self._quoted(bad), wanted)
        return super().rows(start, end, wanted, bad)

    def _parsed(self, first: int, block: bytes, wanted: Wanted) -> Rows | None:
        # Arrow takes a byte order mark away.
        if not block or len(block) < SMALL_BYTES or block.startswith(BYTE_ORDER_MARK):
            return None
        content = block.replace(b"\r\n", b"\n")
        separator = self._separator(content)
        if separator is None:
            return None
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(content),
                arrow_csv.ReadOptions(
                    use_threads=False,
                    block_size=len(content) + 1,
                    column_names=list(map(str, range(self.width))),
                ),
                arrow_csv.ParseOptions(delimiter=separator, quote_char=False),
                arrow_csv.ConvertOptions(
                    column_types={str(at): kind for at, kind in wanted.items()},
                    include_columns=list(map(str, wanted)),
                    null_values=[],
                ),
            )
        except (ValueError, pa.ArrowException):
            return None
        positions = places_of(first, block, self.noun)
        if len(table) != len(positions):
            return None
        columns = {at: table[str(at)].combine_chunks() for at in wanted}
        return Rows(columns, positions)

    def _separator(self, block: bytes) -> str | None:
        """The separator of a block all of whose lines have just it between columns; else None."""
        separator = self._dialect.separator
        # Arrow takes a CR for the end of a line.
        if b"\r" in block:
            return None
        if self._dialect.comments and (
            block.startswith(b"#") or (b"#" in block and b"\n#" in block)
        ):
            return None
        if not separator:
            separator, other = ("\t", b" ") if b"\t" in block else (" ", b"\t")
            is_white = np.frombuffer(block, np.uint8) <= _SPACE
            if is_white[0] or (is_white[1:] & is_white[:-1]).any() or other in block:
                return None
        return separator

    def _split(self, first: int, block: bytes, bad: Bad) -> Records:
        may_be_header = self._is_first(first) and bool(self.names)
        places = places_of(first, block, self.noun)
        for place, line in zip(places, io.BytesIO(block), strict=False):
            text = line.removesuffix(b"\n").removesuffix(b"\r")
            if self._is_first(place):
                text = text.removeprefix(BYTE_ORDER_MARK)
            if b"\r" in text and not self._dialect.lone_cr:
                bad(place, RowError(LONE_CR, "lone-cr"), text)
                continue
            if not text.strip():
                continue
            if self._dialect.comments and text.lstrip().startswith(b"#"):
                self.comments.append(text)
                continue
            if may_be_header:
                may_be_header = False
                continue
            columns = self._dialect.split(text)
            if len(columns) == self.width:
                yield place, [text_or_bytes(column) for column in columns]
            else:
                bad(place, self._wrong_width(len(columns)), text)

    def _wrong_width(self, count: int) -> RowError:
        by = "where the header names" if self.names else "where the rows before have"
        is_other = count in self._dialect.other_widths
        reason = f"has {counted(count, 'column')}, {by} {self.width}"
        return RowError(reason, "columns", fatal=is_other)

    def _quoted(self, bad: Bad) -> Records:
        is_header = bool(self.names)
        for place, row in csv_rows(self._source, self._dialect.separator):
            if self._dialect.comments and row[0].startswith("#"):
                self.comments.append(_bytes(",".join(row)))
            elif is_header:
                is_header = False
            elif len(row) == self.width:
                columns: list[Any] = row
                try:
                    "".join(row).encode()
                except UnicodeEncodeError:  # a byte that is not UTF-8 became a surrogate
                    columns = [text_or_bytes(_bytes(column)) for column in row]
                yield place, columns
            else:
                bad(place, self._wrong_width(len(row)), row)


def _bytes(text: str) -> bytes:
    """A text of CSV as it was in the file."""
    return text.encode("utf-8", "surrogateescape")


def byte_ranges(url: str, unit_bytes: int) -> list[tuple[int, int]]:
    """A file split into ranges of `unit_bytes`; one range (0, 0) if it is compressed, none if it is
    empty.
    """
    if compression(url) is not None:
        return [(0, 0)]
    size = storage.size_bytes(url)
    return [(start, min(start + unit_bytes, size)) for start in range(0, size, unit_bytes)]


def open_lines(source: Source, schema: Schema, hints: Hints) -> LinesDecoder:
    """Opens a file of delimited lines; its first row tells how it is divided, unless the hints do.

    Raises:
        PreflightError: it is no text, or its header does not fit the hints.
    """
    with source.open() as file:
        rows = list(_first_lines(source.url, file, schema))
    if not rows:
        return LinesDecoder(source, Dialect("", comments=schema.comments))
    dialect = _dialect(source.url, schema, hints, rows[0])
    if not dialect.names:
        dialect = dialect._replace(width=_width(schema, dialect, rows))
    notes = [_QUOTED] if dialect.separator == "\t" and _have_quotes(dialect, rows) else []
    dialect = dialect._replace(comments=schema.comments, lone_cr=schema.lone_cr)
    return LinesDecoder(source, dialect, _names(dialect, rows[0]), notes)


def _have_quotes(dialect: Dialect, lines: Sequence[bytes]) -> bool:
    """Whether a column begins and ends with a quote that is part of it."""
    columns = (column for line in lines if b'"' in line for column in dialect.split(line))
    return not dialect.quotes and any(
        len(column) > 1 and column.startswith(b'"') and column.endswith(b'"') for column in columns
    )


def _first_lines(url: str, file: BinaryIO, schema: Schema) -> Iterator[bytes]:
    """The first lines that are rows, without their ends."""
    for number, line in enumerate(itertools.islice(file, _FIRST_LINES)):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if not number:
            check_text(url, line)
            text = text.removeprefix(BYTE_ORDER_MARK)
            _check_cr(url, text, schema)
        if text.strip() and not (schema.comments and text.lstrip().startswith(b"#")):
            yield text


def _check_cr(url: str, line: bytes, schema: Schema) -> None:
    """Raises PreflightError where the lines of a file end in CR; a text can have one, a header
    cannot.
    """
    head, *rest = line.split(b"\r")
    if rest and (not schema.lone_cr or _is_header(schema, head)):
        raise PreflightError(
            f"{url} cannot be read\n  line 1: the row {LONE_CR}",
            kind="lone-cr",
            file=url,
            place=1,
        )


def _is_header(schema: Schema, line: bytes) -> bool:
    return any(names_columns(schema, _names(dialect, line)) for dialect in (_CSV, _TSV))


def _width(schema: Schema, dialect: Dialect, lines: Sequence[bytes]) -> int:
    """How many columns rows without names have: as the first one that is of a format."""
    widths = [len(_names(dialect, line)) for line in lines]
    known = set(map(len, schema.unnamed.values()))
    return next((width for width in widths if width in known), widths[0])


def _dialect(url: str, schema: Schema, hints: Hints, line: bytes) -> Dialect:
    """The dialect of a file by its first line."""
    tsv = _QUOTED_TSV if hints.quotes else _TSV
    dialects = {"tsv": [tsv], "csv": [_CSV]}.get(
        hints.format, [_CSV, tsv, *([] if schema.has_texts else [_WORDS])]
    )
    for dialect in dialects if hints.header is not False else ():
        names = _names(dialect, line)
        try:
            is_header = holds_names(schema, names, hints)
        except ColumnsError as error:
            # A row of data can meet names by chance, unless it has numbers, names that are given,
            # or more columns than rows without a header.
            is_meant = (
                schema.has_numbers
                or set(names) & set(hints.names.values())
                or len(names) > max(map(len, schema.unnamed.values()), default=0)
            )
            if hints.header is None and not is_meant:
                continue
            raise error.of(url) from error
        if hints.header and len(names) == 2 and not is_header and not hints.names:
            names = [
                *next(
                    meanings for meanings in schema.unnamed.values() if len(meanings) == len(names)
                )
            ]
            is_header = True
        if is_header:
            return dialect._replace(names=tuple(names), width=len(names))
    return _unnamed(url, schema, hints, line, dialects)


def _names(dialect: Dialect, line: bytes) -> list[str]:
    try:
        return [name.decode("utf-8", "replace") for name in dialect.split(line)]
    except csv.Error:
        return []


def _unnamed(
    url: str, schema: Schema, hints: Hints, line: bytes, dialects: Sequence[Dialect]
) -> Dialect:
    """The dialect of a file without a header."""
    for other, reason in _OTHERS.items() if hints.header is not False else ():
        if names_columns(schema, _names(other, line), hints):
            raise WrongFormatError(f"{url} {reason}", kind="separator", file=url)
    dialect, csv_names = dialects[-1], _names(_CSV, line)
    is_given = bool(hints.names or hints.fields)
    lacks = lacks_names(schema, _names(_TSV, line)) and not hints.numbers
    is_csv = hints.format == "csv" or (
        not dialect.separator and len(line.split()) == 1 and len(csv_names) > 1
    )
    if is_given or hints.header or (hints.header is None and (lacks or is_csv)):
        check_binary(url, line)
        is_header = is_given or lacks or has_usual_name(schema, csv_names)
        raise WrongFormatError(
            f"{url} needs a header line that names columns for {schema.needed}, and its first "
            f"line is: {line.decode('utf-8', 'replace')[:200]}. Add one, such as "
            f"{','.join(schema.layouts[0])}, rename its columns, name them in `columns`, or set "
            "`header: false`",
            kind="column-missing" if is_header else "header-missing",
            file=url,
            place=1,
        )
    return dialect._replace(other_widths=frozenset(map(len, schema.unnamed.values())))


def csv_rows(source: Source, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, each with its first line; bytes that are not UTF-8 become
    surrogates.
    """
    line = 0
    with source.open() as file:
        lines = itertools.chain([file.readline().removeprefix(BYTE_ORDER_MARK)], file)
        texts = (line.decode("utf-8", "surrogateescape") for line in lines)
        rows = csv.reader(texts, delimiter=separator, strict=True)
        try:
            for row in rows:
                if row:
                    yield line + 1, row
                line = rows.line_num
        except csv.Error as error:
            raise DataError(
                f"{source.url}:{line + 1}: the row is not CSV as in RFC 4180 ({error}): a column "
                "that holds a quote, a comma or a line end is in quotes, and a quote in it is "
                "written twice",
                kind="not-csv",
                file=source.url,
                place=line + 1,
            ) from error


def csv_row(line: bytes) -> list[str]:
    """The columns of one line; none if it is not CSV, or has one column."""
    row = _names(_CSV, line)
    return row if len(row) > 1 else []


def blocks_of(file: BinaryIO, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Blocks of lines: `blocks_between`, or, where `end` is 0, the blocks of a whole file, each
    with the number of its first line, from 1.
    """
    if end:
        yield from blocks_between(file, start, end)
        return
    line = 1
    while block := whole_lines(file, BLOCK_BYTES):
        yield line, block
        line += block.count(b"\n")


def places_of(first: int, block: bytes, noun: str) -> NDArray[np.int64]:
    """The bytes at which the lines of a block begin, or their numbers."""
    if noun == "byte":
        return line_starts(block, first)
    return np.arange(first, first + block.count(b"\n") + (not block.endswith(b"\n")))


def blocks_between(file: BinaryIO, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Blocks of the lines that begin in [start, end), each with its offset."""
    offset = start
    if start:
        file.seek(start - 1)
        offset += len(file.readline()) - 1
    while offset < end and (block := whole_lines(file, min(BLOCK_BYTES, end - offset))):
        yield offset, block
        offset += len(block)


def whole_lines(file: BinaryIO, size_bytes: int) -> bytes:
    """About `size_bytes` from the position of the file, up to the end of a line; empty at the end
    of the file. Raises MemoryError for a line of more than 256 MiB.
    """
    block = file.read(size_bytes)
    if block.endswith(b"\n") or not block:
        return block
    try:
        rest = file.readline(_MOST_LINE_BYTES)
    except TypeError:  # fsspec's files take no limit; they are not packed
        rest = file.readline()
    if len(rest) >= _MOST_LINE_BYTES:
        raise MemoryError(f"a line has more than {_MOST_LINE_BYTES >> 20} MiB")
    return block + rest


def line_starts(block: bytes, offset: int) -> NDArray[np.int64]:
    """The byte at which each line of a block begins; `offset` is the block's own."""
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == _NEWLINE) + 1
    return np.concatenate([[0], ends[ends < len(block)]]) + offset
