"""Pairs and triples of texts in tables, for `beamrank score`: columns id, query and doc, or doc_i
and doc_j.

Columns can be renamed (`{query: question}`); all others are passed through to the scores.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.errors import DataError, PreflightError
from beamrank.formats.decode.base import FolderColumns, Rows, ignore
from beamrank.formats.decode.tables import TableDecoder, is_table, open_table_file
from beamrank.formats.files import InputFile, input_files
from beamrank.formats.reader import TableReader
from beamrank.formats.rejects import beginning
from beamrank.formats.schemas import Column, ColumnsError, Hints, Schema, bind
from beamrank.formats.values import (
    Id,
    Kind,
    RowError,
    Text,
    holds_texts,
    plain_type,
    values_of,
)
from beamrank.ranking.input_layout import INPUT_TEXTS
from beamrank.records import BadRow
from beamrank.storage.digested import DigestedFile, RowRange
from beamrank.storage.streams import errors_as

PairKind = Literal["mono", "duo"]

ID, SCORE = "id", "score"
_NAMED = {"mono": "pairs", "duo": "triples"}


@dataclass(frozen=True)
class PairsFile:
    """A file of pairs or triples.

    Attributes:
        url: the file.
        rows: how many it has.
        kind: of the model that can score it, `mono` or `duo`.
        id_type: the type of its ids: string or an integer type; null if none has a value.
        passed: the Arrow schema of the other columns, which the scores have too.
    """

    url: str
    rows: int
    kind: PairKind
    id_type: Any
    passed: Any


class PairRows(NamedTuple):
    """Some rows of a file.

    Attributes:
        ids: string[n] or an integer type; null where a row has none.
        usable: bool[n], whether a row can be scored.
        texts: a column each; only the rows that can be scored.
        bad: the other rows.
        passed: a table of n rows of the other columns.
    """

    ids: pa.Array
    usable: npt.NDArray[np.bool_]
    texts: list[list[str]]
    bad: list[BadRow]
    passed: pa.Table


def _check_query(text: str) -> None:
    if not text.strip():
        raise RowError("has a query without text", "topic-empty")


def _schema(kind: PairKind, id_type: pa.DataType) -> Schema:
    columns = {ID: Column(((ID,),), Id(str, id_type))}
    for name in INPUT_TEXTS[kind]:
        check = _check_query if name == "query" else None
        columns[name] = Column(((name,),), Text(check=check))
    return Schema(f"file of {_NAMED[kind]}", columns, (tuple(columns),))


def find_pairs(
    paths: Sequence[str], renamed: Mapping[str, str] = MappingProxyType({})
) -> list[PairsFile]:
    """The files that some paths, folders or globs name, in this order; the files of a folder or a
    glob sorted by name.

    `renamed` are the names in the files of columns that get other names, by these. A file without
    rows has the columns of the others, and a column without values any type.

    Raises:
        PreflightError: there are none, they are no tables, lack columns, do not agree, or hold no
            rows.
    """
    files = [file for path in paths for file in input_files(path, "file of pairs")]
    twice = next((url for url, n in Counter(file.url for file in files).items() if n > 1), None)
    if twice is not None:
        raise PreflightError(
            f"the file {twice} is named twice, so its pairs would be scored twice: name it once"
        )
    pairs = [_opened(file, renamed) for file in files]
    filled = [file for file in pairs if file.rows]
    if not filled:
        raise PreflightError(
            f"{', '.join(paths)} holds no rows: there is nothing to score", kind="no-rows"
        )
    agreed = filled[0]
    for file in filled[1:]:
        agreed = _agreed(agreed, file)
    id_type = pa.string() if pa.types.is_null(agreed.id_type) else agreed.id_type
    return [replace(agreed, url=file.url, rows=file.rows, id_type=id_type) for file in pairs]


def _agreed(first: PairsFile, file: PairsFile) -> PairsFile:
    """The columns that two files have in common; raises PreflightError where they do not agree."""
    schemas = [pa.schema([(ID, one.id_type), *one.passed]) for one in (first, file)]
    missing = sorted({*schemas[0].names} ^ {*schemas[1].names})
    reason = f"only one of them has the column `{missing[0]}`" if missing else ""
    if file.kind != first.kind:
        reason = f"they hold {_NAMED[file.kind]} and {_NAMED[first.kind]}"
    try:
        # A column without values fits any type.
        both = pa.unify_schemas(schemas)
    except pa.ArrowException as error:
        reason = reason or str(error)
    if reason:
        raise PreflightError(
            f"{file.url} and {first.url} do not agree: {reason}. Scores have the same columns for "
            "all files: score them into two outputs"
        )
    return replace(first, id_type=both.field(0).type, passed=both.remove(0))


class _Pairs(TableReader):
    """The rows of a table.

    Attributes:
        rejected: the rows that cannot be used, by their numbers from 0.
        passed: the places of the other columns, by the names that they get.
    """

    decoder: TableDecoder

    def __init__(self, file: InputFile, schema: Schema, renamed: Mapping[str, str]) -> None:
        self.rejected: dict[int, BadRow] = {}
        super().__init__(file, schema, Hints(renamed))
        new = {column: name for name, column in renamed.items()}
        read = set(self.places)
        self.passed = [
            (new.get(name, name), at) for at, name in enumerate(self.table.names) if at not in read
        ]

    @property
    def places(self) -> tuple[int, ...]:
        """The columns that are read."""
        return tuple(at for (at,) in self.binding.values())

    def bad(self, place: int, error: RowError, row: Any = "") -> None:
        where = f"{self.url} at row {place}"
        bad = BadRow(where, f"the row {error}", beginning(row), error.kind)
        self.rejected[int(place) - 1] = bad

    def ids(self, column: Any) -> pa.Array:
        """The ids of all rows; null where one cannot be used."""
        kind = self.schema.columns[ID].kind
        try:
            return kind.array(column)
        except (ValueError, pa.ArrowException):
            return pa.array([_or_none(kind, value) for value in values_of(column)], kind.stored)

    def texts(self, rows: Rows) -> list[list[str]]:
        """A column of texts each, of the rows that can be used."""
        batch = self._converted(rows)
        return [column.to_pylist() for column in batch.columns[1:-1]]


def _or_none(kind: Kind, value: Any) -> Any:
    try:
        return kind.value(ID, value)
    except RowError:
        return None


def _opened(file: InputFile, renamed: Mapping[str, str]) -> PairsFile:
    """A file, whose columns are checked."""
    url = file.url
    with errors_as(PreflightError, url):
        if not is_table(url, file.beginning()):
            raise PreflightError(
                f"{url} is no table: pairs are read from Parquet and Arrow files. Write one, as "
                "pandas, polars and DuckDB do",
                kind="format-unknown",
                file=url,
            )
        decoder = _table(file)
        *_, rows = _decoder(file).starts()
    if not rows:
        return PairsFile(url, 0, "mono", pa.null(), pa.schema([]))
    missing = next((column for column in renamed.values() if column not in decoder.names), None)
    if missing is not None:
        raise PreflightError(
            f"{url} has no column `{missing}`, which `--columns` names; it has: "
            f"{', '.join(decoder.names)}",
            kind="column-missing",
            file=url,
        )
    kind = _kind(url, decoder.names, renamed)
    pairs = _Pairs(file, _schema(kind, pa.string()), renamed)
    names = [*pairs.binding, *(name for name, _ in pairs.passed)]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise PreflightError(
            f"{url} has more than one column `{twice}`: give each its own name with `--columns`",
            kind="column-twice",
            file=url,
        )
    if SCORE in names:
        column = decoder.names[dict(pairs.passed)[SCORE]]
        raise PreflightError(
            f"{url} has a column `{SCORE}`, which is the name of the scores: rename it with "
            f"`--columns first_{SCORE}={column}`"
        )
    types = decoder.types
    passed = pa.schema([(name, _plain(types[at])) for name, at in pairs.passed])
    return PairsFile(url, rows, kind, _id_type(types[pairs.places[0]]), passed)


def _decoder(file: InputFile) -> TableDecoder:
    return open_table_file(file.url, file.beginning())


def _table(file: InputFile) -> FolderColumns:
    decoder = _decoder(file)
    folders = {k: value for k, value in file.partition.items() if k not in decoder.names}
    return FolderColumns(decoder, folders)


def _kind(url: str, names: Sequence[str], renamed: Mapping[str, str]) -> PairKind:
    schemas = {kind: _schema(kind, pa.string()) for kind in INPUT_TEXTS}
    try:
        kinds = [
            kind
            for kind, schema in schemas.items()
            if schema.is_complete(bind(schema, names, Hints(renamed)))
        ]
    except ColumnsError as error:
        raise error.of(url) from error
    if len(kinds) > 1:
        raise PreflightError(
            f"{url} has the columns of pairs and of triples: keep `doc`, or `doc_i` and `doc_j`",
            kind="column-several",
            file=url,
        )
    if not kinds:
        raise PreflightError(
            f"{url} needs the columns `id`, `query` and `doc` (pairs), or `id`, `query`, `doc_i` "
            f"and `doc_j` (triples), and it has: {', '.join(names)}. Rename its columns, as with "
            "`--columns query=question,doc=passage`",
            kind="column-missing",
            file=url,
        )
    return kinds[0]


def _plain(kind: Any) -> Any:
    """The type of a column's values: of texts that an encoding repeats or that can be longer,
    string.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    return pa.string() if types.is_large_string(kind) or types.is_string_view(kind) else kind


def _id_type(kind: Any) -> Any:
    """The type of the ids as they are written; numbers that are no integers become int64."""
    kind = plain_type(kind)
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return kind
    return pa.string() if holds_texts(kind) else pa.int64()


def read_pairs(
    rows: RowRange,
    kind: PairKind,
    id_type: Any,
    renamed: Mapping[str, str] = MappingProxyType({}),
    passed: Sequence[tuple[str, str]] = (),
) -> PairRows:
    """Reads some rows of a file; `PairsFile` has the `id_type`, and the names and types of the
    columns that are `passed`.

    Raises:
        DataError: the file cannot be read, or is not, or no longer, the one that was digested.
    """
    columns_by_name = {name: renamed.get(name, name) for name, _ in passed}
    with rows.file.unchanged(), errors_as(DataError, rows.file.url):
        root, starts = _located(rows.file, tuple(columns_by_name.values()))
        try:
            pairs = _Pairs(InputFile(rows.file.url, root), _schema(kind, id_type), renamed)
        except PreflightError as error:
            raise DataError(str(error), **error.of_input) from error
        groups = [
            group
            for group, (start, end) in enumerate(pairwise(starts))
            if start < rows.end and end > rows.start
        ]
        ids, texts = [], [list[str]() for _ in INPUT_TEXTS[kind]]
        for group in groups:
            for block in _some(_group(rows.file, root, group, pairs.places), rows):
                ids.append(pairs.ids(block.columns[pairs.places[0]]))
                for column, more in zip(texts, pairs.texts(block), strict=True):
                    column += more
        places = dict(pairs.passed)
        wanted = {places[name]: pa.string() for name in columns_by_name}
        others = (
            pairs.table.rows(groups[0], groups[-1] + 1, wanted, pairs.bad)
            if columns_by_name
            else ()
        )
        kept = list(_some(others, rows))
        columns = {
            name: pa.chunked_array([_as_planned(block.columns[places[name]], of) for block in kept])
            for name, of in passed
        }
    usable = np.ones(rows.end - rows.start, np.bool_)
    usable[[row - rows.start for row in pairs.rejected]] = False
    bad = [bad for _, bad in sorted(pairs.rejected.items())]
    return PairRows(pa.chunked_array(ids).combine_chunks(), usable, texts, bad, pa.table(columns))


def _as_planned(column: Any, planned: str) -> Any:
    """A column with the type of its values, or where it has none the type in other files."""
    if pa.types.is_null(column.type):
        return column.cast(pa.type_for_alias(planned))
    return column.cast(_plain(column.type))


def _some(blocks: Iterable[Rows], wanted: RowRange) -> Iterator[Rows]:
    """The part of some rows that is in a range."""
    for rows in blocks:
        row = int(rows.places[0]) - 1 if len(rows.places) else 0
        start, end = max(wanted.start - row, 0), min(wanted.end - row, len(rows.places))
        if start < end:
            columns = {at: column.slice(start, end - start) for at, column in rows.columns.items()}
            yield Rows(columns, rows.places[start:end])


@lru_cache(maxsize=8)
def _located(file: DigestedFile, names: tuple[str, ...]) -> tuple[str, list[int]]:
    """The folder below which folders name some columns of a file; and the first row of each row
    group with, last, the number of rows.
    """
    decoder = _decoder(InputFile(file.url))
    folders = [f"/{quote(name)}=" for name in names if name not in decoder.names]
    root = file.url[: min(map(file.url.rfind, folders))] if folders else ""
    return root, decoder.starts()


@lru_cache(maxsize=1)
def _group(file: DigestedFile, root: str, group: int, columns: tuple[int, ...]) -> list[Rows]:
    """A row group; the shards of a large one share what was read."""
    decoder = _table(InputFile(file.url, root))
    return list(decoder.rows(group, group + 1, dict.fromkeys(columns, pa.string()), ignore))
