"""Rows of runs, qrels and docs to exclude: text with tabs or spaces, CSV, JSONL, JSON of ranx, Parquet."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

from beamrank.errors import DataError, PreflightError
from beamrank.formats import checks
from beamrank.formats.checks import RowError, shown
from beamrank.formats.columns import Columns, find_columns
from beamrank.formats.files import packed_as
from beamrank.formats.notes import Problems, counted
from beamrank.formats.texts.parquet import is_parquet, numbered_rows
from beamrank.storage import files as storage
from beamrank.storage.streams import open_stream

_Number = TypeVar("_Number", int, float)
# The columns of the rows in a record, whose line and fields it is given; raises RowError.
ReadRecord: TypeAlias = Callable[[int, Mapping[str, Any]], Iterable[list[bytes]]]
_Rows: TypeAlias = Iterator[tuple[int, list[bytes]]]
_Records: TypeAlias = Iterator[tuple[int, Mapping[str, Any]]]
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
    """

    def __init__(
        self,
        url: str,
        layouts: Sequence[Sequence[str]],
        plain: Mapping[str, Sequence[str]],
        columns: Columns | None = None,
        accepted: str = "",
    ) -> None:
        """Rows with names need the meanings of one of the `layouts`; those without have the columns of a `plain` one.

        `columns` are names that a configuration gives, `accepted` the end of a message about missing names.
        """
        self.url = url
        self.name = ""
        self.names: tuple[str, ...] = ()
        self.places: Mapping[str, int] = {}
        self.comments: list[bytes] = []
        self._layouts, self._plain, self._columns, self._accepted = layouts, plain, columns or {}, accepted
        self._width = -1
        self._problems = Problems()

    def __iter__(self) -> _Rows:
        """Yields each row's line number, from 1, and its columns; a row with too many or too few is a problem."""
        try:
            rows = self._columns_of(numbered_rows(self.url)) if is_parquet(self.url) else self._text_rows()
            for line, columns in rows:
                if self._width < 0:
                    self._place(len(columns))
                if len(columns) == self._width:
                    yield line, columns
                else:
                    self.bad(line, self.explain_columns(len(columns)))
        except DataError as error:
            raise PreflightError(unreadable(self.url, error)) from error

    def _place(self, count: int) -> None:
        """Finds where the columns of rows are, by their names or by how many there are."""
        if not self.names:
            self.name = next((name for name, columns in self._plain.items() if len(columns) == count), "")
            self.places = {column: at for at, column in enumerate(self._plain.get(self.name, ()))}
        self._width = len(self.names or self.places) or -1

    def explain_columns(self, count: int) -> str:
        return f"{count} columns, where the header names {len(self.names)}"

    def _text_rows(self) -> _Rows:
        lines, is_first = text_lines(self.url), True
        for line, text in enumerate(lines, 1):
            if line == 1:
                text = text.removeprefix(checks.BYTE_ORDER_MARK)
                named = self._named(text, lines)
                if named is not None:
                    yield from named
                    return
            if b"\r" in text and b"\r" in text.removesuffix(b"\n").removesuffix(b"\r"):
                self.bad(line, "a carriage return (CR) inside the line. Lines must end in LF or CR LF")
                continue
            columns = text.split()
            if not columns:
                continue
            if columns[0].startswith(b"#"):
                self.comments.append(text)
                continue
            if is_first:
                is_first = False
                if self._is_header([name.decode("utf-8", "replace") for name in columns]):
                    continue
                self._check_unnamed(text, columns)
            yield line, columns

    def _named(self, text: bytes, rest: Iterable[bytes]) -> _Rows | None:
        """The rows of a file whose first line begins JSON or CSV; None if it begins something else."""
        lines = itertools.chain([text], rest)
        if _DICTIONARY.match(text):
            return self._columns_of(self._dictionary(b"".join(lines)))
        if _is_json(text):
            return self._columns_of(self._json_rows(lines))
        return self._csv_rows(lines) if self._is_header(checks.csv_row(text)) else None

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

    def _csv_rows(self, lines: Iterator[bytes]) -> _Rows:
        rows = checks.csv_rows(lines, self.url)
        next(rows)
        for line, columns in rows:
            yield line, [column.encode("utf-8", "surrogateescape") for column in columns]

    def _dictionary(self, content: bytes) -> _Records:
        """The rows of JSON as ranx saves runs and qrels, each with the number of its query."""
        seen: set[str] = set()
        for number, (query_id, docs) in enumerate(_members(self.url, content), 1):
            if not isinstance(docs, _Members):
                raise PreflightError(
                    f"{self.url}: the value of {query_id!r} is not {{doc_id: number}}, as in ranx's JSON"
                )
            doc_ids = {doc_id for doc_id, _ in docs}
            if query_id in seen or len(doc_ids) < len(docs):
                self.bad(number, f"query {query_id!r} is there twice, or has a doc twice")
            if not docs:
                self.bad(number, f"query {query_id!r} has no docs")
            seen.add(query_id)
            for doc_id, value in docs:
                yield number, {"query_id": query_id, "doc_id": doc_id, "score": value}

    def _json_rows(self, lines: Iterator[bytes]) -> _Records:
        for line, text in enumerate(lines, 1):
            try:
                if text.strip():
                    yield line, checks.json_object(checks.decoded(text))
            except RowError as error:
                self.bad(line, f"the row {error}")

    def _columns_of(self, records: _Records) -> _Rows:
        """The columns of records; all are read as the first one."""
        read: ReadRecord | None = None
        for line, record in records:
            read = read or self.record_reader(record)
            try:
                yield from ((line, columns) for columns in read(line, record))
            except RowError as error:
                self.bad(line, f"the row {error}")

    def record_reader(self, first: Mapping[str, Any]) -> ReadRecord:
        """What reads each record of a file, by the first one: here the columns that its names find."""
        names, left_out = self._names_of(first)

        def read(_line: int, record: Mapping[str, Any]) -> Iterator[list[bytes]]:
            if not record.keys() >= set(names):
                raise RowError(f"has the fields {', '.join(record)}, and the first row {', '.join(names)}")
            if any(record.get(name) is not None for name in left_out):
                raise RowError(f"has a value in {', '.join(left_out)}, which is null in the first row")
            yield from _expanded([record[name] for name in names])

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

    def bad(self, line: int, reason: str) -> None:
        self._problems.add(line, reason)

    def text(self, line: int, column: bytes) -> str:
        """A column as text; one that is not UTF-8 is a problem."""
        try:
            return column.decode()
        except UnicodeDecodeError:
            self.bad(line, f"{shown(column)} is not valid UTF-8")
            return column.decode("utf-8", "backslashreplace")

    def ids(self, line: int, columns: Sequence[bytes]) -> tuple[str, str]:
        """The query_id and the doc_id of a row; one that cannot be used is a problem."""
        query_id, doc_id = (self.text(line, columns[self.places[meaning]]) for meaning in ("query_id", "doc_id"))
        if not checks.are_usable([query_id, doc_id]):
            self.check_id(line, query_id)
            self.check_id(line, doc_id)
        return query_id, doc_id

    def check_id(self, line: int, identifier: str) -> None:
        """Notes an id that cannot be used. No query_id begins with `#` here: its line would be a comment."""
        try:
            checks.check_doc_id(identifier)
        except RowError as error:
            self.bad(line, f"the row {error}")

    def check(self, what: str, rows: int) -> None:
        """Checks the rows after the last one was read."""
        count = self._problems.count
        if count:
            found = f"{counted(count, 'problem')}{self._problems.listed()}"
            raise PreflightError(f"{self.url} is not a valid {what}: {found}")
        if not rows:
            raise PreflightError(f"{self.url} holds no rows: a {what} must have at least one")


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


class _Members(list[tuple[str, Any]]):
    """The members of a JSON object, those with the same name too."""


def _members(url: str, content: bytes) -> _Members:
    try:
        found = json.loads(content, object_pairs_hook=_Members)
    except (ValueError, RecursionError) as error:
        raise PreflightError(f"{url} is not JSON of one object {{query_id: {{doc_id: number}}}}: {error}") from error
    return found if isinstance(found, _Members) else _Members()


def _expanded(values: list[Any]) -> Iterator[list[bytes]]:
    """The columns of a record; of a query and a list of docs, those of a run without scores."""
    match values:
        case [query_id, list(docs)]:
            doc_ids = [_id(doc_id) for doc_id in docs]
            if len(set(doc_ids)) < len(doc_ids):
                raise RowError(f"names a doc of query {query_id!r} twice")
            for rank, doc_id in enumerate(doc_ids, 1):
                yield [_id(query_id), doc_id, b"%d" % rank]
        case [query_id, doc_id, *numbers]:
            yield [_id(query_id), _id(doc_id), *map(_written, numbers)]


def _id(value: Any) -> bytes:
    if value != value:
        raise RowError("has an id that is NaN: the column of a missing one is numbers with a fraction")
    return _written(value)


def _written(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    value = checks.whole_of(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return str(value).encode()
    raise RowError(f"has a value that is neither text nor a number: {value!r:.60}")


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
