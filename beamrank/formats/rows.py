"""Rows of runs, qrels and docs to exclude: text with tabs or spaces, CSV, JSONL, JSON of ranx, Parquet, Arrow."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Literal, TypeAlias, TypeVar

from beamrank.errors import DataError, PreflightError
from beamrank.formats import checks
from beamrank.formats.checks import RowError, shown
from beamrank.formats.columns import Columns, find_columns
from beamrank.formats.files import packed_as
from beamrank.formats.notes import counted
from beamrank.formats.rejects import Problems, Rejects
from beamrank.formats.texts.lines import lines_between
from beamrank.formats.texts.records import Members, expanded, members
from beamrank.formats.texts.tables import is_table, numbered_rows
from beamrank.storage import files as storage
from beamrank.storage.streams import open_stream

_Number = TypeVar("_Number", int, float)
# The columns of the rows in a record, whose line and fields it is given; raises RowError.
ReadRecord: TypeAlias = Callable[[int, Mapping[str, Any]], Iterable[list[bytes]]]
# The columns of each row, with its line, byte or row number.
Rows: TypeAlias = Iterator[tuple[int, list[bytes]]]
_Lines: TypeAlias = Iterator[tuple[int, bytes]]
Records: TypeAlias = Iterator[tuple[int, Mapping[str, Any]]]
_SHOWN = 5
# An object whose first value is one, or that goes on below its first line.
_DICTIONARY = re.compile(rb'\s*\{\s*("(?:[^"\\]|\\.)*"\s*:\s*\{|$)')


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
        name: of the format without names; empty for a file with names, or without a row of a format.
        names: of all columns of a row, if they have names.
        places: where the columns of each meaning are; empty until there is a row of a format.
        comments: the lines that begin with `#`.
        noun: what the numbers of rows count: lines, bytes or rows.
        left_out: names of columns that are null in the first row, as they must be in all.
        kind: how text is divided: `lines` without names or below a header, `json`, or not at all.
    """

    def __init__(
        self,
        url: str,
        layouts: Sequence[Sequence[str]],
        plain: Mapping[str, Sequence[str]],
        columns: Columns | None = None,
        accepted: str = "",
        rejects: Rejects | None = None,
    ) -> None:
        """Rows with names need the meanings of one of the `layouts`; those without have the columns of a `plain` one.

        `columns` are names that a configuration gives, `accepted` the end of a message about missing names, `rejects`
        takes the rows that are left out; without it, each is an error.
        """
        self.url = url
        self.name = ""
        self.names: tuple[str, ...] = ()
        self.places: Mapping[str, int] = {}
        self.comments: list[bytes] = []
        self.noun = "line"
        self.kind: Literal["lines", "json", "whole"] = "lines"
        self._layouts, self._plain, self._columns, self._accepted = layouts, plain, columns or {}, accepted
        self._width = -1
        self.left_out: list[str] = []
        self._reader: ReadRecord | None = None
        self._problems = Problems(url, rejects or Rejects("rows"))

    def __iter__(self) -> Rows:
        """Yields each row's line number, from 1, and its columns; a row with too many or too few is a problem."""
        return self.between(0, 0)

    def between(self, start: int, end: int) -> Rows:
        """The rows of lines that begin in a range of bytes, each with its first byte; or of some groups of a table.

        Args:
            start: the first byte, row group or record batch; rows of a later one need `begin`.
            end: the end of the range, exclusive; 0 for the rest of the file.
        """
        if is_table(self.url):
            return self.of_records(numbered_rows(self.url, start=start, end=end or None))
        if not end:
            return self.of_lines(enumerate(text_lines(self.url), 1))
        self.noun = "byte"
        return self.of_lines(lines_between(self.url, start, end), is_first=not start)

    def of_lines(self, lines: _Lines, is_first: bool = True) -> Rows:
        """The rows of some lines; `is_first`: the first one is that of the file."""
        return self._checked(self._text_rows(lines, is_first))

    def of_records(self, records: Records) -> Rows:
        """The rows of some records."""
        return self._checked(self._columns_of(records))

    def _checked(self, rows: Rows) -> Rows:
        try:
            for line, columns in rows:
                if self._width < 0:
                    self._place(len(columns))
                if len(columns) == self._width:
                    yield line, columns
                else:
                    # A row of a different format says that the file is not what it was taken for.
                    changed = any(len(columns) == len(each) for each in self._plain.values()) and not self.names
                    self.bad(line, self.explain_columns(len(columns)), columns, always=changed)
        except DataError as error:
            raise PreflightError(unreadable(self.url, error)) from error

    def begin(self) -> None:
        """Finds the columns by the file's first row, so that rows that come later can be read on their own."""
        head = copy(self)
        head.comments, head._problems = [], Problems(self.url, Rejects("rows"))
        first = numbered_rows(self.url, batch_rows=1) if is_table(self.url) else None
        next(iter(head) if first is None else head.of_records(first), None)
        vars(self).update({**vars(head), "comments": self.comments, "_problems": self._problems})

    def _place(self, count: int) -> None:
        """Finds where the columns of rows are, by their names or by how many there are."""
        if not self.names:
            self.name = next((name for name, columns in self._plain.items() if len(columns) == count), "")
            self.places = {column: at for at, column in enumerate(self._plain.get(self.name, ()))}
        self._width = len(self.names or self.places) or -1

    def explain_columns(self, count: int) -> str:
        return f"{count} columns, where the header names {len(self.names)}"

    def _text_rows(self, lines: _Lines, is_first: bool) -> Rows:
        if self.kind == "json" and not is_first:
            yield from self._columns_of(self._json_rows(lines))
            return
        may_be_header = is_first
        for line, text in lines:
            if is_first:
                is_first, text = False, text.removeprefix(checks.BYTE_ORDER_MARK)
                named = self._named(text, itertools.chain([(line, text)], lines))
                if named is not None:
                    yield from named
                    return
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

    def _named(self, text: bytes, lines: _Lines) -> Rows | None:
        """The rows of a file whose first line begins JSON or CSV; None if it begins something else."""
        if _DICTIONARY.match(text):
            self.kind = "whole"
            return self._columns_of(self._dictionary(b"".join(text for _, text in lines)))
        if _is_json(text):
            self.kind = "json"
            return self._columns_of(self._json_rows(lines))
        if not self._is_header(checks.csv_row(text)):
            return None
        self.kind = "whole"
        return self._csv_rows(text for _, text in lines)

    def _is_header(self, names: list[str]) -> bool:
        """Whether the first row holds the names of columns, which are found then. Every other row has a number."""
        if len(names) < 2 or any(map(_is_number, names)):
            return False
        found = self._find(names)
        if self._is_complete(found):
            self.places, self.names = found, tuple(names)
        return bool(self.names)

    def _find(self, names: list[str]) -> dict[str, int]:
        """The columns of each meaning among the names of the first row."""
        meanings = list(dict.fromkeys(itertools.chain(*self._layouts)))
        try:
            return find_columns(names, meanings, self._columns)
        except RowError as error:
            raise PreflightError(f"{self.url}: the first row {error}") from error

    def _is_complete(self, found: Iterable[str]) -> bool:
        return any(set(found) >= set(layout) for layout in self._layouts)

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
                f"{','.join(self._layouts[0])}"
            )

    def _csv_rows(self, lines: Iterator[bytes]) -> Rows:
        rows = checks.csv_rows(lines, self.url)
        next(rows)
        for line, columns in rows:
            yield line, [column.encode("utf-8", "surrogateescape") for column in columns]

    def _dictionary(self, content: bytes) -> Records:
        """The rows of JSON as ranx saves runs and qrels, each with the number of its query."""
        seen: set[str] = set()
        for number, (query_id, docs) in enumerate(members(self.url, content), 1):
            if not isinstance(docs, Members):
                raise PreflightError(
                    f"{self.url}: the value of {query_id!r} is not {{doc_id: number}}, as in ranx's JSON"
                )
            doc_ids = {doc_id for doc_id, _ in docs}
            if query_id in seen or len(doc_ids) < len(docs):
                self.bad(number, f"query {query_id!r} is there twice, or has a doc twice", always=True)
            if not docs:
                self.bad(number, f"query {query_id!r} has no docs", [query_id])
            seen.add(query_id)
            for doc_id, value in docs:
                yield number, {"query_id": query_id, "doc_id": doc_id, "score": value}

    def _json_rows(self, lines: _Lines) -> Records:
        for line, text in lines:
            try:
                if text.strip():
                    yield line, checks.json_object(checks.decoded(text))
            except RowError as error:
                self.bad(line, f"the row {error}", text)

    def _columns_of(self, records: Records) -> Rows:
        """The columns of records; all are read as the first one."""
        for line, record in records:
            read = self._reader = self._reader or self.record_reader(record)
            try:
                yield from ((line, columns) for columns in read(line, record))
            except RowError as error:
                self.bad(line, f"the row {error}", record, always=isinstance(error, checks.ContradictionError))

    def record_reader(self, first: Mapping[str, Any]) -> ReadRecord:
        """What reads each record of a file, by the first one: here the columns that its names find."""
        names, self.left_out = self._names_of(first)

        def read(_line: int, record: Mapping[str, Any]) -> Iterator[list[bytes]]:
            if not record.keys() >= set(names):
                raise RowError(f"has the fields {', '.join(record)}, and the first row {', '.join(names)}")
            if any(record.get(name) is not None for name in self.left_out):
                raise RowError(f"has a value in {', '.join(self.left_out)}, which is null in the first row")
            values = [record[name] for name in names]
            if None in values:
                name = names[values.index(None)]
                raise RowError(f"has a value that is neither text nor a number: None in the column `{name}`")
            yield from expanded(values)

        return read

    def _names_of(self, row: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """The names of the columns of all records, and of those that are null and can be missing, by the first one."""
        names = list(row)
        found = self._find(names)
        lists = [name for name in names if isinstance(row[name], list)]
        is_row = self._is_complete(found) and names[found["doc_id"]] not in lists
        if len(lists) == 1 < len(names) and not is_row:
            query = found.get("query_id", next(at for at, name in enumerate(names) if name not in lists))
            return [names[query], *lists], []
        present = {meaning: at for meaning, at in found.items() if row[names[at]] is not None}
        left_out = []
        if self._is_complete(present):
            left_out = [names[at] for meaning, at in found.items() if meaning not in present]
            found = present
        if not self._is_complete(found):
            needed = " or ".join(f"({', '.join(layout)})" for layout in self._layouts)
            raise PreflightError(
                f"{self.url} needs columns for {needed}, and it has: {', '.join(names)}. Rename its columns, or name "
                f"them in `columns`{self._accepted}"
            )
        self.places = {meaning: at for at, meaning in enumerate(found)}
        self.names = tuple(names[at] for at in found.values())
        return list(self.names), left_out

    def bad(self, line: int, reason: str, row: Any = "", *, always: bool = False) -> None:
        """Notes the problem of a row, which is left out; `always` for one that is an error whatever the limit."""
        self._problems.add(line, reason, row, noun=self.noun, always=always)

    def ids(self, line: int, columns: Sequence[bytes]) -> tuple[str, str] | None:
        """The query_id and the doc_id of a row; None, and a problem, where one cannot be used."""
        found = [columns[self.places[meaning]] for meaning in ("query_id", "doc_id")]
        try:
            query_id, doc_id = [each.decode() for each in found]
            if checks.are_usable([query_id, doc_id]):
                return query_id, doc_id
        except UnicodeDecodeError:
            pass
        reason = next(filter(None, map(id_reason, found)))
        self.bad(line, reason, columns)
        return None

    def check(self, what: str, rows: int = 1) -> None:
        """Checks the rows after the last one was read."""
        problems = self._problems
        if problems.are_refused:
            noun = f"{self.noun} "
            found = f"{counted(problems.count, 'problem')}{problems.allowed}{problems.listed(noun)}"
            raise PreflightError(f"{self.url} is not a valid {what}: {found}")
        if not rows:
            raise PreflightError(f"{self.url} holds no rows: a {what} must have at least one")


def id_reason(column: bytes) -> str:
    """Why a column cannot be an id, or an empty text. No query_id begins with `#`: its line would be a comment."""
    try:
        checks.check_doc_id(column.decode())
    except UnicodeDecodeError:
        return f"{shown(column)} is not valid UTF-8"
    except RowError as error:
        return f"the row {error}"
    return ""


def text_lines(url: str) -> Iterator[bytes]:
    """The lines of a file, which may be a pipe; raises PreflightError where it cannot be read or is packed."""
    try:
        with open_stream(url, pipe=True) as file:
            first = file.readline()
            packed = packed_as(first)
            if packed:
                raise PreflightError(f"{url} does not hold text{packed}")
            if first:
                yield first
            yield from file
    except DataError as error:
        raise PreflightError(unreadable(url, error)) from error


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
    if isinstance(error.__cause__, FileNotFoundError):
        return f"there is no file {url}"
    if isinstance(error.__cause__, IsADirectoryError):
        # Not below it: it may be the root of a disk.
        names = sorted(name for name in storage.sizes_bytes(url) if name.endswith((".trec", ".tsv", ".txt")))
        runs = [storage.join(url, name) for name in names[:_SHOWN]]
        return f"{url} is a folder: give a file{', such as ' if runs else ''}{', '.join(runs)}"
    return str(error)


def whole(column: bytes) -> int:
    """A whole number, which may be written as 1.0; raises ValueError."""
    try:
        return number(int, column)
    except ValueError:
        value = number(float, column)
        if not value.is_integer():
            raise
        return int(value)


def number(kind: Callable[[bytes], _Number], column: bytes) -> _Number:
    """An `int`, or a `float` (NaN and infinity included), without the underscores that Python allows."""
    if b"_" in column:
        raise ValueError(column)
    return kind(column)
