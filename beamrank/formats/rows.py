"""Rows of runs, qrels and docs to exclude, as record batches: text with tabs or spaces, CSV, JSON, Parquet, Arrow.

Where a whole block of text or of a table is regular, it is converted at once; else its rows are read one by one, which
also finds what is wrong with each.
"""

import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, BinaryIO, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import csv

from beamrank.errors import DataError, PreflightError
from beamrank.formats import checks
from beamrank.formats.checks import RowError, shown
from beamrank.formats.columns import Columns, find_columns
from beamrank.formats.files import packed_as
from beamrank.formats.notes import counted
from beamrank.formats.rejects import Problems, Rejects
from beamrank.formats.texts.lines import BLOCK_BYTES, blocks_between, line_starts, whole_lines
from beamrank.formats.texts.records import Members, members, record_columns
from beamrank.formats.texts.tables import Table, is_table, numbered, open_table
from beamrank.storage.streams import open_stream

_Number = TypeVar("_Number", int, float)
# The columns of the rows in a record, whose line and fields it is given; raises RowError.
ReadRecord: TypeAlias = Callable[[int, Mapping[str, Any]], Iterable[list[bytes]]]
# The columns of each row, with its line, byte or row number.
_Rows: TypeAlias = Iterator[tuple[int, list[bytes]]]
_Lines: TypeAlias = Iterable[tuple[int, bytes]]
_Records: TypeAlias = Iterable[tuple[int, Mapping[str, Any]]]

ROWS_AT_ONCE = 1 << 16
# A smaller block is read faster row by row.
SMALL_BYTES = 1 << 13
_IDS = ("query_id", "doc_id")
_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
# An object whose first value is one, or that goes on below its first line.
_DICTIONARY = re.compile(rb'\s*\{\s*("(?:[^"\\]|\\.)*"\s*:\s*\{|$)')
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
        """Values, float64 or int64, in the type of a batch; raises ValueError where one does not fit."""
        with np.errstate(over="ignore"):
            found = values.astype(self.kind.to_pandas_dtype())
        if not (np.isfinite(found).all() and (np.abs(values) <= self.most).all()):
            raise ValueError
        return pa.array(found, self.kind)


class FileRows:
    """The rows of one file, and their problems.

    Files compressed with gzip, bzip2, xz or zstd are recognized by their names; a named pipe is accepted. Blank lines
    are skipped. A line whose first character is `#` is a comment, as in trec_eval 10; comments are counted. Lines end
    in LF or CR LF: a CR elsewhere is a problem of its line, since some tools would read two rows there.

    The columns of JSONL and Parquet have names, and so have those below a header line, which CSV must have: each row
    has the columns that these names find (formats/columns.py). Others are ignored. JSON of the form {query_id: {doc_id:
    number}} has the columns query_id, doc_id and score. A column that holds a list of docs, as MTEB's top_ranked has,
    gives a row (query_id, doc_id, rank) for each doc, and no names. Without names, the first row whose number of
    columns is that of a format decides.

    Attributes:
        what: the file in messages.
        layouts: rows with names need the meanings of one of these; those without have the columns of a `plain` one.
        numbers: the columns of numbers, by their meanings; those of ids come before them in a batch.
        name: of the format without names; empty for a file with names, or without a row of a format.
        names: of all columns of a row, if they have names.
        places: where the columns of each meaning are; empty until there is a row of a format.
        comments: the lines that begin with `#`.
        schema: of a table that was opened.
        noun: what the numbers of rows count: lines, bytes or rows.
        kind: how text is divided: `lines` without names or below a header, `json` (lines too), `csv` or `dictionary`.
    """

    what = "file"
    layouts: ClassVar[Sequence[Sequence[str]]] = ()
    numbers: ClassVar[Mapping[str, Number]] = {}

    def __init__(
        self,
        url: str,
        columns: Columns | None = None,
        rejects: Rejects | None = None,
        table: pa.Table | None = None,
    ) -> None:
        """Takes the names of columns that a configuration gives, and what takes the rows that are left out.

        By default, each is an error. A `table` is read in place of the file.
        """
        self.url = url
        self.is_table = table is not None or is_table(url)
        self.name = ""
        self.names: tuple[str, ...] = ()
        self.places: Mapping[str, int] = {}
        self.comments: list[bytes] = []
        self.schema = pa.schema([])
        self.noun = "line"
        self.kind: Literal["lines", "json", "csv", "dictionary"] = "lines"
        self._columns = columns or {}
        self._table = table
        self._width = -1
        self._left_out: list[str] = []
        self._reader: ReadRecord | None = None
        self._problems = Problems(url, rejects or Rejects("rows"))

    @property
    def plain(self) -> Mapping[str, Sequence[str]]:
        """The columns of rows without names, by the names of formats."""
        return {}

    @property
    def accepted(self) -> str:
        """The end of a message about columns."""
        return ""

    def batches(self, start: int = 0, end: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows of a range, in order: query_id, doc_id, the numbers (null where there is none), position (int64).

        Args:
            start: the first byte, row group or record batch; a later one needs `begin` before.
            end: the end of the range, exclusive; 0 for the rest of the file. Positions of text are bytes where it is
                given, else lines.

        Raises:
            PreflightError: the file cannot be read; rows that cannot be used are refused by `check`.
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
        """Finds the columns by the file's first row, so that rows that come later can be read on their own."""
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

    def bad(self, line: int, reason: str, row: Any = "", *, always: bool = False) -> None:
        """Notes the problem of a row, which is left out; `always` for one that is an error whatever the limit."""
        self._problems.add(line, reason, row, noun=self.noun, always=always)

    def check(self, rows: int = 1) -> None:
        """Raises PreflightError where the rows, which were read, cannot be used or are none."""
        problems = self._problems
        if problems.are_refused:
            found = f"{counted(problems.count, 'problem')}{problems.allowed}{problems.listed(f'{self.noun} ')}"
            raise PreflightError(f"{self.url} is not a valid {self.what}: {found}")
        if not rows:
            raise PreflightError(f"{self.url} holds no rows: a {self.what} must have at least one")

    def explain_columns(self, count: int) -> str:
        """What is wrong with a row of so many columns."""
        return f"{count} columns, where the header names {len(self.names)}"

    def _text_batches(self, file: BinaryIO, start: int, end: int) -> Iterator[pa.RecordBatch]:
        blocks = blocks_between(file, start, end) if end else _numbered_blocks(file)
        is_first = not start
        for first, block in blocks:
            if is_first:
                self._look(block.split(b"\n", 1)[0])
            if self.kind != "lines":
                every = itertools.starmap(self._lines, itertools.chain([(first, block)], blocks))
                yield from self._by_row(self._text_rows(itertools.chain.from_iterable(every), is_first))
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

    def _lines(self, first: int, block: bytes) -> _Lines:
        return zip(self._positions(first, block), io.BytesIO(block), strict=False)

    def _positions(self, first: int, block: bytes) -> Sequence[int]:
        """The bytes at which the lines of a block begin, or their numbers; there may be one more than lines."""
        is_byte = self.noun == "byte"
        return line_starts(block, first) if is_byte else range(first, first + block.count(b"\n") + 1)

    def _parsed(self, first: int, block: bytes) -> pa.RecordBatch | None:
        """The rows of a block of lines; None where one is not regular: then each is looked at."""
        tab = b"\t" if b"\t" in block else b" "
        odd = (tab * 2, tab + b"\n", b"\n" + tab, b"\n\n", b"\n#", b"0x", b"0X")
        if not self.places or block.translate(None, _REGULAR + tab) or block[0] in b"\n# \t" or block.endswith(tab):
            return None
        if any(each in block for each in odd):
            return None
        used = {meaning: at for meaning, at in self.places.items() if meaning in (*_IDS, *self.numbers)}
        types = {
            str(at): pa.string() if meaning in _IDS else self.numbers[meaning].wide for meaning, at in used.items()
        }
        try:
            table = csv.read_csv(
                io.BytesIO(block),
                csv.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=list(map(str, range(self._width)))
                ),
                csv.ParseOptions(delimiter=tab.decode(), quote_char=False),
                csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[], check_utf8=False),
            )
            found = {meaning: table[str(at)].combine_chunks() for meaning, at in used.items()}
            return self._batch(found, self._positions(first, block)[: table.num_rows])
        except ValueError:  # of Arrow too
            return None

    def _table_batches(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        if self._reader is None:
            self.begin()
        if not self.names:
            yield from self._by_row(self._checked(self._columns_of(self._records(start, end, ROWS_AT_ONCE))))
            return
        names = list(dict.fromkeys([*self.names, *self._left_out]))
        with self._open_table() as table:
            for first, batch in table.batches(start, end or None, names, ROWS_AT_ONCE):
                found = self._converted(first, batch)
                slow = iter(()) if found else numbered(self.url, first, batch)
                yield from [found] if found else self._by_row(self._checked(self._columns_of(slow)))

    @contextmanager
    def _open_table(self) -> Iterator[Table]:
        """The table of the rows, whose schema is kept."""
        with open_table(self.url) if self._table is None else nullcontext(Table.of(self._table)) as table:
            self.schema = table.schema
            yield table

    def _records(self, start: int, end: int, batch_rows: int) -> _Records:
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
        """A column of a usual type as one of strings, int64 or float64; raises ArrowInvalid for others."""
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        is_whole = pa.types.is_integer(kind)
        if meaning in _IDS:
            if is_whole or any(test(kind) for test in _STRINGS):
                return column.cast(pa.string())
        elif is_whole or (pa.types.is_floating(kind) and self.numbers[meaning].wide == pa.float64()):
            return column.cast(self.numbers[meaning].wide)
        raise pa.ArrowInvalid("its rows are looked at one by one")

    def _batch(self, columns: Mapping[str, Any], positions: Sequence[int]) -> pa.RecordBatch:
        """Rows of columns, the numbers as int64 or float64; raises ValueError where a number cannot be used."""
        arrays = {meaning: columns[meaning] for meaning in _IDS}
        for meaning, number in self.numbers.items():
            values = columns.get(meaning)
            if values is None:
                arrays[meaning] = pa.nulls(len(positions), number.kind)
            else:
                arrays[meaning] = number.narrowed(np.asarray(values))
        arrays["position"] = pa.array(np.asarray(positions, np.int64))
        return pa.record_batch(arrays)

    def _by_row(self, rows: _Rows) -> Iterator[pa.RecordBatch]:
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
        reason = next(filter(None, (id_reason(columns[self.places[meaning]]) for meaning in _IDS)), "")
        if reason:
            self.bad(line, reason, columns)
        return not reason

    def _text_rows(self, lines: _Lines, is_first: bool) -> _Rows:
        """The rows of some lines; `is_first`: the first one is that of the file."""
        lines = iter(lines)
        if is_first:
            line, text = next(lines, (1, b""))
            packed = packed_as(text)
            if packed:
                raise PreflightError(f"{self.url} does not hold text{packed}")
            text = text.removeprefix(checks.BYTE_ORDER_MARK)
            self._look(text)
            lines = itertools.chain([(line, text)], lines)
        if self.kind == "dictionary":
            return self._checked(self._columns_of(self._dictionary(b"".join(text for _, text in lines))))
        if self.kind == "json":
            return self._checked(self._columns_of(self._json_rows(lines)))
        if self.kind == "csv":
            return self._checked(self._csv_rows(text for _, text in lines))
        return self._checked(self._split_rows(lines, is_first))

    def _look(self, text: bytes) -> None:
        """Finds how a file's text is divided by its first line."""
        text = text.removeprefix(checks.BYTE_ORDER_MARK)
        if _DICTIONARY.match(text):
            self.kind = "dictionary"
        elif _is_json(text):
            self.kind = "json"
        elif self._is_header(checks.csv_row(text)):
            self.kind = "csv"

    def _checked(self, rows: _Rows) -> _Rows:
        """Rows with the columns of the first one; others are problems."""
        for line, columns in rows:
            if self._width < 0:
                self._place(len(columns))
            if len(columns) == self._width:
                yield line, columns
            else:
                # A row of a different format says that the file is not what it was taken for.
                changed = any(len(columns) == len(each) for each in self.plain.values()) and not self.names
                self.bad(line, self.explain_columns(len(columns)), columns, always=changed)

    def _place(self, count: int) -> None:
        """Finds where the columns of rows are, by their names or by how many there are."""
        if not self.names:
            self.name = next((name for name, columns in self.plain.items() if len(columns) == count), "")
            self.places = {column: at for at, column in enumerate(self.plain.get(self.name, ()))}
        self._width = len(self.names or self.places) or -1

    def _split_rows(self, lines: _Lines, may_be_header: bool) -> _Rows:
        for line, text in lines:
            if b"\r" in text and b"\r" in text.removesuffix(b"\n").removesuffix(b"\r"):
                self.bad(line, "a carriage return (CR) inside the line. Lines must end in LF or CR LF", text)
                continue
            columns = text.split()
            if not columns:
                continue
            if columns[0].startswith(b"#"):
                self.comments.append(text)
                continue
            if may_be_header:
                may_be_header = False
                if self._is_header([name.decode("utf-8", "replace") for name in columns]):
                    continue
                self._check_unnamed(text, columns)
            yield line, columns

    def _is_header(self, names: list[str]) -> bool:
        """Whether the first row holds the names of columns, which are found then. Every other row has a number."""
        if len(names) < 2 or any(map(_is_number, names)):
            return False
        found = self._find(names)
        if self._is_complete(found):
            self.places, self.names = found, tuple(names)
            self._width = len(names)
            return True
        return False

    def _find(self, names: list[str]) -> dict[str, int]:
        """The columns of each meaning among the names of the first row."""
        try:
            return find_columns(names, list(dict.fromkeys(itertools.chain(*self.layouts))), self._columns)
        except RowError as error:
            raise PreflightError(f"{self.url}: the first row {error}") from error

    def _is_complete(self, found: Iterable[str]) -> bool:
        return any(set(found) >= set(layout) for layout in self.layouts)

    def _check_unnamed(self, text: bytes, columns: list[bytes]) -> None:
        """Raises PreflightError where rows without names cannot be read, whatever is in them."""
        if self._columns:
            raise PreflightError(
                f"{self.url} has no header line with the names in `columns` ({', '.join(self._columns.values())}): add "
                "the header, or leave `columns` out"
            )
        if len(columns) == 1 and checks.csv_row(text):
            raise PreflightError(
                f"{self.url} looks like CSV without a header line, which says what its columns are: add one, such as "
                f"{','.join(self.layouts[0])}"
            )

    def _csv_rows(self, lines: Iterable[bytes]) -> _Rows:
        rows = checks.csv_rows(lines, self.url)
        next(rows)
        for line, columns in rows:
            yield line, [column.encode("utf-8", "surrogateescape") for column in columns]

    def _dictionary(self, content: bytes) -> _Records:
        """The rows of JSON as ranx saves runs and qrels, each with the number of its query."""
        seen: set[str] = set()
        for number, (query_id, docs) in enumerate(members(self.url, content), 1):
            if not isinstance(docs, Members):
                raise PreflightError(
                    f"{self.url}: the value of {query_id!r} is not {{doc_id: number}}, as in ranx's JSON"
                )
            if query_id in seen or len({doc_id for doc_id, _ in docs}) < len(docs):
                self.bad(number, f"query {query_id!r} is there twice, or has a doc twice", always=True)
            if not docs:
                self.bad(number, f"query {query_id!r} has no docs", [query_id])
            seen.add(query_id)
            for doc_id, value in docs:
                yield number, {"query_id": query_id, "doc_id": doc_id, "score": value}

    def _json_rows(self, lines: _Lines) -> _Records:
        for line, text in lines:
            try:
                if text.strip():
                    yield line, checks.json_object(checks.decoded(text))
            except RowError as error:
                self.bad(line, f"the row {error}", text)

    def _columns_of(self, records: _Records) -> _Rows:
        """The columns of records; all are read as the first one."""
        for line, record in records:
            read = self._reader = self._reader or self.record_reader(record)
            try:
                yield from ((line, columns) for columns in read(line, record))
            except RowError as error:
                self.bad(line, f"the row {error}", record, always=isinstance(error, checks.ContradictionError))

    def record_reader(self, first: Mapping[str, Any]) -> ReadRecord:
        """What reads each record of a file, by the first one: here the columns that its names find."""
        names = self._names_of(first)

        def read(_line: int, record: Mapping[str, Any]) -> Iterator[list[bytes]]:
            if not record.keys() >= set(names):
                raise RowError(f"has the fields {', '.join(record)}, and the first row {', '.join(names)}")
            if any(record.get(name) is not None for name in self._left_out):
                raise RowError(f"has a value in {', '.join(self._left_out)}, which is null in the first row")
            values = [record[name] for name in names]
            if None in values:
                name = names[values.index(None)]
                raise RowError(f"has a value that is neither text nor a number: None in the column `{name}`")
            yield from record_columns(values)

        return read

    def _names_of(self, row: Mapping[str, Any]) -> list[str]:
        """The names of the columns of all records, by the first one; those that are null in it can be missing."""
        names = list(row)
        found = self._find(names)
        lists = [name for name in names if isinstance(row[name], list)]
        is_row = self._is_complete(found) and names[found["doc_id"]] not in lists
        if len(lists) == 1 < len(names) and not is_row:
            query = found.get("query_id", next(at for at, name in enumerate(names) if name not in lists))
            return [names[query], *lists]
        present = {meaning: at for meaning, at in found.items() if row[names[at]] is not None}
        if self._is_complete(present):
            self._left_out = [names[at] for meaning, at in found.items() if meaning not in present]
            found = present
        if not self._is_complete(found):
            needed = " or ".join(f"({', '.join(layout)})" for layout in self.layouts)
            raise PreflightError(
                f"{self.url} needs columns for {needed}, and it has: {', '.join(names)}. Rename its columns, or name "
                f"them in `columns`{self.accepted}"
            )
        self.places = {meaning: at for at, meaning in enumerate(found)}
        self.names = tuple(names[at] for at in found.values())
        return list(self.names)


def _numbered_blocks(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The blocks of a file, each with the number of its first line, from 1."""
    line = 1
    while block := whole_lines(file, BLOCK_BYTES):
        yield line, block
        line += block.count(b"\n")


def id_reason(column: bytes) -> str:
    """Why a column cannot be an id, or an empty text. No query_id begins with `#`: its line would be a comment."""
    try:
        checks.check_doc_id(column.decode())
    except UnicodeDecodeError:
        return f"{shown(column)} is not valid UTF-8"
    except RowError as error:
        return f"the row {error}"
    return ""


def _is_json(line: bytes) -> bool:
    """Whether a line is an object, and not a row whose query_id begins with a brace."""
    try:
        return line.startswith(b"{") and bool(checks.json_object(checks.decoded(line)))
    except RowError:
        return False


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def unreadable(url: str, error: DataError) -> str:
    """What is wrong with a file that cannot be read."""
    if isinstance(error.__cause__, FileNotFoundError):
        return f"there is no file {url}"
    return f"{url} is a folder: give a file" if isinstance(error.__cause__, IsADirectoryError) else str(error)


def number(kind: Callable[[bytes], _Number], column: bytes) -> _Number:
    """An `int`, or a `float` (NaN and infinity included), without the underscores that Python allows."""
    if b"_" in column:
        raise ValueError(column)
    return kind(column)
