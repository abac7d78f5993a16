"""Pairs and triples of texts in Parquet files, for `beamrank score`: columns id, query and doc, or doc_i and doc_j."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate, compress, pairwise
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.errors import PreflightError
from beamrank.formats.checks import RowError, text_of
from beamrank.formats.texts.parquet import ENDINGS, check_text_type, column_values, open_parquet
from beamrank.records import BadRow
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile, RowRange
from beamrank.storage.globs import NOT_DATA, find
from beamrank.storage.streams import errors_as, has_ending

PairKind = Literal["mono", "duo"]

ID = "id"
# The columns of texts, by the kind of model that scores them.
TEXTS: Mapping[PairKind, tuple[str, ...]] = {"mono": ("query", "doc"), "duo": ("query", "doc_i", "doc_j")}


@dataclass(frozen=True)
class PairsFile:
    """A file of pairs or triples.

    Attributes:
        url: the file.
        rows: how many it has.
        kind: of the model that can score it, `mono` or `duo`.
        id_type: the type of its ids: string or an integer type.
        nulls: how many rows lack a value in each column; columns without nulls are left out, as are those whose nulls
            the file does not count.
    """

    url: str
    rows: int
    kind: PairKind
    id_type: Any
    nulls: Mapping[str, int]


class PairRows(NamedTuple):
    """Some rows of a file.

    Attributes:
        ids: string[n] or an integer type; null where a row has none.
        usable: bool[n], whether a row can be scored.
        texts: a column each; only the rows that can be scored.
        bad: the other rows.
    """

    ids: pa.Array
    usable: npt.NDArray[np.bool_]
    texts: list[list[str]]
    bad: list[BadRow]


def find_pairs(paths: Sequence[str]) -> list[PairsFile]:
    """The files that some paths name, in the order of the paths; those of a folder or a glob sorted by name.

    Raises:
        PreflightError: there are none, they are not Parquet, lack columns, do not agree, or hold no rows.
    """
    urls = [url for path in paths for url in _files(path)]
    twice = next((url for url, count in Counter(urls).items() if count > 1), None)
    if twice is not None:
        raise PreflightError(f"the file {twice} is named twice, so its pairs would be scored twice: name it once")
    found = [_check(url) for url in urls]
    for each in found:
        if (each.kind, each.id_type) != (found[0].kind, found[0].id_type):
            raise PreflightError(
                f"{each.url} holds {_described(each)}, and {found[0].url} {_described(found[0])}: score them into two "
                "outputs"
            )
    if not any(each.rows for each in found):
        raise PreflightError(f"{', '.join(paths)} holds no rows: there is nothing to score")
    return found


def _described(file: PairsFile) -> str:
    return f"{'triples' if file.kind == 'duo' else 'pairs'} with ids of type {file.id_type}"


def _files(path: str) -> list[str]:
    is_folder = storage.is_folder(path)
    files = [url for url in find(path) if not is_folder or has_ending(url, ENDINGS)]
    if not files:
        reason = f"holds no files named *{', *'.join(ENDINGS)}" if storage.exists(path) else "does not exist"
        raise PreflightError(f"{path} {reason}: give a Parquet file, a folder of them or a glob. {NOT_DATA}")
    return files


def _check(url: str) -> PairsFile:
    with errors_as(PreflightError, url), open_parquet(url) as file:
        schema = file.schema_arrow
        kind = _kind(url, schema.names)
        columns = (ID, *TEXTS[kind])
        twice = next((name for name in columns if schema.names.count(name) > 1), None)
        if twice is not None:
            raise PreflightError(f"{url} has more than one column `{twice}`: give each its own name")
        for name in TEXTS[kind]:
            check_text_type(file, url, name)
        id_type = _id_type(url, schema.field(ID).type)
        nulls = {name: count for name in columns if (count := _nulls(file, name))}
        return PairsFile(url, file.metadata.num_rows, kind, id_type, nulls)


def _kind(url: str, names: Sequence[str]) -> PairKind:
    kinds = [kind for kind, texts in TEXTS.items() if {ID, *texts} <= set(names)]
    if len(kinds) > 1:
        raise PreflightError(f"{url} has the columns of pairs and of triples: keep `doc`, or `doc_i` and `doc_j`")
    if not kinds:
        raise PreflightError(
            f"{url} needs the columns `id`, `query` and `doc` (pairs), or `id`, `query`, `doc_i` and `doc_j` (triples),"
            f" and it has: {', '.join(names)}. Rename its columns"
        )
    return kinds[0]


def _id_type(url: str, column_type: Any) -> Any:
    """The type of the ids as they are written; DECIMAL (DuckDB's sums and counts) becomes int64."""
    types = pa.types
    if types.is_dictionary(column_type):
        column_type = column_type.value_type
    if types.is_integer(column_type):
        return column_type
    if types.is_decimal(column_type):
        return pa.int64()
    is_text = (types.is_null, types.is_string, types.is_large_string, types.is_string_view)
    if any(test(column_type) for test in is_text):
        return pa.string()
    raise PreflightError(f"the column `{ID}` of {url} is of type {column_type}: it must hold strings or integers")


def _nulls(file: Any, name: str) -> int:
    """The nulls of a column, as far as the file counts them."""
    metadata = file.metadata
    if pa.types.is_null(file.schema_arrow.field(name).type):
        return int(metadata.num_rows)
    column = next(each for each in range(metadata.num_columns) if metadata.schema.column(each).path == name)
    statistics = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
    return sum(each.null_count for each in statistics if each is not None and each.has_null_count)


def read_pairs(rows: RowRange, kind: PairKind, id_type: Any) -> PairRows:
    """Reads some rows of a file; `id_type` is that of `PairsFile`.

    Raises:
        DataError: the file cannot be read, or is not, or no longer, the one that was digested.
    """
    columns = (ID, *TEXTS[kind])
    most_id = 1 << (64 if pa.types.is_unsigned_integer(id_type) else 63)
    table = _read_rows(rows, columns)
    ids, *texts = ([value for chunk in table.column(name).chunks for value in column_values(chunk)] for name in columns)
    usable = np.ones(table.num_rows, np.bool_)
    bad = []
    for row, values in enumerate(zip(ids, *texts, strict=True)):
        try:
            _check_row(columns, values, most_id)
        except RowError as error:
            usable[row] = False
            bad.append(BadRow(f"{rows.file.url} at row {rows.start + row} (from 0)", f"the row {error}"))
    valid_ids = pa.array([None if _id_reason(each, most_id) else each for each in ids], id_type)
    return PairRows(valid_ids, usable, [cast(list[str], list(compress(column, usable))) for column in texts], bad)


def _check_row(columns: Sequence[str], values: Sequence[object], most_id: int) -> None:
    if reason := _id_reason(values[0], most_id):
        raise RowError(reason)
    for name, value in zip(columns[1:], values[1:], strict=True):
        text_of(name, value)
    if not str(values[1]).strip():
        raise RowError(f"has a `{columns[1]}` without text")


def _id_reason(value: object, most_id: int) -> str:
    """Why an id cannot be used; empty for one that can."""
    if value is None:
        return f"has no `{ID}`"
    if isinstance(value, bytes):
        return f"has an `{ID}` that is not valid UTF-8"
    if isinstance(value, Decimal) or (isinstance(value, int) and not -most_id <= value < most_id):
        return f"has the `{ID}` {value}, which is not a whole number of 64 bits"
    return ""


def _read_rows(rows: RowRange, columns: tuple[str, ...]) -> Any:
    starts = _group_starts(rows.file)
    found = []
    for group, (start, end) in enumerate(pairwise(starts)):
        if start < rows.end and end > rows.start:
            first = max(start, rows.start)
            found.append(_row_group(rows.file, group, columns).slice(first - start, min(end, rows.end) - first))
    return pa.concat_tables(found)


@lru_cache(maxsize=8)
def _group_starts(file: DigestedFile) -> tuple[int, ...]:
    """The first row of each row group, and the number of rows."""
    with file.unchanged(), open_parquet(file.url) as opened:
        metadata = opened.metadata
        return (0, *accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)))


@lru_cache(maxsize=1)
def _row_group(file: DigestedFile, group: int, columns: tuple[str, ...]) -> Any:
    """A row group; the shards of a large one share what was read."""
    with file.unchanged(), open_parquet(file.url) as opened:
        return opened.read_row_group(group, columns=list(columns))
