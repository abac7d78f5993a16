"""Frames: tables of pandas, polars, Arrow and any library that exports Arrow's PyCapsule stream, in and out.

Columns are found by the names that those of files can have. Rows count from 0, as these libraries count them.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.errors import DataError
from beamrank.formats.checks import RowError, id_of, joined, text_of
from beamrank.formats.columns import Names, find_columns, find_texts
from beamrank.formats.texts.parquet import column_values, holds_texts
from beamrank.join.schemas import candidates_table

_ROWS_AT_ONCE = 1 << 16


@runtime_checkable
class Frame(Protocol):
    """A table that exports Arrow: of pandas, polars, pyarrow, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table as a PyCapsule of an Arrow stream."""


def scores_of(frame: Frame) -> dict[str, dict[str, float]]:
    """The scores of a run, {query_id: {doc_id: score}}, docs in the order of ties: by rank, or else doc_id, descending.

    Without scores, a score is minus the rank.

    Raises:
        DataError: a column is missing or of another type, a value is null, or a query has a doc twice.
    """
    rows = _Rows.of("the run", frame)
    at = rows.find("query_id", "doc_id", "score or rank")
    ranks = rows.numbers(at["rank"]) if "rank" in at else range(len(rows.table))
    rows = rows._replace(places=np.argsort(np.array(ranks), kind="stable"))
    scores = rows.numbers(at["score"]) if "score" in at else [-float(each) for each in sorted(ranks)]
    found = rows.by_query(at, scores)
    return found if "rank" in at else {each: dict(sorted(docs.items(), reverse=True)) for each, docs in found.items()}


def relevance_of(frame: Frame) -> dict[str, dict[str, int]]:
    """The judgments of qrels, {query_id: {doc_id: relevance}}; one that is there again counts once.

    Raises:
        DataError: as in `scores_of`.
    """
    rows = _Rows.of("the qrels", frame)
    at = rows.find("query_id", "doc_id", "relevance")
    return rows.by_query(at, rows.numbers(at["relevance"]), repeats=True)


def texts_of(what: str, meaning: str, frame: Frame, only: Collection[str] | None = None) -> dict[str, str]:
    """The text of each topic or doc by its id; a doc's text begins with its title, if there is one.

    Args:
        what: names the frame in messages.
        meaning: of the id: `query_id` or `doc_id`.
        frame: the topics or docs.
        only: the ids of those that are read; the texts of others are not looked at.

    Raises:
        DataError: a column is missing or of another type, a value is null, or an id is there twice.
    """
    rows = _Rows.of(what, frame)
    try:
        header = find_texts(rows.names, Names(meaning, {}))
    except RowError as error:
        raise DataError(f"the table of {what} {error}") from error
    if header is None:
        raise rows.lacks(f"{meaning}` and `text")
    if only is not None:
        found = [row for row, each in enumerate(rows.ids(header.identifier)) if each in only]
        rows = rows._replace(places=np.array(found, np.int64))
    titled = len(header.texts) > 1
    columns = [rows.texts(at, or_empty=titled and number == 0) for number, at in enumerate(header.texts)]
    texts: dict[str, str] = {}
    for row, (identifier, *parts) in enumerate(zip(rows.ids(header.identifier), *columns, strict=True)):
        if identifier in texts:
            raise rows.error(row, f"has the {meaning} {identifier!r}, which a row before has too: remove one")
        texts[identifier] = joined(parts)
    return texts


def columns_of(what: str, frame: Frame, names: Sequence[str]) -> list[list[str]]:
    """The texts in some columns.

    Raises:
        DataError: a column is missing or of another type, or a value is null.
    """
    rows = _Rows.of(what, frame)
    missing = next((name for name in names if name not in rows.names), None)
    if missing is not None:
        raise rows.lacks(missing)
    return [rows.texts(rows.names.index(name)) for name in names]


def run_like(frame: Frame, run: Mapping[str, Mapping[str, float]]) -> Any:
    """A run as a frame with the columns query_id, doc_id, rank and score.

    It has the class of a frame if that class or its package has `from_arrow`, as in pandas 3 and polars; else it is an
    Arrow table.
    """
    docs = run.values()
    table = candidates_table(list(run), list(map(list, docs)), [list(each.values()) for each in docs])
    package = sys.modules[type(frame).__module__.partition(".")[0]]
    from_arrow = getattr(type(frame), "from_arrow", None) or getattr(package, "from_arrow", None)
    return table if from_arrow is None else from_arrow(table)


class _Rows(NamedTuple):
    """Rows of a frame.

    Attributes:
        what: names the frame in messages.
        table: the frame.
        places: int64[n], where they are in it; None for all.
    """

    what: str
    table: Any
    places: Any = None

    @classmethod
    def of(cls, what: str, frame: Frame) -> "_Rows":
        try:
            table = pa.table(frame)
        except (TypeError, pa.ArrowException) as error:
            raise DataError(
                f"the table of {what} is a {type(frame).__name__} that Arrow cannot read: {error}"
            ) from error
        twice = next((name for name in table.schema.names if table.schema.names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"the table of {what} has more than one column `{twice}`: give each its own name")
        return cls(what, table)

    @property
    def names(self) -> list[str]:
        return list(self.table.schema.names)

    def find(self, *meanings: str) -> dict[str, int]:
        """The columns that have some meanings, of which `A or B` needs one."""
        names = [name for meaning in meanings for name in meaning.split(" or ")]
        try:
            found = find_columns(self.names, names, {})
        except RowError as error:
            raise DataError(f"the table of {self.what} {error}") from error
        for meaning in meanings:
            if found.keys().isdisjoint(meaning.split(" or ")):
                raise self.lacks(meaning.replace(" or ", "` or `"))
        return found

    def lacks(self, column: str) -> DataError:
        names = ", ".join(self.names)
        return DataError(f"the table of {self.what} has no column `{column}`; it has: {names}. Rename its columns")

    def error(self, row: int, reason: str) -> DataError:
        place = row if self.places is None else self.places[row]
        return DataError(f"{self.what}: row {place} (from 0) {reason}")

    def ids(self, at: int) -> Iterator[str]:
        """The ids in a column: strings, or integers as their decimal digits."""
        fits = partial(holds_texts, number=True)
        for row, each in enumerate(self._values(at, "strings or integers", fits)):
            try:
                yield id_of(each)
            except RowError as error:
                raise self.error(row, f"{error}, in the column `{self.names[at]}`") from error

    def texts(self, at: int, or_empty: bool = False) -> list[str]:
        """The texts in a column; with `or_empty` a null is an empty one."""
        found = []
        for row, each in enumerate(self._values(at, "strings", holds_texts, or_empty)):
            try:
                found.append("" if each is None else text_of(self.names[at], each))
            except RowError as error:
                raise self.error(row, str(error)) from error
        return found

    def numbers(self, at: int) -> list[Any]:
        """The numbers in a column."""
        types = pa.types
        tests = (types.is_integer, types.is_floating, types.is_decimal)
        return list(self._values(at, "numbers", lambda kind: any(test(kind) for test in tests)))

    def _values(self, at: int, wanted: str, fits: Callable[[Any], bool], or_null: bool = False) -> Iterator[Any]:
        column, name = self.table.column(at), self.names[at]
        if pa.types.is_string_view(column.type):  # these cannot be taken
            column = column.cast(pa.large_string())
        column = column if self.places is None else column.take(pa.array(self.places))
        if column.null_count and not or_null:
            row = pc.index(column.is_null(), True).as_py()
            raise self.error(row, f"has no value in the column `{name}`: give it one, or remove the row")
        if column.null_count < len(column) and not fits(column.type):
            raise DataError(f"the column `{name}` of {self.what} is of type {column.type}: it must hold {wanted}")
        for chunk in column.chunks:
            for start in range(0, len(chunk), _ROWS_AT_ONCE):
                some = chunk.slice(start, _ROWS_AT_ONCE)
                yield from some.to_pylist() if wanted == "numbers" else column_values(some)

    def by_query(
        self, at: Mapping[str, int], values: Sequence[Any], repeats: bool = False
    ) -> dict[str, dict[str, Any]]:
        """{query_id: {doc_id: value}}; a doc is there once for a query, or with `repeats` again with the same value."""
        found: dict[str, dict[str, Any]] = {}
        rows = zip(self.ids(at["query_id"]), self.ids(at["doc_id"]), values, strict=True)
        for row, (query_id, doc_id, value) in enumerate(rows):
            docs = found.setdefault(query_id, {})
            if doc_id in docs and not (repeats and docs[doc_id] == value):
                before = f" with {docs[doc_id]}, and here {value}" if repeats else ""
                raise self.error(
                    row, f"has doc {doc_id!r} of query {query_id!r}, which a row before has{before}: remove one"
                )
            docs[doc_id] = value
        return found
