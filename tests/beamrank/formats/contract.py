"""The contract of the readers as data: inputs x formats x faults, and what each must give.

A fault is written once, as a change of a table or of its lines, and holds in every format where it
can exist. `cases()` are all of them. What reads them is in adapters.py.
"""

import csv
import gzip
import io
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cache
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFileSystem

# The row with the fault, and the last one.
AT, LAST = 2, 3
NAN, INFINITY = float("nan"), float("inf")
# A byte that is no UTF-8, as Python's `surrogateescape` has it, and half of a pair, which only an
# escape of JSON can be.
BAD_BYTE, HALF_PAIR = "\udcff", "\ud800"

Row: TypeAlias = tuple[Any, ...]
# The lines of a text, each with the row that it holds, if it holds one.
Lines: TypeAlias = list[tuple[int | None, bytes]]


@dataclass(frozen=True)
class Read:
    """All rows are read."""

    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Left:
    """Some rows are left out, each for a reason (`kind`); None is the place of a line without a
    row.
    """

    rows: tuple[Row, ...]
    bad: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Refused:
    """Nothing is read: a row cannot be left out, or none is at fault."""

    kind: str
    place: int | None = None


Outcome: TypeAlias = Read | Left | Refused


@dataclass(frozen=True)
class Table:
    """What a file holds; a row may have fewer or more values than there are names.

    Attributes:
        types: the Arrow types of columns that have other ones than Python's values suggest.
        is_large: whether many plain rows follow, so that a reader converts columns at once.
    """

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    types: Mapping[str, Any] = field(default_factory=dict)
    is_large: bool = False

    def put(self, name: str, value: Any, at: int = AT) -> "Table":
        """With another value in one row."""
        column = self.names.index(name)
        rows = list(self.rows)
        rows[at] = (*rows[at][:column], value, *rows[at][column + 1 :])
        return replace(self, rows=tuple(rows))

    def column(self, name: str, values: Sequence[Any], kind: Any = None) -> "Table":
        """With other values in a column, which is added if it is not there."""
        if name not in self.names:
            wide = replace(self, names=(*self.names, name), rows=tuple((*r, 0) for r in self.rows))
            return wide.column(name, values, kind)
        table = self
        for at, value in enumerate(values):
            table = table.put(name, value, at)
        return replace(table, types={**self.types, **({} if kind is None else {name: kind})})

    def named(self, names: Mapping[str, str]) -> "Table":
        """With other names."""
        types = {names.get(name, name): kind for name, kind in self.types.items()}
        return Table(tuple(names.get(name, name) for name in self.names), self.rows, types)

    def values(self, name: str) -> list[Any]:
        column = self.names.index(name)
        return [row[column] for row in self.rows]


def _pairs(number: str, numbers: Sequence[Any]) -> Table:
    ids = (("q1", "d1"), ("q1", "d2"), ("q1", "d3"), ("q2", "d4"))
    rows = tuple((*pair, each) for pair, each in zip(ids, numbers, strict=True))
    return Table(("query_id", "doc_id", number), rows)


TEXTS = ("Rye bread keeps.", "The ferry leaves.", "A wok is hot.", "Pipes clank.")
TABLES: Mapping[str, Table] = {
    "docs": Table(("id", "contents"), tuple((f"d{n}", t) for n, t in enumerate(TEXTS, 1))),
    "topics": Table(("query_id", "text"), tuple((f"q{n}", t) for n, t in enumerate(TEXTS, 1))),
    "run": _pairs("score", (4.0, 3.0, 2.0, 1.0)),
    "ranked": _pairs("rank", (1, 2, 3, 1)),
    "qrels": _pairs("relevance", (1, 0, 2, 1)),
    "excluded": Table(("query_id", "doc_id"), tuple(r[:2] for r in _pairs("n", "1234").rows)),
    "pairs": Table(
        ("id", "query", "doc"), tuple((f"p{n}", t, "A doc.") for n, t in enumerate(TEXTS, 1))
    ),
}
# The columns of the ids, best last: most faults of an id are put into the last.
IDS = {"docs": ("id",), "topics": ("query_id",), "pairs": ("id",)}
TEXT = {"docs": "contents", "topics": "text", "pairs": "query"}
NUMBER = {"run": "score", "ranked": "rank", "qrels": "relevance"}
RUNS = ("run", "ranked")
BY_PAIR = (*RUNS, "qrels", "excluded")

_TABULAR = ("parquet", "arrow", "stream")
_USUAL = ("tsv", "csv", "jsonl", "json", *_TABULAR)
FORMATS: Mapping[str, tuple[str, ...]] = {
    "docs": ("plain", *_USUAL, "frame", "pandas", "sgml"),
    "topics": ("plain", *_USUAL, "frame", "pandas", "sgml"),
    "run": ("trec", "spaces", *_USUAL, "frame", "pandas"),
    "ranked": ("plain", "tsv", "csv", "jsonl", "parquet", "frame"),
    "qrels": ("trec", "plain", "spaces", *_USUAL, "frame", "pandas"),
    "excluded": ("plain", "spaces", *_USUAL),
    "pairs": _TABULAR,
}
ENDINGS = {"spaces": "txt", "plain": "tsv", "stream": "arrow", "sgml": "trec"}
FRAMES = frozenset({"frame", "pandas"})
TYPED = frozenset({*_TABULAR, "frame"})
JSON = frozenset({"jsonl", "json"})
DELIMITED = frozenset({"trec", "plain", "spaces", "tsv", "csv"})
# Text that is read line by line.
BY_LINE = DELIMITED | {"jsonl"}
NAMED = frozenset({"spaces", *_USUAL, *FRAMES})
# Where a value has a type and can be null.
VALUES = JSON | TYPED
ALL = frozenset(chain(*FORMATS.values()))
# Faults of the end of a file, or of a whole one.
_OF_ENDS = frozenset(
    {
        *("blank last line", "last line cut", "only a header", "empty file", "no file", "gzip"),
        *("only blank lines", "UTF-16", "integer ids", "uint64 ids", "float ids", "infinite id"),
        *("fraction as an id", "NaN as an id", "booleans as relevance", "no rows"),
        *("float id of 2^53", "float id above 2^53", "float id below 2^53"),
        *("pandas' JSON of columns", "pandas' JSON by index", "Avro", "CR as line ends"),
        "quotes around the names",
    }
)
# Formats that share a decoder with another one are read with the faults of CORE only.
THIN = frozenset({"json", "arrow", "stream"})
CORE = frozenset(
    {
        *("none", "empty id", "null id", "bad UTF-8 in an id", "NUL in an id", "null text"),
        *("empty text", "bad UTF-8 in a text", "half of a pair in an id", "integer ids"),
        *(
            "float ids",
            "fraction as an id",
            "float id above 2^53",
            "ids of string_view",
            "uuid ids",
        ),
        *("ids of dictionary", "word as a number", "whole number as a float", "null as a number"),
        *("row twice", "id twice", "empty file", "file cut short", "no rows", "UTF-16", "no file"),
        *("no rows of type null", "byte order mark", "blank first line", "field missing in a row"),
        *("names in upper case", "column twice", "another column twice", "another column"),
        *("time beyond Python's", "bad UTF-8 in another column", "last column without a name"),
        *("booleans as relevance", "title before text", "list of docs", "top_ranked"),
        *("pandas' JSON of columns", "pandas' JSON by index", "Avro"),
    }
)


@dataclass(frozen=True)
class Case:
    """One cell of the matrix: a table in a format, with a fault, and what reading it must give.

    Attributes:
        lines: a change of a text's lines, but not of the many plain ones of a large table.
        content: a change of a file's bytes; None for no file.
        columns: the names that the configuration gives, by their meanings.
    """

    input: str
    format: str
    fault: str
    table: Table
    outcome: Outcome
    lines: Callable[[Lines], Lines] = lambda lines: lines
    content: Callable[[bytes], bytes | None] = lambda content: content
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """The format, with a sign of many rows."""
        return f"{self.format}+" if self.table.is_large else self.format

    @property
    def id(self) -> str:
        return f"{self.input}-{self.form}-{self.fault}".replace(" ", "_")


def _splits_at_spaces(kind: str, form: str) -> bool:
    """Whether white space of any kind ends a column, so that no value is empty or holds it."""
    return kind in BY_PAIR and form in ("trec", "plain", "spaces")


@dataclass(frozen=True)
class Source:
    """What a reader is given: a path or a frame; and the row that each place means."""

    given: Any
    # The row of each line, and the byte at which each begins; none for tables.
    rows: tuple[int | None, ...] = ()
    starts: tuple[int, ...] = ()

    def row(self, unit: str, number: int, base: int) -> int | None:
        """The row at a place: a line, from 1, a byte, or a row (or an element) from `base`."""
        if unit == "byte" and number in self.starts:
            return self.rows[self.starts.index(number)]
        if unit == "line":
            return dict(enumerate(self.rows, 1)).get(number) if self.rows else number - 1
        return number - base


# Writers.


def write(case: Case) -> Source:
    """Writes the file of a case into memory, where no others are left, or makes its frame."""
    MemoryFileSystem.store.clear()
    table = case.table
    if case.format == "frame":
        return Source(arrow_table(table))
    if case.format == "pandas":
        return Source(_pandas(table))
    path = f"/contract/{case.input}.{ENDINGS.get(case.format, case.format)}"
    if case.format in _TABULAR:
        return Source(_kept(path, case.content(_tabular(table, case.format))))
    lines = case.lines(_lines(case.input, case.format, table))
    lines += _more_lines(case.input, case.format) if table.is_large else []
    content = b"".join(line + b"\n" for _, line in lines)
    url = _kept(path, case.content(content))
    rows, starts, start = list[int | None](), list[int](), 0
    for row, line in lines:
        for part in (line + b"\n").splitlines(keepends=True) if b"\n" in line else [line + b"\n"]:
            rows.append(row)
            starts.append(start)
            start += len(part)
    # The rows of a list are its elements.
    return Source(url, *(() if case.format == "json" else (tuple(rows), tuple(starts))))


def _kept(path: str, content: bytes | None) -> str:
    if content is not None:
        MemoryFileSystem().pipe_file(path, content)
    return f"memory:/{path}"


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _lines(kind: str, form: str, table: Table) -> Lines:
    if form == "jsonl":
        objects = ((n, _object(table.names, row)) for n, row in enumerate(table.rows))
        return [(n, each) for n, each in objects]
    if form == "json":
        return [(None, b"[%s]" % b", ".join(_object(table.names, row) for row in table.rows))]
    if form == "sgml":
        return [(n, _sgml(kind, *row)) for n, row in enumerate(table.rows)]
    rows = [(n, [_shown(value) for value in row]) for n, row in enumerate(table.rows)]
    if form == "trec":
        return [(n, _trec(kind, n, row)) for n, row in rows]
    header = [] if form == "plain" else [(None, list(table.names))]
    return [(n, _joined(form, row)) for n, row in (*header, *rows)]


@cache
def _more_lines(kind: str, form: str) -> Lines:
    base = TABLES[kind]
    lines = _lines(kind, form, replace(base, rows=_more(kind)))
    return [(n + len(base.rows), line) for n, line in lines if n is not None]


@cache
def _more(kind: str) -> tuple[Row, ...]:
    """Plain rows, more than a reader looks at one by one."""
    first = TABLES[kind].rows[0]
    ids = IDS.get(kind, ("query_id", "doc_id"))
    numbers = {"run": -1.0, "ranked": 1, "qrels": 0}
    return tuple(
        ("q3", f"d{at}", *(numbers[each] * (at - 999) for each in NUMBER if each == kind))
        if len(ids) > 1
        else (f"x{at}", *first[1:])
        for at in range(1000, 1700)
    )


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def _joined(form: str, row: list[str]) -> bytes:
    if form != "csv":
        return encoded((" " if form == "spaces" else "\t").join(row))
    file = io.StringIO()
    csv.writer(file).writerow(row)
    return encoded(file.getvalue().removesuffix("\r\n"))


def _trec(kind: str, number: int, row: list[str]) -> bytes:
    query_id, doc_id, *rest = row
    if kind == "run":
        return encoded(" ".join([query_id, "Q0", doc_id, str(number + 1), *rest[:1], "tag"])) + (
            b" more" * len(rest[1:])
        )
    return encoded(" ".join([query_id, "0", doc_id, *rest]))


def _sgml(kind: str, identifier: str, text: str) -> bytes:
    if kind == "docs":
        parts = f"<DOC>\n<DOCNO>{identifier}</DOCNO>\n<TEXT>\n{text}\n</TEXT>\n</DOC>"
    else:
        parts = f"<top>\n<num> Number: {identifier}\n<title> {text}\n</top>"
    return encoded(parts)


def _object(names: Sequence[str], row: Row) -> bytes:
    pairs = zip([*names, "more"], row, strict=False)
    text = json.dumps(dict(pairs), ensure_ascii=False)
    return encoded(text.replace(HALF_PAIR, "\\ud800"))


def arrow_table(table: Table) -> pa.Table:
    """A table of Arrow; two columns can have one name, and strings need not be UTF-8."""
    columns = list(zip(*table.rows, strict=True)) if table.rows else [()] * len(table.names)
    kinds = [table.types.get(name) for name in table.names]
    if not table.rows:
        kinds = [kind or pa.string() for kind in kinds]
    arrays = [_array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=list(table.names))


def _array(values: Sequence[Any], kind: Any) -> pa.Array:
    if any(isinstance(value, str) for value in values):
        binary = [None if v is None else encoded(str(v)) for v in values]
        if kind is not None and pa.types.is_fixed_size_binary(kind):
            return pa.array(binary, kind)
        if isinstance(kind, pa.UuidType):
            packed = [None if v is None else uuid.UUID(v).bytes for v in values]
            return pa.ExtensionArray.from_storage(kind, pa.array(packed, pa.binary(16)))
        strings = pa.array(binary, pa.binary()).view(pa.string())
        if kind is not None and pa.types.is_dictionary(kind):
            return _dictionary(strings, kind)
        return strings if kind is None else strings.cast(kind)
    if kind is not None and pa.types.is_dictionary(kind):
        return _dictionary(pa.array(values), kind)
    return pa.array(list(values), kind)


def _dictionary(values: pa.Array, kind: pa.DictionaryType) -> pa.Array:
    plain = values.dictionary_encode()
    words = plain.dictionary.cast(kind.value_type)
    return pa.DictionaryArray.from_arrays(plain.indices.cast(kind.index_type), words)


def _tabular(table: Table, form: str) -> bytes:
    sink, rows = io.BytesIO(), arrow_table(table)
    if form == "parquet":
        pq.write_table(rows, sink)
    else:
        new = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        with new(sink, rows.schema) as writer:
            writer.write_table(rows)
    return sink.getvalue()


def _pandas(table: Table) -> pd.DataFrame:
    columns = list(zip(*table.rows, strict=True)) if table.rows else [()] * len(table.names)
    series = [pd.Series(list(values), dtype=None if values else str) for values in columns]
    kinds = [table.types.get(name) for name in table.names]
    for at, kind in enumerate(kinds):
        if kind is not None and pa.types.is_dictionary(kind):
            series[at] = series[at].astype("category")
    frame = pd.concat(series, axis=1)
    frame.columns = list(table.names)
    return frame


# What must be read.


def rows_of(kind: str, table: Table) -> tuple[Row, ...]:
    """The rows of a table as a reader gives them: ids and texts, and numbers as numbers."""
    strings = [*IDS.get(kind, ("query_id", "doc_id"))]
    strings += ["query", "doc"] if kind == "pairs" else [TEXT[kind]] if kind in TEXT else []
    found = [table.values(name) for name in strings]
    if kind in NUMBER:
        whole = float if kind == "run" else int
        found.append([whole(value) for value in table.values(NUMBER[kind])])
    rows = tuple(zip(*found, strict=True))
    # Docs to exclude have no order.
    return tuple(sorted(rows)) if kind == "excluded" else rows


def _without(kind: str, table: Table, *places: int) -> tuple[Row, ...]:
    kept = tuple(row for at, row in enumerate(table.rows) if at not in places)
    return rows_of(kind, replace(table, rows=kept))


def has_limit(kind: str, form: str) -> bool:
    """Whether rows of an input can be left out: frames and docs to exclude have no limit."""
    return kind != "excluded" and form not in FRAMES


def bad(kind: str, form: str, reason: str, *places: int | None) -> Outcome:
    """Rows of the plain table are left out, or refused where none can be."""
    places = places or (AT,)
    if not has_limit(kind, form):
        return Refused(reason, places[0])
    rows = _without(kind, TABLES[kind], *(at for at in places if at is not None))
    return Left(rows, tuple((reason, at) for at in places))


def _other_width(kind: str, form: str, more: int) -> Outcome:
    """A row of another width: that of another format says that the file is not what it was taken
    for.
    """
    if kind == "qrels" and (form, more) in (("trec", -1), ("plain", 1)):
        return Refused("columns", AT)
    return bad(kind, form, "columns")


# The faults: each function yields cases of some.


def cases() -> list[Case]:
    """The whole matrix."""
    found = [
        *chain.from_iterable(
            make(kind)
            for make in (_plain, _ids, _id_types, _texts, _numbers, _twice, _lines_cases, _names)
            for kind in TABLES
        ),
        *_titles(),
        *chain.from_iterable(map(_lists, ("ranked", "qrels", "excluded"))),
    ]
    assert len({case.id for case in found}) == len(found)
    return [
        *(case for case in found if case.format not in THIN or case.fault in CORE),
        *(_large(case) for case in found if _can_be_large(case)),
    ]


def _can_be_large(case: Case) -> bool:
    """Whether its faults can come before many plain rows of text."""
    return (
        case.input not in ("excluded", "pairs")
        and case.format in BY_LINE - {"csv", "spaces"}
        and case.table.names == TABLES[case.input].names
        and not case.columns
        and isinstance(case.table.rows and case.table.rows[0][0], str)
        and case.fault not in _OF_ENDS
        and not isinstance(case.table.rows[0][-1], bool)
    )


def _large(case: Case) -> Case:
    outcome, more = case.outcome, _more(case.input)
    if not isinstance(outcome, Refused):
        outcome = replace(outcome, rows=(*outcome.rows, *more))
    return replace(case, table=replace(case.table, is_large=True), outcome=outcome)


def _each(kind: str, formats: frozenset[str]) -> Iterator[str]:
    return (form for form in FORMATS[kind] if form in formats)


def _plain(kind: str) -> Iterator[Case]:
    table = TABLES[kind]
    for form in FORMATS[kind]:
        yield Case(kind, form, "none", table, Read(rows_of(kind, table)))


# The value of one id; the reason; the formats where it can be (of text that is split at spaces
# apart).
_BAD_IDS: Sequence[tuple[str, Any, str, frozenset[str]]] = (
    ("space in an id", "d 3", "id-white-space", ALL),
    ("no-break space in an id", "d\u00a03", "id-white-space", ALL),
    ("tab in an id", "d\t3", "id-white-space", ALL - {"plain", "tsv", "spaces", "trec", "sgml"}),
    ("CR in an id", "d\r3", "lone-cr", DELIMITED - {"csv"}),
    ("CR in an id", "d\r3", "id-white-space", VALUES | {"csv", "pandas"}),
    ("NUL in an id", "d\0003", "id-control", ALL),
    ("byte order mark in an id", "d\ufeff3", "id-byte-order-mark", ALL),
    ("bad UTF-8 in an id", f"d{BAD_BYTE}3", "not-utf8", ALL - {"pandas"}),
    ("half of a pair in an id", f"d{HALF_PAIR}3", "id-surrogate", JSON),
    ("null id", None, "null", VALUES | {"pandas"}),
    ("boolean id", True, "id-type", JSON),
    ("list as an id", ["d3"], "id-type", JSON),
)

# What no id of a run may hold.
_RUN_IDS = ("id-white-space", "id-control", "id-byte-order-mark")


def _id_names(kind: str) -> tuple[str, ...]:
    return IDS.get(kind, ("query_id", "doc_id"))


def _ids(kind: str) -> Iterator[Case]:
    base = TABLES[kind]
    first, last = _id_names(kind)[0], _id_names(kind)[-1]
    places = [(last, ""), *([(first, " of a query")] if kind in ("run", "qrels") else [])]
    for (name, of), form in ((p, f) for p in places for f in FORMATS[kind]):
        spaced = _splits_at_spaces(kind, form)
        table = base.put(name, "")
        empty = (
            _other_width(kind, form, -1)
            if spaced
            else Read(rows_of(kind, table))
            if kind == "pairs"
            else bad(kind, form, "empty-id")
        )
        yield Case(kind, form, f"empty id{of}", table, empty)
        for fault, value, reason, formats in _BAD_IDS:
            if form not in formats or (of and "space" not in fault and "null" not in fault):
                continue
            table = base.put(name, value)
            outcome = bad(kind, form, reason)
            if spaced and fault == "space in an id":
                outcome = _other_width(kind, form, 1)
            # A CR can be part of a doc's text, so that its line is none of two.
            elif kind == "docs" and reason == "lone-cr":
                outcome = bad(kind, form, "id-white-space")
            # A list of JSON is read whole.
            elif form == "json" and reason == "not-utf8":
                outcome = Refused(reason)
            # The ids of pairs are names of rows: no run has them.
            elif kind == "pairs" and reason in _RUN_IDS:
                outcome = Read(rows_of(kind, table))
            yield Case(kind, form, fault + of, table, outcome)
    if kind in ("docs", "pairs"):
        return
    for form in FORMATS[kind]:
        table = base.put("query_id", "#q")
        is_comment = kind in BY_PAIR and form in DELIMITED
        rows = Read(_without(kind, base, AT)) if is_comment else bad(kind, form, "comment-id")
        yield Case(kind, form, "number sign before an id", table, rows)
        if kind != "topics":
            table = base.put("doc_id", "#d3")
            yield Case(kind, form, "number sign before a doc_id", table, Read(rows_of(kind, table)))


_UUIDS = [str(uuid.UUID(int=n)) for n in range(4)]
_WORDS = pa.dictionary(pa.int8(), pa.string())
_STRINGS: Mapping[str, Any] = {
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "dictionary": _WORDS,
    "dictionary of uint32": pa.dictionary(pa.uint32(), pa.large_string()),
}


def _halves(*numbers: int) -> list[Any]:
    return [np.float16(number) for number in numbers]


# Whole columns of ids: the values, their type, the ids (a kind: why the row AT is none), and where.
_COLUMNS_OF_IDS: Sequence[tuple[str, Sequence[Any], Any, Sequence[str] | str, frozenset[str]]] = (
    ("integer ids", [1, 2, 3, 4], pa.int64(), "1234", VALUES | {"pandas"}),
    ("uint64 ids", [1, 2, 2**64 - 1, 4], pa.uint64(), ["1", "2", str(2**64 - 1), "4"], VALUES),
    ("int8 ids", [1, 2, 3, 4], pa.int8(), "1234", TYPED),
    ("float ids", [1.0, 2.0, 3.0, 4.0], pa.float64(), "1234", VALUES | {"pandas"}),
    ("float32 ids", [1.0, 2.0, 3.0, 4.0], pa.float32(), "1234", TYPED),
    ("float16 ids", _halves(1, 2, 3, 4), pa.float16(), "1234", TYPED),
    ("decimal ids", [Decimal(n) for n in (1, 2, 3, 4)], pa.decimal128(9, 2), "1234", TYPED),
    ("large decimal ids", [Decimal(n) for n in (1, 2, 10**37, 4)], pa.decimal128(38, 0),
     ["1", "2", str(10**37), "4"], TYPED),
    ("dictionary of integer ids", [1, 2, 3, 4], pa.dictionary(pa.int8(), pa.int64()), "1234",
     TYPED),
    ("fraction as an id", [1.0, 2.0, 1.5, 4.0], pa.float64(), "id-type", VALUES | {"pandas"}),
    ("decimal fraction as an id", [Decimal(n) for n in ("1", "2", "1.5", "4")],
     pa.decimal128(9, 2), "id-type", TYPED),
    ("infinite id", [1.0, 2.0, INFINITY, 4.0], pa.float64(), "id-type", VALUES | {"pandas"}),
    ("NaN as an id", [1.0, 2.0, NAN, 4.0], pa.float64(), "id-type", VALUES),
    ("NaN as an id", [1.0, 2.0, NAN, 4.0], pa.float64(), "null", frozenset({"pandas"})),
    ("float id below 2^53", [1.0, 2.0, 2.0**53 - 1, 4.0], pa.float64(),
     ["1", "2", str(2**53 - 1), "4"], VALUES),
    ("float id of 2^53", [1.0, 2.0, 2.0**53, 4.0], pa.float64(), "id-inexact", VALUES),
    ("float id above 2^53", [1.0, 2.0, 2.0**53 + 2, 4.0], pa.float64(), "id-inexact", VALUES),
    ("float32 id above 2^24", [1.0, 2.0, 2.0**24 + 2, 4.0], pa.float32(), "id-inexact", TYPED),
    ("float16 id above 2^11", _halves(1, 2, 2050, 4), pa.float16(), "id-inexact",
     TYPED),
    ("uuid ids", _UUIDS, pa.uuid(), _UUIDS, TYPED),
)  # fmt: skip


def _id_types(kind: str) -> Iterator[Case]:
    base, name = TABLES[kind], _id_names(kind)[-1]
    for fault, values, type_, found, formats in _COLUMNS_OF_IDS:
        for form in _each(kind, formats):
            # Pairs keep numbers as int64.
            if kind == "pairs" and fault == "large decimal ids":
                continue
            table = base.column(name, values, type_)
            if isinstance(found, str) and not found.isdigit():
                usable = [str(int(v)) if at != AT else "" for at, v in enumerate(values)]
                rows = _without(kind, base.column(name, usable), AT)
                outcome: Outcome = (
                    Left(rows, ((found, AT),)) if has_limit(kind, form) else Refused(found, AT)
                )
            else:
                outcome = Read(rows_of(kind, base.column(name, found)))
            yield Case(kind, form, fault, table, outcome)
    for form in _each(kind, frozenset({"tsv", "csv", "plain", "trec"})):
        table = base.column(name, ["1.0", "2.0", "2.5", "004"])
        yield Case(kind, form, "numbers as text are ids", table, Read(rows_of(kind, table)))
    for type_, arrow in {**_STRINGS, "fixed binary": pa.binary(2)}.items():
        table = base.column(name, base.values(name), arrow)
        for form in _each(kind, TYPED | ({"pandas"} if arrow == _WORDS else set())):
            yield Case(kind, form, f"ids of {type_}", table, Read(rows_of(kind, base)))
    booleans = base.column(name, [True, False, True, False], pa.bool_())
    for form in _each(kind, TYPED | {"pandas"}):
        yield Case(kind, form, "boolean ids", booleans, Refused("column-type"))


def _texts(kind: str) -> Iterator[Case]:
    if kind not in TEXT:
        return
    base, name = TABLES[kind], TEXT[kind]

    def text(fault: str, value: Any, formats: frozenset[str], reason: str = "") -> Iterator[Case]:
        table = base.put(name, value)
        for form in _each(kind, formats):
            outcome = bad(kind, form, reason) if reason else Read(rows_of(kind, table))
            if form == "json" and reason == "not-utf8":
                outcome = Refused(reason)
            yield Case(kind, form, fault, table, outcome)

    of_queries = "" if kind == "docs" else "topic-empty"
    any_text = ALL - {"sgml"}
    yield from text("empty text", "", ALL, of_queries)
    yield from text("blank text", "  ", any_text, of_queries)
    yield from text("null text", None, VALUES | {"pandas"}, "null")
    yield from text("number as a text", 5, JSON, "text-type")
    yield from text("list as a text", ["A wok."], JSON, "text-type")
    yield from text("bad UTF-8 in a text", f"A wok {BAD_BYTE}.", ALL - {"pandas"}, "not-utf8")
    yield from text("half of a pair in a text", f"A wok {HALF_PAIR}.", JSON, "surrogate")
    yield from text("NUL in a text", "A \0 wok.", ALL, "topic-nul" if kind == "topics" else "")
    yield from text("quotes and commas in a text", '"A wok", hot', ALL)
    yield from text("quotes around a text", '"A ""hot"" wok."', ALL)
    yield from text("digits as a text", "5", ALL)
    yield from text("byte order mark in a text", "A \ufeffwok.", ALL)
    yield from text("text outside of the BMP", "A wok \U0001f373 caf\u00e9.", ALL)
    yield from text("tab in a text", "A\twok.", VALUES | {"csv", "pandas"})
    yield from text("LF in a text", "A\nwok.", VALUES | {"csv", "pandas"})
    yield from text("CR in a text", "A\rwok.", VALUES | {"csv", "pandas"})
    lone = "" if kind == "docs" else "lone-cr"
    yield from text("CR in a line", "A\rwok.", frozenset({"plain", "tsv"}), lone)
    for type_, arrow in _STRINGS.items():
        table = base.column(name, base.values(name), arrow)
        for form in _each(kind, TYPED):
            yield Case(kind, form, f"text of {type_}", table, Read(rows_of(kind, base)))
    for form in _each(kind, TYPED | {"pandas"}):
        table = base.column(name, [1, 2, 3, 4])
        yield Case(kind, form, "column of numbers as texts", table, Refused("column-type"))


# One value, and what it is as a score, a rank and a relevance: a reason or the number.
_NUMBERS: Sequence[tuple[Any, ...]] = (
    ("word as a number", "x", *["number"] * 3),
    ("underscore in a number", "1_0", *["number"] * 3),
    ("number in hexadecimal", "0x1", *["number"] * 3),
    ("number as text", "2", 2.0, 2, 2),
    ("whole number as a float", 2.0, 2.0, 2, 2),
    ("fraction", 1.5, 1.5, "number-fraction", "number-fraction"),
    ("NaN as a number", NAN, *["number"] * 3),
    ("infinity", INFINITY, *["number-range"] * 3),
    ("number that is too large", None, "number-range", "number-range", "number-range"),
    ("null as a number", None, *["null"] * 3),
    ("empty number", "", *["number"] * 3),
)
_TOO_LARGE = {"run": 1e39, "ranked": 2**63, "qrels": 10_001}
_NUMBER_TYPES = (
    *(pa.int64(), pa.uint8(), pa.float64(), pa.float32(), pa.float16(), pa.decimal128(5, 1)),
    *(pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.int64()), _WORDS),
)


def _numbers(kind: str) -> Iterator[Case]:
    if kind not in NUMBER:
        return
    base, name = TABLES[kind], NUMBER[kind]
    for fault, given, *meant in _NUMBERS:
        found = dict(zip(("run", "ranked", "qrels"), meant, strict=True))[kind]
        value = _TOO_LARGE[kind] if fault == "number that is too large" else given
        for form in FORMATS[kind]:
            if value is None and form not in VALUES | {"pandas"}:
                continue
            reason = found
            if value != value and form == "pandas":
                reason = "null"
            others = (
                _like(value, base.values(name)) if form in TYPED | FRAMES else base.values(name)
            )
            table = base.column(name, others).put(name, value)
            outcome: Outcome
            if value == "" and _splits_at_spaces(kind, form):
                outcome = _other_width(kind, form, -1)
            elif isinstance(reason, str):
                outcome = bad(kind, form, reason)
            else:
                outcome = Read(rows_of(kind, base.put(name, reason)))
            if form in TYPED and value == 2**63:
                table = base.column(name, [1, 2, value, 1], pa.uint64())
            yield Case(kind, form, fault, table, outcome)
    for arrow in _NUMBER_TYPES:
        for form in _each(kind, TYPED):
            values = _as_type(arrow, base.values(name))
            table = base.column(name, values, arrow)
            yield Case(kind, form, f"numbers of {arrow}", table, Read(rows_of(kind, base)))
    true = base.column(name, [True, False, True, True], pa.bool_())
    for form in _each(kind, JSON | TYPED | {"pandas"}):
        if kind == "qrels":
            levels = Read(rows_of(kind, base.column(name, [1, 0, 1, 1])))
            yield Case(kind, form, "booleans as relevance", true, levels)
        elif form not in JSON:
            yield Case(kind, form, "booleans as numbers", true, Refused("column-type"))


def _like(value: Any, others: Sequence[Any]) -> list[Any]:
    """The other values of a column, in the type of one."""
    return list(others) if value is None else [type(value)(other) for other in others]


def _as_type(kind: Any, values: Sequence[Any]) -> list[Any]:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_floating(inner):
        return [np.float16(v) if inner == pa.float16() else float(v) for v in values]
    if pa.types.is_integer(inner):
        return [int(v) for v in values]
    return [Decimal(int(v)) if pa.types.is_decimal(inner) else str(v) for v in values]


def _twice(kind: str) -> Iterator[Case]:
    base = TABLES[kind]
    before = base.rows[AT - 1]
    same = replace(base, rows=(*base.rows[:AT], before, *base.rows[AT + 1 :]))
    for form in FORMATS[kind]:
        other = same.put(base.names[-1], _another(kind))
        kept = rows_of(kind, same)
        apart = Read(rows_of(kind, other)) if kind in ("docs", "pairs") else None
        if kind in ("docs", "topics") and form in FRAMES:
            refused = Refused("doc-twice" if kind == "docs" else "query-twice", AT)
            yield Case(kind, form, "row twice", same, refused)
            yield Case(kind, form, "id twice", other, refused)
            continue
        once = Read(_without(kind, same, AT))
        if kind in ("docs", "pairs"):
            # Who joins them finds them.
            outcomes: tuple[Outcome, Outcome | None] = (Read(kept), apart)
        elif kind == "topics":
            outcomes = (bad(kind, form, "query-twice"), Refused("query-twice", AT))
        elif kind == "qrels":
            outcomes = (once, Refused("judged-twice", AT))
        elif kind == "excluded":
            outcomes = (once, None)
        else:
            outcomes = (Refused("doc-twice", AT), Refused("doc-twice", AT))
        yield Case(kind, form, "row twice", same, outcomes[0])
        if outcomes[1] is not None:
            yield Case(kind, form, "id twice", other, outcomes[1])


def _another(kind: str) -> Any:
    return {"run": 2.5, "ranked": 3, "qrels": 2}.get(kind, "Another text.")


def _insert(at: int, *lines: bytes) -> Callable[[Lines], Lines]:
    return lambda found: [*found[:at], *((None, each) for each in lines), *found[at:]]


def _swap(content: bytes, row: int = AT) -> Callable[[Lines], Lines]:
    return lambda found: [(n, content if n == row else line) for n, line in found]


def _change(change: Callable[[bytes], bytes]) -> Callable[[Lines], Lines]:
    return lambda found: [(n, change(line)) for n, line in found]


def _header_again(found: Lines) -> Lines:
    return [*found[:AT], found[0], *found[AT:]]


def _lines_cases(kind: str) -> Iterator[Case]:
    """Faults of lines and of whole files."""
    base = TABLES[kind]
    rows = Read(rows_of(kind, base))

    def line(
        fault: str, formats: frozenset[str], outcome: Any, change: Callable[[Lines], Lines]
    ) -> Iterator[Case]:
        for form in _each(kind, formats):
            found = outcome(kind, form) if callable(outcome) else outcome
            yield Case(kind, form, fault, base, found, change)

    text = BY_LINE
    yield from line("blank first line", text | JSON, rows, _insert(0, b""))
    yield from line("blank lines in the middle", text, rows, _insert(3, b"", b""))
    yield from line("blank last line", text | JSON, rows, lambda found: [*found, (None, b"")])
    yield from line("blank line below the header", frozenset({"tsv", "csv"}), rows, _insert(1, b""))
    yield from line(
        "blank lines with CR LF",
        text,
        rows,
        lambda found: _change(lambda each: each + b"\r")(_insert(3, b"")(found)),
    )
    yield from line("CR LF", text | JSON, rows, _change(lambda each: each + b"\r"))
    yield from line(
        "CR between JSON's members",
        frozenset({"jsonl"}),
        rows,
        _change(lambda each: each.replace(b", ", b",\r ")),
    )
    yield from line(
        "byte order mark",
        text | JSON | {"sgml"},
        rows,
        lambda found: [(found[0][0], b"\xef\xbb\xbf" + found[0][1]), *found[1:]],
    )
    yield from line(
        "header again", frozenset({"tsv", "csv", "spaces"}), Refused("header-again"), _header_again
    )
    yield from line(
        "header twice at the top",
        frozenset({"tsv", "csv", "spaces"}),
        Refused("header-again"),
        lambda found: [found[0], *found],
    )
    comment = _insert(3, b"# a comment of some words")
    if kind in BY_PAIR:
        yield from line("comment", DELIMITED, rows, comment)
        yield from line("comment first", DELIMITED, rows, _insert(0, b"# a comment"))
    else:
        yield from line("comment", DELIMITED, lambda k, f: bad(k, f, "columns", None), comment)
    yield from line(
        "comment in JSON", frozenset({"jsonl"}), lambda k, f: bad(k, f, "not-json", None), comment
    )
    yield from line(
        "not JSON", frozenset({"jsonl"}), lambda k, f: bad(k, f, "not-json"), _swap(b'{"id": ')
    )
    yield from line(
        "no object", frozenset({"jsonl"}), lambda k, f: bad(k, f, "not-object"), _swap(b"[1, 2]")
    )
    yield from line(
        "last line cut",
        frozenset({"jsonl"}),
        lambda k, f: bad(k, f, "not-json", LAST),
        lambda found: [*found[:-1], (LAST, found[-1][1][:-5])],
    )
    yield from line(
        "header missing", frozenset({"csv"}), Refused("header-missing"), lambda found: found[1:]
    )
    yield from line(
        "only a header",
        frozenset({"tsv", "csv", "spaces"}),
        Refused("no-rows"),
        lambda found: found[:1],
    )
    yield from line("semicolons", frozenset({"csv"}), Refused("separator"),
                    _change(lambda each: each.replace(b",", b";")))  # fmt: skip
    if kind != "pairs":
        yield from _of_other_programs(kind)
    for form in FORMATS[kind]:
        if form in FRAMES:
            continue
        tabular = form in _TABULAR
        nothing, cut = (lambda _: b""), (lambda content: content[:-20])
        empty = Refused("damaged" if tabular else "no-rows")
        yield Case(kind, form, "empty file", base, empty, content=nothing)
        yield Case(kind, form, "no file", base, Refused("no-file"), content=lambda _: None)
        if tabular or form == "json":
            damaged = Refused("damaged") if tabular else Refused("not-json", 0)
            yield Case(kind, form, "file cut short", base, damaged, content=cut)
        else:
            blank = Refused("no-rows")
            yield Case(kind, form, "only blank lines", base, blank, content=lambda _: b"\n\n\n")
            yield Case(kind, form, "gzip", base, Refused("packed"), content=gzip.compress)
        if not tabular:
            wide = Refused("packed")
            yield Case(kind, form, "UTF-16", base, wide, content=_utf16)
    for form in _each(kind, TYPED | {"pandas", "json"}):
        none = replace(base, rows=())
        yield Case(kind, form, "no rows", none, Refused("no-rows"))
    for form in _each(kind, TYPED):
        none = replace(base, rows=(), types=dict.fromkeys(base.names, pa.null()))
        yield Case(kind, form, "no rows of type null", none, Refused("no-rows"))
    more = replace(base, rows=_put(base.rows, (*base.rows[AT], "more")))
    fewer = replace(base, rows=_put(base.rows, base.rows[AT][:-1]))
    for form in _each(kind, DELIMITED):
        yield Case(kind, form, "too many columns", more, _other_width(kind, form, 1))
        few = _other_width(kind, form, -1)
        yield Case(kind, form, "too few columns", fewer, few)
    for form in _each(kind, JSON):
        yield Case(kind, form, "another field in a row", more, rows)
        yield Case(kind, form, "field missing in a row", fewer, bad(kind, form, "null"))
    if kind not in ("docs", "topics"):
        return
    for form in _each(kind, JSON):
        first = replace(base, rows=_put(base.rows, base.rows[0][:-1], 0))
        missing = bad(kind, form, "null", 0)
        yield Case(kind, form, "field missing in the first row", first, missing)


def _json_of(value: object) -> Callable[[bytes], bytes]:
    return lambda _: json.dumps(value).encode()


def _of_other_programs(kind: str) -> Iterator[Case]:
    """Files that are refused by what they are, not by their first row."""
    base = TABLES[kind]

    def whole(fault: str, formats: frozenset[str], reason: str,
              content: Callable[[bytes], bytes]) -> Iterator[Case]:  # fmt: skip
        for form in _each(kind, formats):
            yield Case(kind, form, fault, base, Refused(reason), content=content)

    columns = {
        name: dict(enumerate(values))
        for name, values in zip(base.names, zip(*base.rows, strict=True), strict=True)
    }
    rows = {str(n): dict(zip(base.names, row, strict=True)) for n, row in enumerate(base.rows)}
    for fault, table in (("pandas' JSON of columns", columns), ("pandas' JSON by index", rows)):
        yield from whole(fault, JSON, "column-objects", _json_of(table))
    pipes: Callable[[bytes], bytes] = lambda content: content.replace(b",", b"|")  # noqa: E731
    yield from whole("pipes", frozenset({"csv"}), "separator", pipes)
    quoted = "\t".join(f'"{name}"' for name in base.names).encode()
    yield from whole(
        "quotes around the names",
        frozenset({"tsv"}),
        "separator",
        lambda content: quoted + content[content.index(b"\n") :],
    )
    cr: Callable[[bytes], bytes] = lambda content: content.replace(b"\n", b"\r")  # noqa: E731
    yield from whole("CR as line ends", frozenset({"tsv", "csv"}), "lone-cr", cr)
    avro = b"Obj\x01\x04\x14avro.codec\x08null\x16avro.schema\xaa\x03{}\0\x9a,\xb3\x04"
    yield from whole("Avro", (DELIMITED | JSON | {"sgml"}) - {"csv"}, "binary", lambda _: avro)


def _put(rows: tuple[Row, ...], row: Row, at: int = AT) -> tuple[Row, ...]:
    return (*rows[:at], row, *rows[at + 1 :])


def _utf16(content: bytes) -> bytes:
    return content.decode().encode("utf-16")


_OTHER_NAMES = {
    "query_id": "qid",
    "doc_id": "docno",
    "id": "docid",
    "contents": "text",
    "text": "query",
    "relevance": "label",
}
_SECOND = {
    "docs": {"contents": "text"},
    "topics": {"query_id": "qid", "text": "query"},
    "run": {"query_id": "qid", "doc_id": "docno"},
    "ranked": {"doc_id": "pid"},
    "qrels": {"doc_id": "corpus-id", "relevance": "score"},
    "excluded": {"doc_id": "docno"},
}


def _names(kind: str) -> Iterator[Case]:
    """Faults of names, and other columns."""
    base = TABLES[kind]
    rows = Read(rows_of(kind, base))
    names = base.names

    def table(fault: str, changed: Table, outcome: Outcome, formats: frozenset[str] = NAMED,
              columns: Mapping[str, str] | None = None) -> Iterator[Case]:  # fmt: skip
        for form in _each(kind, formats):
            yield Case(kind, form, fault, changed, outcome, columns=columns or {})

    spaced = base.named({name: name.replace("_", " ") for name in names})
    yield from table("names in upper case", base.named({n: n.upper() for n in names}), rows)
    yield from table("byte order mark in a name", base.named({names[0]: f"\ufeff{names[0]}"}), rows)
    if spaced != base:
        hyphens = base.named({name: name.replace("_", "-") for name in names})
        yield from table("names with hyphens", hyphens, rows)
        yield from table("names with spaces", spaced, rows, NAMED - {"spaces"})
    words = ["en"] * 4
    extra = base.column("lang", words)
    yield from table("another column", extra, rows)
    first = Table((extra.names[-1], *names), tuple((r[-1], *r[:-1]) for r in extra.rows))
    yield from table("another column first", first, rows)
    again = replace(extra, names=(*names, names[0]))
    yield from table("column twice", again, Refused("column-twice"), NAMED - JSON)
    others = extra.column("more", words).named({"more": "lang"})
    # Scores have the other columns of pairs.
    passed = Refused("column-twice") if kind == "pairs" else rows
    yield from table("another column twice", others, passed, NAMED - JSON)
    late = base.column("valid_to", [2**62] * 4, pa.timestamp("us"))
    yield from table("time beyond Python's", late, rows, TYPED)
    infinite = base.column("valid_to", [datetime.max] * 4, pa.timestamp("us"))
    yield from table("last time of Python", infinite, rows, TYPED)
    broken = base.column("note", [BAD_BYTE] * 4)
    yield from table("bad UTF-8 in another column", broken, rows, TYPED)
    lists = base.column("vector", [[0.5], [1.5], [], [2.5]])
    yield from table("another column of lists", lists, rows, JSON | TYPED)
    nulls = base.column("note", [None] * 4, pa.null())
    yield from table("another column of nulls", nulls, rows, JSON | TYPED | {"pandas"})
    mixed = base.column("note", [1, "a", 2.5, None])
    yield from table("another column of mixed values", mixed, rows, JSON | {"pandas"})
    if kind == "run":
        ranks = base.column("rank", [None] * 4, pa.null())
        yield from table("ranks of type null", ranks, rows, JSON | TYPED)
        text = base.column("rank", [1.0, 2.0, 3.0, 1.0], pa.float64())
        yield from table("ranks as floats beside scores", text, rows)
        fused = base.column("rank", [1, 1, 1, 1])
        yield from table("ranks that disagree with scores", fused, rows)
    if kind == "pairs":
        return
    other = {name: _OTHER_NAMES[name] for name in names if name in _OTHER_NAMES}
    yield from table("other usual names", base.named(other), rows)
    for name, second in _SECOND[kind].items():
        double = base.column(second, base.values(name))
        fault = f"{second} beside {name}"
        yield from table(fault, double, Refused("column-several"))
        meaning = {"id": "doc_id", "contents": "text"}.get(name, name)
        # A corpus names its text in `fields`.
        if kind != "excluded" and meaning != "text":
            yield from table(f"{fault}, chosen", double, rows, NAMED - FRAMES, {meaning: name})
    if kind == "docs":
        later = base.named({"id": "docno"}).column("id", ["7", "8", "9", "10"])
        yield from table("id beside docno", later, rows)
        two = base.named({"id": "docno"}).column("docid", ["7", "8", "9", "10"])
        yield from table("docid beside docno", two, rows)
    if kind == "excluded":
        return
    foo = base.named({names[0]: "foo"})
    meaning = "doc_id" if kind == "docs" else "query_id"
    yield from table("name that is given", foo, rows, NAMED - FRAMES, {meaning: "foo"})
    absent = Refused("column-missing")
    yield from table("given name that is missing", base, absent, NAMED - FRAMES, {meaning: "foo"})
    # Two columns of text without a header are an id and a text.
    formats = VALUES | {"csv", "pandas"} | ({"tsv"} if kind in BY_PAIR else set())
    yield from table("id without a name", foo, absent, formats)
    yield from table("last column without a name", base.named({names[-1]: "foo"}), absent, formats)


def _titles() -> Iterator[Case]:
    """What the text of a doc is, and that of a topic."""
    ids = ("d1", "d2", "d3", "d4")
    titles = ("Bread", "Ferry", "", "Heat")

    def docs(fault: str, columns: Mapping[str, Sequence[Any]], found: Sequence[str] | str,
             formats: frozenset[str] = NAMED) -> Iterator[Case]:  # fmt: skip
        table = Table(("doc_id", *columns), tuple(zip(ids, *columns.values(), strict=True)))
        outcome = (
            Refused(found) if isinstance(found, str) else Read(tuple(zip(ids, found, strict=True)))
        )
        for form in _each("docs", formats):
            yield Case("docs", form, fault, table, outcome)

    titled = [f"{title} {text}".strip() for title, text in zip(titles, TEXTS, strict=True)]
    for name in ("text", "body", "passage", "segment"):
        columns = {"title": titles, name: TEXTS}
        yield from docs(f"title before {name}", columns, titled)
    for name in ("contents", "content"):
        yield from docs(f"title beside {name}", {"title": titles, name: TEXTS}, TEXTS)
    nulls = [None, *titles[1:]]
    yield from docs("null title", {"title": nulls, "text": TEXTS}, [TEXTS[0], *titled[1:]],
                    JSON | TYPED | {"pandas"})  # fmt: skip
    yield from docs("title alone", {"title": TEXTS}, TEXTS)
    yield from docs("title alone beside numbers", {"title": TEXTS, "year": [1, 2, 3, 4]}, TEXTS,
                    JSON | TYPED | {"pandas"})  # fmt: skip
    yield from docs("title and abstract", {"title": titles, "abstract": TEXTS}, "column-missing")
    yield from docs("text and body", {"text": TEXTS, "body": TEXTS}, "column-several")
    for names, found in (
        (("title", "query"), "query"),
        (("description", "title"), "title"),
        (("question", "answer"), "question"),
        (("query", "text"), "column-several"),
        (("question", "query_text"), "column-several"),
        (("description", "narrative"), "column-missing"),
    ):
        values = dict(zip(names, (TEXTS, TEXTS[::-1]), strict=True))
        table = Table(("query_id", *names), tuple(zip(ids, *values.values(), strict=True)))
        outcome = Read(tuple(zip(ids, values[found], strict=True))) if found in values else None
        for form in _each("topics", NAMED if outcome else NAMED - {"tsv"}):
            yield Case("topics", form, f"topics with {' and '.join(names)}", table,
                       outcome or Refused(found))  # fmt: skip


def _lists(kind: str) -> Iterator[Case]:
    """A list of docs is a ranking in MTEB's top_ranked alone."""
    for fault, names in (
        ("top_ranked", ("query-id", "corpus-ids")),
        ("list of docs", ("query_id", "doc_ids")),
        ("list under a usual name", ("query_id", "doc_id")),
        ("list beside other columns", ("query_id", "corpus-ids", "lang")),
    ):
        rows = ((f"q{n}", [f"d{n}", f"e{n}"], "en")[: len(names)] for n in (1, 2))
        table = Table(names, tuple(rows))
        outcome: Outcome = Refused("list-column")
        if fault == "top_ranked" and kind == "ranked":
            found = ((q, d, at) for q, docs in table.rows for at, d in enumerate(docs, 1))
            outcome = Read(tuple(found))
        for form in _each(kind, JSON | TYPED):
            yield Case(kind, form, fault, table, outcome)


@dataclass(frozen=True)
class Parts:
    """Files that are read as one.

    Attributes:
        fault: what is special about them.
        files: what is in each, by its path; bytes, or a table in the format of the path's ending.
        path: what the reader is given.
    """

    input: str
    fault: str
    files: Mapping[str, Table | bytes]
    path: str
    outcome: Outcome

    @property
    def form(self) -> str:
        return "glob" if "*" in self.path else "file" if "." in self.path else "folder"

    @property
    def id(self) -> str:
        return f"{self.input}-{self.form}-{self.fault}".replace(" ", "_")


def write_parts(parts: Parts) -> Source:
    """Writes the files into memory, where no others are left."""
    MemoryFileSystem.store.clear()
    for path, content in parts.files.items():
        if isinstance(content, Table):
            form = path.rpartition(".")[2]
            content = (
                _tabular(content, "parquet")
                if form not in (*DELIMITED, *JSON)
                else b"".join(line + b"\n" for _, line in _lines(parts.input, form, content))
            )
        _kept(f"/parts/{path}", content)
    return Source(f"memory://parts/{parts.path}")


def parts_cases() -> list[Parts]:
    """What is in a folder, or what a glob matches."""
    given = [*((kind, "x") for kind in TABLES), ("topics", "x/*"), ("qrels", "x/*")]
    return [
        *_partitions(),
        *_named_by_folders(),
        *chain.from_iterable(_parts(kind, path) for kind, path in given if kind != "ranked"),
    ]


def _parts(kind: str, given: str) -> Iterator[Parts]:
    base = TABLES[kind]
    rows = Read(rows_of(kind, base))
    start, end = replace(base, rows=base.rows[:2]), replace(base, rows=base.rows[2:])
    nothing = replace(base, rows=(), types=dict.fromkeys(base.names, pa.null()))

    def parts(name: str, files: Mapping[str, Table | bytes], found: Outcome = rows) -> Parts:
        inside = {f"x/{path}": content for path, content in files.items()}
        return Parts(kind, name, inside, given, found)

    yield parts("two parts", {"0.parquet": start, "1.parquet": end})
    yield parts("empty first part", {"0.parquet": nothing, "1.parquet": base})
    yield parts("empty last part", {"0.parquet": base, "1.parquet": nothing})
    turned = Table(end.names[::-1], tuple(row[::-1] for row in end.rows))
    yield parts("columns in another order", {"0.parquet": start, "1.parquet": turned})
    if kind != "pairs":
        yield parts("columns in another order in CSV", {"0.csv": start, "1.csv": turned})
    lacking = end.named({end.names[-1]: "foo"})
    absent = Refused("column-missing")
    yield parts("part without a column", {"0.parquet": start, "1.parquet": lacking}, absent)
    mixed = Refused("mixed-files")
    yield parts("Parquet and CSV", {"0.parquet": start, "1.csv": end}, mixed)
    yield parts("CSV and JSON", {"0.csv": start, "1.jsonl": end}, mixed)
    beside = {"README.md": b"# Words", "LICENSE": b"MIT", "dataset_info.json": b"{}"}
    beside |= {"state.json": b"{}", ".0.parquet.crc": b"1", "x.crc": b"1", "_SUCCESS": b""}
    yield parts("files beside", {"0.parquet": start, "1.parquet": end, **beside})
    yield parts("Parquet without an ending", {"part-0_0": start, "part-1_0": end})
    if kind in NUMBER:
        name = NUMBER[kind]
        whole = start.column(name, [int(v) for v in start.values(name)], pa.int64())
        float_ = end.column(name, [float(v) for v in end.values(name)], pa.float64())
        yield parts("integers and floats", {"0.parquet": whole, "1.parquet": float_})


def _partitions() -> Iterator[Parts]:
    """Folders that name the values of a column."""
    above = (("ranked", "score"), ("qrels", "label"), ("docs", "text"), ("topics", "query"))
    for kind, name in above:
        base = TABLES[kind]
        file = f"{name}=1/x.parquet"
        rows = Read(rows_of(kind, base))
        yield Parts(kind, f"{name} in the name of a folder above", {file: base}, file, rows)
    run = TABLES["run"]
    for kind, path in (("run", "x"), ("docs", "x"), ("pairs", "x"), ("qrels", "x/*/*")):
        base = TABLES[kind]
        start, end = replace(base, rows=base.rows[:2]), replace(base, rows=base.rows[2:])
        files = {"x/lang=de/0.parquet": start, "x/lang=en/0.parquet": end}
        yield Parts(kind, "partition of other columns", files, path, Read(rows_of(kind, base)))
    bare = Table(run.names[:2], tuple(row[:2] for row in run.rows))
    parts = {
        f"x/score={score}/0.parquet": replace(bare, rows=bare.rows[at : at + 1])
        for at, score in enumerate(run.values("score"))
    }
    yield Parts(
        *("run", "scores in the names of folders below", parts, "x"),
        Read((run.rows[-1], *run.rows[:-1])),
    )


def _named_by_folders() -> Iterator[Parts]:
    """Folders that name the value of a column that a row needs, above files of every format."""
    for kind in ("run", "qrels"):
        base = replace(TABLES[kind], rows=TABLES[kind].rows[:3])
        lacking = Table(base.names[1:], tuple(row[1:] for row in base.rows))
        rows = Read(rows_of(kind, base))
        for form in ("parquet", "csv", "tsv", "jsonl"):
            for fault, folder, table, outcome in (
                ("column in the name of a folder", "query_id=q1", lacking, rows),
                ("column in a folder and the same in the file", "query_id=q1", base, rows),
                ("column in a folder by another name", "qid=q1", base, rows),
                ("column in a folder and another value", "query_id=q9", base,
                 Refused("column-twice")),
                ("another column and another value", "qid=q9", base, Refused("column-several")),
            ):  # fmt: skip
                files = {f"x/{folder}/0.{form}": table}
                yield Parts(kind, f"{fault}, {form}", files, "x", outcome)
