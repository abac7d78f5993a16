"""Frames: tables of pandas, polars, Arrow and any library that exports Arrow's PyCapsule stream, in
and out.

Columns are found by the names that files' columns can have. Rows count from 0, as these libraries
count them.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from beamrank.commit.schemas import candidates_table
from beamrank.errors import DataError, PreflightError
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.formats.reader import TableReader
from beamrank.formats.run_order import Run, Ties
from beamrank.formats.runs import read_run
from beamrank.formats.schemas import DOCS, QRELS, RUN, TOPICS, Column, ColumnsError, Schema, bind
from beamrank.formats.values import RowError, Text, whole_of

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
    with _as_data_error():
        return read(_arrow(what, _wanted(frame, schema)), **options)


def _wanted(frame: Any, schema: Schema) -> Any:
    """The columns of a frame that are read: others need not be what Arrow can hold."""
    names = None if isinstance(frame, pa.Table) else getattr(frame, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return frame
    try:
        binding = bind(schema, list(names))
    except ColumnsError as error:
        raise error.of(f"the table of the {schema.what.removeprefix('file of ')}") from error
    # The error names all columns that are missing.
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

    `what` names the frame in messages, `meaning` is the id's: `query_id` or `doc_id`. With `only`,
    the texts of other ids are not looked at.

    Raises:
        DataError: a column is missing or of another type, a value is null, or an id is there twice.
    """
    schema = DOCS if meaning == "doc_id" else TOPICS
    texts: dict[str, str] = {}
    with _as_data_error():
        rows = _Texts(_arrow(what, _wanted(frame, schema)), schema, only)
        table = rows.read_all()
        columns = (table[name].to_pylist() for name in (meaning, "text", "place"))
        for identifier, text, place in zip(*columns, strict=True):
            rows.add(texts, identifier, text, place)
        rows.check(len(table))
    return texts


class _Texts(TableReader):
    """The texts of docs or topics, of some ids only."""

    def __init__(self, table: pa.Table, schema: Schema, only: Collection[str] | None) -> None:
        super().__init__(table, schema)
        self._only = only

    def bad(self, place: int, error: RowError, row: Any = "") -> None:
        if self._only is None or str(whole_of(row[0])) in self._only:
            super().bad(place, error, row)

    def add(self, texts: dict[str, str], identifier: str, text: str, place: int) -> None:
        """Adds the text of an id; one that is there before is a row that cannot be used."""
        if self._only is not None and identifier not in self._only:
            return
        if identifier in texts:
            kind = "doc-twice" if self.schema is DOCS else "query-twice"
            reason = f"has the id {identifier!r}, which a row before has too: remove one"
            self.bad(place, RowError(reason, kind), [identifier])
        texts.setdefault(identifier, text)


def columns_of(what: str, frame: Frame, names: Sequence[str]) -> list[list[str]]:
    """The texts in some columns; raises DataError where one is missing or of another type, or a
    value is null.
    """
    named = what.removeprefix("the ")
    schema = Schema(named, {name: Column(((name,),), Text()) for name in names}, (tuple(names),))
    with _as_data_error():
        rows = TableReader(_arrow(what, _wanted(frame, schema)), schema)
        table = rows.read_all()
        rows.check()
    return [table[name].to_pylist() for name in names]


def run_like(frame: Frame, run: Mapping[str, Mapping[str, float]]) -> Any:
    """A run as a frame with the columns query_id, doc_id, rank and score.

    It has the class of a frame if that class or its package makes one of an Arrow table, as pandas
    3 and polars do; else it is an Arrow table.
    """
    docs = run.values()
    table = candidates_table(
        list(run), list(map(list, docs)), [list(scores.values()) for scores in docs]
    )
    package = sys.modules[type(frame).__module__.partition(".")[0]]
    from_arrow = getattr(type(frame), "from_arrow", None) or getattr(package, "from_arrow", None)
    try:
        return table if from_arrow is None else from_arrow(table)
    except Exception:  # narwhals needs more; what was scored must not be lost
        return table


@contextmanager
def _as_data_error() -> Iterator[None]:
    try:
        yield
    except PreflightError as error:
        raise DataError(str(error), **error.of_input) from error


def _arrow(what: str, frame: Frame) -> pa.Table:
    try:
        return pa.table(frame)
    except (TypeError, pa.ArrowException) as error:
        reason = f"{error}"
        if not hasattr(frame, "columns"):
            reason = "it has no columns. Give a frame, as `.reset_index()` makes one of a Series"
        raise DataError(
            f"the table of {what} is a {type(frame).__name__} that Arrow cannot read: {reason}",
            kind="frame-unreadable",
        ) from error
