"""Pairs and triples of texts in Parquet files, for `beamrank score`: columns id, query and doc, or
doc_i and doc_j.

Columns can be renamed (`{query: question}`); all others are passed through to the scores.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate, compress, pairwise
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.errors import PreflightError
from beamrank.formats.checks import text_of
from beamrank.formats.decode.parquet import batches_of, open_parquet
from beamrank.formats.rejects import beginning
from beamrank.formats.texts.parquet import ENDINGS, check_text_type, column_values
from beamrank.formats.values import RowError
from beamrank.records import BadRow
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile, RowRange
from beamrank.storage.globs import NOT_DATA, find
from beamrank.storage.streams import errors_as, has_ending

PairKind = Literal["mono", "duo"]

_BATCH_ROWS, _BUFFER_BYTES = 4096, 1 << 20
ID, SCORE = "id", "score"
# The columns of texts, by the kind of model that scores them.
TEXTS: Mapping[PairKind, tuple[str, ...]] = {
    "mono": ("query", "doc"),
    "duo": ("query", "doc_i", "doc_j"),
}


@dataclass(frozen=True)
class PairsFile:
    """A file of pairs or triples.

    Attributes:
        url: the file.
        rows: how many it has.
        kind: of the model that can score it, `mono` or `duo`.
        id_type: the type of its ids: string or an integer type.
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


def find_pairs(
    paths: Sequence[str], renamed: Mapping[str, str] = MappingProxyType({})
) -> list[PairsFile]:
    """The files that some paths, folders or globs name, in this order; those of a folder or a glob
    sorted by name.

    `renamed` are the names in the files of columns that get other names, by these.

    Raises:
        PreflightError: there are none, they are not Parquet, lack columns, do not agree, or hold no
            rows.
    """
    urls = [url for path in paths for url in _files(path)]
    twice = next((url for url, count in Counter(urls).items() if count > 1), None)
    if twice is not None:
        raise PreflightError(
            f"the file {twice} is named twice, so its pairs would be scored twice: name it once"
        )
    found = [_check(url, renamed) for url in urls]
    for each in found:
        if (each.kind, each.id_type) != (found[0].kind, found[0].id_type):
            raise PreflightError(
                f"{each.url} holds {_described(each)}, and {found[0].url} {_described(found[0])}: "
                "score them into two outputs"
            )
        types = [
            {field.name: str(field.type) for field in file.passed} for file in (each, found[0])
        ]
        for name in sorted({name for name, _ in types[0].items() ^ types[1].items()}):
            raise PreflightError(
                f"the column `{name}` is {types[0].get(name, 'missing')} in {each.url} and "
                f"{types[1].get(name, 'missing')} in {found[0].url}: scores have the same columns "
                "for all files. Score them into two outputs"
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
        reason = (
            f"holds no files named *{', *'.join(ENDINGS)}"
            if storage.exists(path)
            else "does not exist"
        )
        raise PreflightError(
            f"{path} {reason}: give a Parquet file, a folder of them or a glob. {NOT_DATA}"
        )
    return files


def _check(url: str, renamed: Mapping[str, str]) -> PairsFile:
    with errors_as(PreflightError, url), open_parquet(url) as file:
        schema = file.schema_arrow
        names = _renamed(url, schema.names, renamed)
        kind = _kind(url, list(names))
        for name in TEXTS[kind]:
            check_text_type(file, url, names[name])
        id_type = _id_type(url, schema.field(names[ID]))
        for name in (ID, *TEXTS[kind]):
            del names[name]
        if SCORE in names:
            raise PreflightError(
                f"{url} has a column `{SCORE}`, which is the name of the scores: rename it with "
                f"`--columns first_{SCORE}={names[SCORE]}`"
            )
        passed = pa.schema([(name, _plain(schema.field(own).type)) for name, own in names.items()])
        return PairsFile(url, file.metadata.num_rows, kind, id_type, passed)


def _renamed(url: str, names: Sequence[str], renamed: Mapping[str, str]) -> dict[str, str]:
    """The name in the file of each column, by the name that it gets."""
    missing = next((name for name in renamed.values() if name not in names), None)
    if missing is not None:
        raise PreflightError(
            f"{url} has no column `{missing}`, which `--columns` names; it has: {', '.join(names)}"
        )
    new = {own: name for name, own in renamed.items()}
    found = [new.get(name, name) for name in names]
    twice = next((name for name, count in Counter(found).items() if count > 1), None)
    if twice is not None:
        raise PreflightError(
            f"{url} has more than one column `{twice}`: give each its own name with `--columns`"
        )
    return dict(zip(found, names, strict=True))


def _kind(url: str, names: Sequence[str]) -> PairKind:
    kinds = [kind for kind, texts in TEXTS.items() if {ID, *texts} <= set(names)]
    if len(kinds) > 1:
        raise PreflightError(
            f"{url} has the columns of pairs and of triples: keep `doc`, or `doc_i` and `doc_j`"
        )
    if not kinds:
        raise PreflightError(
            f"{url} needs the columns `id`, `query` and `doc` (pairs), or `id`, `query`, `doc_i` "
            f"and `doc_j` (triples), and it has: {', '.join(names)}. Rename its columns, as with "
            "`--columns query=question,doc=passage`"
        )
    return kinds[0]


def _plain(column_type: Any) -> Any:
    """The type of a column's values: of texts that an encoding repeats or that can be longer,
    string.
    """
    types = pa.types
    if types.is_dictionary(column_type):
        return _plain(column_type.value_type)
    return (
        pa.string()
        if types.is_large_string(column_type) or types.is_string_view(column_type)
        else column_type
    )


def _id_type(url: str, column: Any) -> Any:
    """The type of the ids as they are written; DECIMAL (DuckDB's sums and counts) becomes int64."""
    column_type = _plain(column.type)
    if pa.types.is_integer(column_type):
        return column_type
    if pa.types.is_decimal(column_type):
        return pa.int64()
    if pa.types.is_null(column_type) or pa.types.is_string(column_type):
        return pa.string()
    raise PreflightError(
        f"the column `{column.name}` of {url} is of type {column_type}: it must hold strings or "
        "integers"
    )


def read_pairs(
    rows: RowRange,
    kind: PairKind,
    id_type: Any,
    renamed: Mapping[str, str] = MappingProxyType({}),
    passed: Sequence[str] = (),
) -> PairRows:
    """Reads some rows of a file; `id_type` and the names of the columns that are `passed` are those
    of `PairsFile`.

    Raises:
        DataError: the file cannot be read, or is not, or no longer, the one that was digested.
    """
    columns = tuple(renamed.get(name, name) for name in (ID, *TEXTS[kind]))
    most_id = 1 << (64 if pa.types.is_unsigned_integer(id_type) else 63)
    table = _read_rows(rows, columns)
    ids, *texts = (
        [value for chunk in table.column(name).chunks for value in column_values(chunk)]
        for name in columns
    )
    usable = np.ones(table.num_rows, np.bool_)
    bad = []
    for row, values in enumerate(zip(ids, *texts, strict=True)):
        try:
            _check_row(columns, values, most_id)
        except RowError as error:
            usable[row] = False
            place = f"{rows.file.url} at row {rows.start + row} (from 0)"
            bad.append(BadRow(place, f"the row {error}", beginning(values)))
    valid_ids = pa.array(
        [None if _id_reason(columns[0], each, most_id) else each for each in ids], id_type
    )
    kept = [cast(list[str], list(compress(column, usable))) for column in texts]
    return PairRows(
        valid_ids,
        usable,
        kept,
        bad,
        _read_passed(rows, {name: renamed.get(name, name) for name in passed}),
    )


def _check_row(columns: Sequence[str], values: Sequence[object], most_id: int) -> None:
    if reason := _id_reason(columns[0], values[0], most_id):
        raise RowError(reason)
    for name, value in zip(columns[1:], values[1:], strict=True):
        text_of(name, value)
    if not str(values[1]).strip():
        raise RowError(f"has a `{columns[1]}` without text")


def _id_reason(name: str, value: object, most_id: int) -> str:
    """Why an id cannot be used; empty for one that can."""
    if value is None:
        return f"has no `{name}`"
    if isinstance(value, bytes):
        return f"has an `{name}` that is not valid UTF-8"
    if isinstance(value, Decimal) or (isinstance(value, int) and not -most_id <= value < most_id):
        return f"has the `{name}` {value}, which is not a whole number of 64 bits"
    return ""


def _read_rows(rows: RowRange, columns: tuple[str, ...]) -> Any:
    found = []
    for group, start, end in _groups(rows):
        first = max(start, rows.start)
        found.append(
            _row_group(rows.file, group, columns).slice(first - start, min(end, rows.end) - first)
        )
    return pa.concat_tables(found)


def _read_passed(rows: RowRange, names: Mapping[str, str]) -> Any:
    """Columns by the names that they get, each with its name in the file; other rows are not
    held.
    """
    if not names:
        return pa.table({})
    groups, batches = _groups(rows), []
    _, row, _ = groups[0]
    with rows.file.unchanged(), open_parquet(rows.file.url, _BUFFER_BYTES) as opened:
        numbers = [group for group, _, _ in groups]
        for batch in batches_of(opened, list(names.values()), numbers, _BATCH_ROWS):
            first, end = max(rows.start - row, 0), min(rows.end - row, len(batch))
            if first < end:
                batches.append(batch.slice(first, end - first))
            row += len(batch)
            if row >= rows.end:
                break
    table = pa.Table.from_batches(batches)
    return pa.table({name: table[own].cast(_plain(table[own].type)) for name, own in names.items()})


def _groups(rows: RowRange) -> list[tuple[int, int, int]]:
    """The row groups with some of the rows: each one's number, first row and end."""
    groups = enumerate(pairwise(_group_starts(rows.file)))
    return [
        (group, start, end)
        for group, (start, end) in groups
        if start < rows.end and end > rows.start
    ]


@lru_cache(maxsize=8)
def _group_starts(file: DigestedFile) -> tuple[int, ...]:
    """The first row of each row group, and the number of rows."""
    with file.unchanged(), open_parquet(file.url) as opened:
        metadata = opened.metadata
        return (
            0,
            *accumulate(
                metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)
            ),
        )


@lru_cache(maxsize=1)
def _row_group(file: DigestedFile, group: int, columns: tuple[str, ...]) -> Any:
    """A row group; the shards of a large one share what was read."""
    with file.unchanged(), open_parquet(file.url) as opened:
        schema = pa.schema([opened.schema_arrow.field(name) for name in columns])
        return pa.Table.from_batches(batches_of(opened, columns, [group]), schema)
