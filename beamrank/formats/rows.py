"""Rows of runs, qrels and docs to exclude, as record batches: text with tabs or spaces, CSV, JSON,
Parquet, Arrow.

Where a whole block of text or of a table is regular, it is converted at once; else its rows are
read one by one, which also finds what is wrong with each.
"""

import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, BinaryIO, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from beamrank.errors import DataError, PreflightError
from beamrank.formats import checks
from beamrank.formats.checks import RowError, shown
from beamrank.formats.columns import Columns
from beamrank.formats.rejects import Problems, Rejects
from beamrank.formats.texts.lines import BLOCK_BYTES, blocks_between, line_starts, whole_lines
from beamrank.formats.texts.parquet import check_once
from beamrank.formats.texts.row_reader import Lines, Records, RowReader, Rows
from beamrank.formats.texts.tables import Table, is_table, numbered, open_table
from beamrank.storage.streams import open_stream

ROWS_AT_ONCE = 1 << 16
# A smaller block is read faster row by row.
SMALL_BYTES = 1 << 13
_IDS = ("query_id", "doc_id")
_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
# The first row, which can be a header, and the comments before it.
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r]*(?:#[^\n]*)?\n)*[^\n]*\n?")
# All that stands in a block whose columns need no look at single characters, beside its separator.
_REGULAR = bytes(range(0x21, 0x7F)) + b"\n"


class Number(NamedTuple):
    """A column of numbers.

    Attributes:
        kind: its type in a batch.
        parse: the value of a row; a ValueError says what is wrong.
        most: its largest absolute value.
    """

    kind: Any
    parse: Callable[[bytes], float]
    most: float

    @property
    def wide(self) -> Any:
        """The type as which it is read."""
        return pa.int64() if pa.types.is_integer(self.kind) else pa.float64()

    def narrowed(self, values: Any) -> pa.Array:
        """Values, float64 or int64, in the type of a batch; raises ValueError where one does not
        fit.
        """
        with np.errstate(over="ignore"):
            found = values.astype(self.kind.to_pandas_dtype())
        if not (np.isfinite(found).all() and (np.abs(values) <= self.most).all()):
            raise ValueError
        return pa.array(found, self.kind)


class FileRows(RowReader):
    """The rows of one file as batches, and their problems; see `RowReader` for how they are found.

    Files compressed with gzip, bzip2, xz or zstd are recognized by their names; a named pipe is
    accepted.

    Attributes:
        numbers: the columns of numbers, by their meanings; those of ids come before them in a
            batch.
        schema: of a table that was opened.
    """

    numbers: ClassVar[Mapping[str, Number]] = {}

    def __init__(
        self,
        url: str,
        columns: Columns | None = None,
        rejects: Rejects | None = None,
        table: pa.Table | None = None,
    ) -> None:
        """Takes the names of columns that a configuration gives, and what takes the rows that are
        left out.

        By default, each is an error. A `table` is read in place of the file.
        """
        super().__init__(url, columns, rejects)
        self.is_table = table is not None or is_table(url)
        self.schema = pa.schema([])
        self._table = table

    def batches(self, start: int = 0, end: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows of a range, in order: query_id, doc_id, the numbers (null where there is none),
        position (int64).

        Args:
            start: the first byte, row group or record batch; a later one needs `begin` before.
            end: the end of the range, exclusive; 0 for the rest of the file. Positions of text are
                bytes where it is given, else lines.

        Raises:
            PreflightError: the file cannot be read; rows that cannot be used are refused by
                `check`.
        """
        try:
            if self.is_table:
                self.noun = "row"
                yield from self._table_batches(start, end)
            else:
                self.noun = "byte" if end else "line"
                with open_stream(self.url, pipe=not end) as file:
                    yield from self._text_batches(file, start, end)
        except DataError as error:
            raise PreflightError(unreadable(self.url, error)) from error

    def begin(self) -> None:
        """Finds the columns by the file's first row, so that rows that come later can be read on
        their own.
        """
        comments, problems = self.comments, self._problems
        self.comments, self._problems = [], Problems(self.url, Rejects("rows"))
        try:
            if self.is_table:
                next(self._checked(self._columns_of(self._records(0, 0, 1))), None)
            else:
                with open_stream(self.url) as file:
                    next(self._text_rows(enumerate(file, 1), is_first=True), None)
        except DataError as error:
            raise PreflightError(unreadable(self.url, error)) from error
        self.comments, self._problems = comments, problems

    @property
    def is_divisible(self) -> bool:
        """Whether rows of text can be read from any line on."""
        return self.kind in ("lines", "json")

    def _text_batches(self, file: BinaryIO, start: int, end: int) -> Iterator[pa.RecordBatch]:
        blocks = blocks_between(file, start, end) if end else _numbered_blocks(file)
        is_first = not start
        for first, block in blocks:
            if is_first:
                self._look(block.split(b"\n", 1)[0])
            if self.kind != "lines":
                every = itertools.starmap(self._lines, itertools.chain([(first, block)], blocks))
                yield from self._by_row(
                    self._text_rows(itertools.chain.from_iterable(every), is_first)
                )
                return
            head = _HEAD.match(block)[0] if is_first else b""  # type: ignore[index]
            head = block if len(block) < SMALL_BYTES else head
            rest, number = block[len(head) :], first + (len(head) if end else head.count(b"\n"))
            if head:
                yield from self._by_row(self._text_rows(self._lines(first, head), is_first))
            is_first = False
            found = self._parsed(number, rest) if rest else None
            if found is not None:
                yield found
            elif rest:
                yield from self._by_row(self._text_rows(self._lines(number, rest), is_first=False))

    def _lines(self, first: int, block: bytes) -> Lines:
        return zip(self._positions(first, block), io.BytesIO(block), strict=False)

    def _positions(self, first: int, block: bytes) -> Sequence[int]:
        """The bytes at which the lines of a block begin, or their numbers; there may be one more
        than lines.
        """
        is_byte = self.noun == "byte"
        return (
            line_starts(block, first) if is_byte else range(first, first + block.count(b"\n") + 1)
        )

    def _parsed(self, first: int, block: bytes) -> pa.RecordBatch | None:
        """The rows of a block of lines; None where one is not regular: then each is looked at."""
        tab = b"\t" if b"\t" in block else b" "
        odd = (tab * 2, tab + b"\n", b"\n" + tab, b"\n\n", b"\n#", b"0x", b"0X")
        if (
            not self.places
            or block.translate(None, _REGULAR + tab)
            or block[0] in b"\n# \t"
            or block.endswith(tab)
        ):
            return None
        if any(each in block for each in odd):
            return None
        used = {
            meaning: at for meaning, at in self.places.items() if meaning in (*_IDS, *self.numbers)
        }
        types = {
            str(at): pa.string() if meaning in _IDS else self.numbers[meaning].wide
            for meaning, at in used.items()
        }
        try:
            table = csv.read_csv(
                io.BytesIO(block),
                csv.ReadOptions(
                    use_threads=False,
                    block_size=len(block) + 1,
                    column_names=list(map(str, range(self._width))),
                ),
                csv.ParseOptions(delimiter=tab.decode(), quote_char=False),
                csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=[],
                    check_utf8=False,
                ),
            )
            found = {meaning: table[str(at)].combine_chunks() for meaning, at in used.items()}
            return self._batch(found, self._positions(first, block)[: table.num_rows])
        except ValueError:  # of Arrow too
            return None

    def _table_batches(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        if self._reader is None:
            self.begin()
        if not self.names:
            yield from self._by_row(
                self._checked(self._columns_of(self._records(start, end, ROWS_AT_ONCE)))
            )
            return
        names = list(dict.fromkeys([*self.names, *self._left_out]))
        with self._open_table() as table:
            for first, batch in table.batches(start, end or None, names, ROWS_AT_ONCE):
                found = self._converted(first, batch)
                slow = iter(()) if found else numbered(self.url, first, batch)
                yield from [found] if found else self._by_row(self._checked(self._columns_of(slow)))

    @contextmanager
    def _open_table(self) -> Iterator[Table]:
        """The table of the rows, whose schema is kept; raises PreflightError where a name is there
        twice.
        """
        with (
            open_table(self.url)
            if self._table is None
            else nullcontext(Table.of(self._table)) as table
        ):
            self.schema = table.schema
            check_once(self.url, table.schema.names, table.schema.names)
            yield table

    def _records(self, start: int, end: int, batch_rows: int) -> Records:
        with self._open_table() as table:
            for first, batch in table.batches(start, end or None, None, batch_rows):
                yield from numbered(self.url, first, batch)

    def _converted(self, first: int, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The rows of a batch of a table; None where one is not regular: then each is looked at."""
        columns = {meaning: batch.column(self.names[at]) for meaning, at in self.places.items()}
        if any(each.null_count for each in columns.values()):
            return None
        if any(batch.column(name).null_count < len(batch) for name in self._left_out):
            return None
        try:
            found = {meaning: self._cast(meaning, column) for meaning, column in columns.items()}
            if all(checks.are_usable(found[meaning].to_pylist()) for meaning in _IDS):
                return self._batch(found, range(first, first + len(batch)))
        except ValueError:  # of Arrow too
            pass
        return None

    def _cast(self, meaning: str, column: Any) -> Any:
        """A column of a usual type as one of strings, int64 or float64; raises ArrowInvalid for
        others.
        """
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        is_whole = pa.types.is_integer(kind)
        if meaning in _IDS:
            if is_whole or any(test(kind) for test in _STRINGS):
                return column.cast(pa.string())
        elif is_whole or (
            pa.types.is_floating(kind) and self.numbers[meaning].wide == pa.float64()
        ):
            return column.cast(self.numbers[meaning].wide)
        raise pa.ArrowInvalid("its rows are looked at one by one")

    def _batch(self, columns: Mapping[str, Any], positions: Sequence[int]) -> pa.RecordBatch:
        """Rows of columns, the numbers as int64 or float64; raises ValueError where a number cannot
        be used.
        """
        arrays = {meaning: columns[meaning] for meaning in _IDS}
        for meaning, number in self.numbers.items():
            values = columns.get(meaning)
            if values is None:
                arrays[meaning] = pa.nulls(len(positions), number.kind)
            else:
                arrays[meaning] = number.narrowed(np.asarray(values))
        arrays["position"] = pa.array(np.asarray(positions, np.int64))
        return pa.record_batch(arrays)

    def _by_row(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Rows that are looked at; those that cannot be used are problems."""
        while some := list(itertools.islice(rows, ROWS_AT_ONCE)):
            try:
                yield self._of_rows(some)
            except ValueError:
                usable = [row for row in some if self._is_usable(*row)]
                if usable:
                    yield self._of_rows(usable)

    def _of_rows(self, rows: list[tuple[int, list[bytes]]]) -> pa.RecordBatch:
        """Rows as a batch; raises ValueError where one cannot be used."""
        lines, columns = zip(*rows, strict=True)
        found = {}
        for meaning, at in self.places.items():
            column = [each[at] for each in columns]
            if meaning in _IDS:
                ids = [each.decode() for each in column]
                if not checks.are_usable(ids):
                    raise ValueError
                found[meaning] = pa.array(ids, pa.string())
            elif meaning in self.numbers:
                found[meaning] = np.array(list(map(self.numbers[meaning].parse, column)))
        return self._batch(found, lines)

    def _is_usable(self, line: int, columns: list[bytes]) -> bool:
        """Whether a row can be used; else it is a problem."""
        for meaning, number in self.numbers.items():
            try:
                if meaning in self.places:
                    number.parse(columns[self.places[meaning]])
            except ValueError as error:
                self.bad(line, f"{meaning} {shown(columns[self.places[meaning]])} {error}", columns)
                return False
        reason = next(
            filter(None, (id_reason(columns[self.places[meaning]]) for meaning in _IDS)), ""
        )
        if reason:
            self.bad(line, reason, columns)
        return not reason


def _numbered_blocks(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The blocks of a file, each with the number of its first line, from 1."""
    line = 1
    while block := whole_lines(file, BLOCK_BYTES):
        yield line, block
        line += block.count(b"\n")


def id_reason(column: bytes) -> str:
    """Why a column cannot be an id, or an empty text. No query_id begins with `#`: its line would
    be a comment.
    """
    try:
        checks.check_doc_id(column.decode())
    except UnicodeDecodeError:
        return f"{shown(column)} is not valid UTF-8"
    except RowError as error:
        return f"the row {error}"
    return ""


def unreadable(url: str, error: DataError) -> str:
    """What is wrong with a file that cannot be read."""
    if isinstance(error.__cause__, FileNotFoundError):
        return f"there is no file {url}"
    return (
        f"{url} is a folder: give a file"
        if isinstance(error.__cause__, IsADirectoryError)
        else str(error)
    )
