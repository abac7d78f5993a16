"""Rows one by one: how text and records are divided, what columns mean, and what is wrong with a
row.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Literal, TypeAlias

from beamrank.errors import PreflightError
from beamrank.formats import checks
from beamrank.formats.checks import RowError
from beamrank.formats.columns import Columns, find_columns
from beamrank.formats.files import packed_as
from beamrank.formats.rejects import Problems, Rejects
from beamrank.notes import counted

# The columns of the rows in a record, whose line and fields it is given; raises RowError.
ReadRecord: TypeAlias = Callable[[int, Mapping[str, Any]], Iterable[list[bytes]]]
# The columns of each row, with its line, byte or row number.
Rows: TypeAlias = Iterator[tuple[int, list[bytes]]]
Lines: TypeAlias = Iterable[tuple[int, bytes]]
Records: TypeAlias = Iterable[tuple[int, Mapping[str, Any]]]


# An object whose first value is one, or that goes on below its first line.
_DICTIONARY = re.compile(rb'\s*\{\s*("(?:[^"\\]|\\.)*"\s*:\s*\{|$)')


class RowReader:
    """The rows of one file, and their problems.

    Blank lines are skipped. A line whose first character is `#` is a comment, as in trec_eval 10;
    comments are counted. Lines end in LF or CR LF: a CR elsewhere is a problem of its line, since
    some tools would read two rows there.

    The columns of JSONL and Parquet have names, and so have those below a header line, which CSV
    must have: each row has the columns that these names find (formats/columns.py). Others are
    ignored. JSON of the form {query_id: {doc_id: number}} has the columns query_id, doc_id and
    score. A column that holds a list of docs, as MTEB's top_ranked has, gives a row (query_id,
    doc_id, rank) for each doc, and no names. Without names, the first row whose number of columns
    is that of a format decides.

    Attributes:
        what: the file in messages.
        layouts: rows with names need the meanings of one of these; those without have the columns
            of a `plain` one.
        name: of the format without names; empty for a file with names, or without a row of a
            format.
        names: of all columns of a row, if they have names.
        places: where the columns of each meaning are; empty until there is a row of a format.
        comments: the lines that begin with `#`.
        noun: what the numbers of rows count: lines, bytes or rows.
        kind: how text is divided: `lines` without names or below a header, `json` (lines too),
            `csv` or `dictionary`.
    """

    what = "file"
    layouts: ClassVar[Sequence[Sequence[str]]] = ()

    def __init__(self, url: str, columns: Columns | None, rejects: Rejects | None) -> None:
        """Takes the names of columns that a configuration gives, and what takes the rows that are
        left out.
        """
        self.url = url
        self.name = ""
        self.names: tuple[str, ...] = ()
        self.places: Mapping[str, int] = {}
        self.comments: list[bytes] = []
        self.noun = "line"
        self.kind: Literal["lines", "json", "csv", "dictionary"] = "lines"
        self._columns = columns or {}
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

    def bad(self, line: int, reason: str, row: Any = "", *, always: bool = False) -> None:
        """Notes the problem of a row, which is left out; `always` for one that is an error whatever
        the limit.
        """
        self._problems.add(line, reason, row, noun=self.noun, always=always)

    def check(self, rows: int = 1) -> None:
        """Raises PreflightError where the rows, which were read, cannot be used or are none."""
        problems = self._problems
        if problems.are_refused:
            found = (
                f"{counted(problems.count, 'problem')}{problems.allowed}"
                f"{problems.listed(f'{self.noun} ')}"
            )
            raise PreflightError(f"{self.url} is not a valid {self.what}: {found}")
        if not rows:
            raise PreflightError(f"{self.url} holds no rows: a {self.what} must have at least one")

    def explain_columns(self, count: int) -> str:
        """What is wrong with a row of so many columns."""
        return f"{count} columns, where the header names {len(self.names)}"

    def _text_rows(self, lines: Lines, is_first: bool) -> Rows:
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
            return self._checked(
                self._columns_of(self._dictionary(b"".join(text for _, text in lines)))
            )
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

    def _checked(self, rows: Rows) -> Rows:
        """Rows with the columns of the first one; others are problems."""
        for line, columns in rows:
            if self._width < 0:
                self._place(len(columns))
            if len(columns) == self._width:
                yield line, columns
            else:
                # A row of a different format says that the file is not what it was taken for.
                changed = (
                    any(len(columns) == len(each) for each in self.plain.values())
                    and not self.names
                )
                self.bad(line, self.explain_columns(len(columns)), columns, always=changed)

    def _place(self, count: int) -> None:
        """Finds where the columns of rows are, by their names or by how many there are."""
        if not self.names:
            self.name = next(
                (name for name, columns in self.plain.items() if len(columns) == count), ""
            )
            self.places = {column: at for at, column in enumerate(self.plain.get(self.name, ()))}
        self._width = len(self.names or self.places) or -1

    def _split_rows(self, lines: Lines, may_be_header: bool) -> Rows:
        for line, text in lines:
            if b"\r" in text and b"\r" in text.removesuffix(b"\n").removesuffix(b"\r"):
                self.bad(
                    line,
                    "a carriage return (CR) inside the line. Lines must end in LF or CR LF",
                    text,
                )
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
        """Whether the first row holds the names of columns, which are found then. Every other row
        has a number.
        """
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
            return find_columns(
                names, list(dict.fromkeys(itertools.chain(*self.layouts))), self._columns
            )
        except RowError as error:
            raise PreflightError(f"{self.url}: the first row {error}") from error

    def _is_complete(self, found: Iterable[str]) -> bool:
        return any(set(found) >= set(layout) for layout in self.layouts)

    def _check_unnamed(self, text: bytes, columns: list[bytes]) -> None:
        """Raises PreflightError where rows without names cannot be read, whatever is in them."""
        if self._columns:
            raise PreflightError(
                f"{self.url} has no header line with the names in `columns` "
                f"({', '.join(self._columns.values())}): add the header, or leave `columns` out"
            )
        if len(columns) == 1 and checks.csv_row(text):
            raise PreflightError(
                f"{self.url} looks like CSV without a header line, which says what its columns "
                f"are: add one, such as {','.join(self.layouts[0])}"
            )

    def _csv_rows(self, lines: Iterable[bytes]) -> Rows:
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
                    f"{self.url}: the value of {query_id!r} is not {{doc_id: number}}, as in "
                    "ranx's JSON"
                )
            if query_id in seen or len({doc_id for doc_id, _ in docs}) < len(docs):
                self.bad(
                    number, f"query {query_id!r} is there twice, or has a doc twice", always=True
                )
            if not docs:
                self.bad(number, f"query {query_id!r} has no docs", [query_id])
            seen.add(query_id)
            for doc_id, value in docs:
                yield number, {"query_id": query_id, "doc_id": doc_id, "score": value}

    def _json_rows(self, lines: Lines) -> Records:
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
                self.bad(
                    line,
                    f"the row {error}",
                    record,
                    always=isinstance(error, checks.ContradictionError),
                )

    def record_reader(self, first: Mapping[str, Any]) -> ReadRecord:
        """What reads each record of a file, by the first one: here the columns that its names
        find.
        """
        names = self._names_of(first)

        def read(_line: int, record: Mapping[str, Any]) -> Iterator[list[bytes]]:
            if not record.keys() >= set(names):
                raise RowError(
                    f"has the fields {', '.join(record)}, and the first row {', '.join(names)}"
                )
            if any(record.get(name) is not None for name in self._left_out):
                raise RowError(
                    f"has a value in {', '.join(self._left_out)}, which is null in the first row"
                )
            values = [record[name] for name in names]
            if None in values:
                name = names[values.index(None)]
                raise RowError(
                    f"has a value that is neither text nor a number: None in the column `{name}`"
                )
            yield from record_columns(values)

        return read

    def _names_of(self, row: Mapping[str, Any]) -> list[str]:
        """The names of the columns of all records, by the first one; those that are null in it can
        be missing.
        """
        names = list(row)
        found = self._find(names)
        lists = [name for name in names if isinstance(row[name], list)]
        is_row = self._is_complete(found) and names[found["doc_id"]] not in lists
        if len(lists) == 1 < len(names) and not is_row:
            query = found.get(
                "query_id", next(at for at, name in enumerate(names) if name not in lists)
            )
            return [names[query], *lists]
        present = {meaning: at for meaning, at in found.items() if row[names[at]] is not None}
        if self._is_complete(present):
            self._left_out = [names[at] for meaning, at in found.items() if meaning not in present]
            found = present
        if not self._is_complete(found):
            needed = " or ".join(f"({', '.join(layout)})" for layout in self.layouts)
            raise PreflightError(
                f"{self.url} needs columns for {needed}, and it has: {', '.join(names)}. Rename "
                f"its columns, or name them in `columns`{self.accepted}"
            )
        self.places = {meaning: at for at, meaning in enumerate(found)}
        self.names = tuple(names[at] for at in found.values())
        return list(self.names)


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


class Members(list[tuple[str, Any]]):
    """The members of a JSON object, those with the same name too."""


def members(url: str, content: bytes) -> Members:
    try:
        found = json.loads(content, object_pairs_hook=Members)
    except (ValueError, RecursionError) as error:
        raise PreflightError(
            f"{url} is not JSON of one object {{query_id: {{doc_id: number}}}}: {error}"
        ) from error
    return found if isinstance(found, Members) else Members()


def record_columns(values: list[Any]) -> Iterator[list[bytes]]:
    """The columns of a record; of a query and a list of docs, those of a run without scores."""
    match values:
        case [query_id, list(docs)]:
            doc_ids = [_id(doc_id) for doc_id in docs]
            if len(set(doc_ids)) < len(doc_ids):
                raise checks.ContradictionError(f"names a doc of query {query_id!r} twice")
            for rank, doc_id in enumerate(doc_ids, 1):
                yield [_id(query_id), doc_id, b"%d" % rank]
        case [query_id, doc_id, *numbers]:
            yield [_id(query_id), _id(doc_id), *map(_written, numbers)]


def _id(value: Any) -> bytes:
    if value != value:
        raise RowError(
            "has an id that is NaN: the column of a missing one is numbers with a fraction"
        )
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
