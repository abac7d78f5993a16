"""Frames: tables of pandas, polars, Arrow and any library that exports Arrow's PyCapsule stream, in
and out.

Columns are found by the names that those of files can have. Rows count from 0, as these libraries
count them.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.errors import DataError, PreflightError
from beamrank.formats.checks import id_of, joined, text_of
from beamrank.formats.columns import Names, find_texts
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.formats.run_order import Run, Ties
from beamrank.formats.runs import read_run
from beamrank.formats.schemas import QRELS, RUN, Schema, bind
from beamrank.formats.texts.parquet import column_values, holds_texts
from beamrank.formats.values import RowError
from beamrank.join.schemas import candidates_table

_ROWS_AT_ONCE = 1 << 16
_Read = TypeVar("_Read")


@runtime_checkable
class Frame(Protocol):
    """A table that exports Arrow: of pandas, polars, pyarrow, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table as a PyCapsule of an Arrow stream."""


def run_of_frame(frame: Frame, *, ties: Ties = "doc_id") -> Run:
    """A run in its order, as `read_run` gives it.

    Raises:
        DataError: a column is missing, a value cannot be used, or a query has a doc twice.
    """
    return _read(read_run, "the run", RUN, frame, ties=ties)


def qrels_of_frame(frame: Frame) -> Qrels:
    """Judgments; one that is there again counts once. Raises DataError as `run_of_frame`."""
    return _read(read_qrels, "the qrels", QRELS, frame)


def _read(
    read: Callable[..., _Read], what: str, schema: Schema, frame: Frame, **options: Any
) -> _Read:
    try:
        return read(_arrow(what, _wanted(frame, schema)), **options)
    except PreflightError as error:
        raise DataError(str(error), **error.of_input) from error


def _wanted(frame: Any, schema: Schema) -> Any:
    """The columns of a frame that are read: others need not be what Arrow can hold."""
    names = None if isinstance(frame, pa.Table) else getattr(frame, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return frame
    binding = bind(schema, list(names))
    # What is missing is said of all columns.
    if not schema.is_complete(binding):
        return frame
    try:
        return frame[[names[at] for places in binding.values() for at in places]]
    except TypeError:  # DuckDB's relations have no selection by names, and hold what Arrow can
        return frame


def texts_of(
    what: str, meaning: str, frame: Frame, only: Collection[str] | None = None
) -> dict[str, str]:
    """The text of each topic or doc by its id; a doc's text begins with its title, if there is one.

    `what` names the frame in messages, `meaning` is that of the id: `query_id` or `doc_id`. With
    `only`, the texts of other ids are not looked at.

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
    columns = [
        rows.texts(at, or_empty=titled and number == 0) for number, at in enumerate(header.texts)
    ]
    texts: dict[str, str] = {}
    for row, (identifier, *parts) in enumerate(
        zip(rows.ids(header.identifier), *columns, strict=True)
    ):
        if identifier in texts:
            raise rows.error(
                row, f"has the {meaning} {identifier!r}, which a row before has too: remove one"
            )
        texts[identifier] = joined(parts)
    return texts


def columns_of(what: str, frame: Frame, names: Sequence[str]) -> list[list[str]]:
    """The texts in some columns; raises DataError where one is missing or of another type, or a
    value is null.
    """
    rows = _Rows.of(what, frame)
    missing = next((name for name in names if name not in rows.names), None)
    if missing is not None:
        raise rows.lacks(missing)
    return [rows.texts(rows.names.index(name)) for name in names]


def run_like(frame: Frame, run: Mapping[str, Mapping[str, float]]) -> Any:
    """A run as a frame with the columns query_id, doc_id, rank and score.

    It has the class of a frame if that class or its package has `from_arrow`, as in pandas 3 and
    polars; else it is an Arrow table.
    """
    docs = run.values()
    table = candidates_table(
        list(run), list(map(list, docs)), [list(each.values()) for each in docs]
    )
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
        """Raises DataError where Arrow cannot read it, or a column is there twice."""
        rows = cls(what, _arrow(what, frame))
        twice = next((name for name in rows.names if rows.names.count(name) > 1), None)
        if twice is not None:
            raise DataError(
                f"the table of {what} has more than one column `{twice}`: give each its own name"
            )
        return rows

    @property
    def names(self) -> list[str]:
        return list(self.table.schema.names)

    def lacks(self, column: str) -> DataError:
        names = ", ".join(self.names)
        return DataError(
            f"the table of {self.what} has no column `{column}`; it has: {names}. Rename its "
            "columns"
        )

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

    def _values(
        self, at: int, wanted: str, fits: Callable[[Any], bool], or_null: bool = False
    ) -> Iterator[Any]:
        column, name = self.table.column(at), self.names[at]
        if pa.types.is_string_view(column.type):  # these cannot be taken
            column = column.cast(pa.large_string())
        column = column if self.places is None else column.take(pa.array(self.places))
        if column.null_count and not or_null:
            row = pc.index(column.is_null(), True).as_py()
            raise self.error(
                row, f"has no value in the column `{name}`: give it one, or remove the row"
            )
        if column.null_count < len(column) and not fits(column.type):
            raise DataError(
                f"the column `{name}` of {self.what} is of type {column.type}: it must hold "
                f"{wanted}"
            )
        for chunk in column.chunks:
            for start in range(0, len(chunk), _ROWS_AT_ONCE):
                some = chunk.slice(start, _ROWS_AT_ONCE)
                yield from column_values(some)


def _arrow(what: str, frame: Frame) -> pa.Table:
    try:
        return pa.table(frame)
    except (TypeError, pa.ArrowException) as error:
        raise DataError(
            f"the table of {what} is a {type(frame).__name__} that Arrow cannot read: {error}"
        ) from error
