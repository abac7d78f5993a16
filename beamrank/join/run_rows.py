"""The rows of a given run as record batches: whole blocks at once where all is regular, else row by row."""

import io
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import csv

from beamrank.errors import PreflightError
from beamrank.formats.checks import are_usable
from beamrank.formats.run_order import RunRow
from beamrank.formats.runs import RunRows
from beamrank.formats.texts.lines import BLOCK_BYTES, blocks_between, line_starts, whole_lines
from beamrank.formats.texts.tables import is_table, numbered, open_table
from beamrank.storage.streams import errors_as, open_stream

# `position` numbers the rows of a file: by lines, bytes or rows. A row without a score has null.
ROWS = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("rank", pa.int64(), nullable=False),
        pa.field("score", pa.float32()),
        pa.field("position", pa.int64(), nullable=False),
    ]
)
_ROWS_AT_ONCE = 1 << 16
# The first row, which can be a header, and the comments before it.
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r]*(?:#[^\n]*)?\n)*[^\n]*\n?")
# All that stands in a block whose columns need no look at single characters, beside its separator.
_REGULAR = bytes(range(0x21, 0x7F)) + b"\n"


def run_batches(rows: RunRows, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows of a range of a run file, in order, as `ROWS`.

    Args:
        rows: the file's, which have begun (`FileRows.begin`).
        start: the first byte, row group or record batch.
        end: the end of the range, exclusive; 0, like `start`, for the whole file.

    Raises:
        PreflightError: the file cannot be read, or rows are wrong.
    """
    rows.noun = "row" if is_table(rows.url) else "byte" if end else "line"
    if is_table(rows.url) and rows.names:
        yield from _table_batches(rows, start, end)
    elif rows.kind == "lines" and not is_table(rows.url):
        yield from _text_batches(rows, start, end)
    else:
        yield from _by_row(rows, rows.rows(rows.between(start, end)))
    rows.check("run", 1)


def _by_row(rows: RunRows, found: Iterator[RunRow]) -> Iterator[pa.RecordBatch]:
    while some := list(islice(found, _ROWS_AT_ONCE)):
        yield _checked(rows, some)


def _checked(rows: RunRows, found: list[RunRow]) -> pa.RecordBatch:
    """Rows whose ids and scores are checked; those that cannot be used are problems."""
    try:
        return _of_rows(rows, found)
    except ValueError:
        return _of_rows(rows, list(filter(rows.is_usable, found)))


def _of_rows(rows: RunRows, found: list[RunRow]) -> pa.RecordBatch:
    """Rows as a batch; raises ValueError where one cannot be used."""
    if not found:
        return pa.RecordBatch.from_pylist([], ROWS)
    query_ids, doc_ids, ranks, scores, lines = zip(*found, strict=True)
    with np.errstate(over="ignore"):
        rounded = np.array(scores, np.float64).astype(np.float32)
    ids = [[each.decode() for each in column] for column in (query_ids, doc_ids)]
    if not (np.isfinite(rounded).all() and all(map(are_usable, ids))):
        raise ValueError
    has_scores = rows.format.has_scores
    columns = [
        *(pa.array(each, pa.string()) for each in ids),
        pa.array(ranks, pa.int64()),
        pa.array(rounded) if has_scores else pa.nulls(len(found), pa.float32()),
        pa.array(lines, pa.int64()),
    ]
    return pa.record_batch(columns, schema=ROWS)


def _text_batches(rows: RunRows, start: int, end: int) -> Iterator[pa.RecordBatch]:
    with errors_as(PreflightError, rows.url), open_stream(rows.url) as file:
        is_first = not start
        for first, block in blocks_between(file, start, end) if end else _numbered_blocks(file):
            head = _HEAD.match(block)[0] if is_first else b""  # type: ignore[index]
            rest, number = block[len(head) :], first + (len(head) if end else head.count(b"\n"))
            if head:
                yield from _by_line(rows, head, first, is_first=True)
            is_first = False
            found = _parsed(rows, rest, number) if rest else None
            yield from [found] if found is not None else _by_line(rows, rest, number)


def _numbered_blocks(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The blocks of a file, each with the number of its first line, from 1."""
    line = 1
    while block := whole_lines(file, BLOCK_BYTES):
        yield line, block
        line += block.count(b"\n")


def _by_line(rows: RunRows, block: bytes, first: int, is_first: bool = False) -> Iterator[pa.RecordBatch]:
    lines = zip(_positions(rows, block, first), io.BytesIO(block), strict=False)
    return _by_row(rows, rows.rows(rows.of_lines(lines, is_first)))


def _positions(rows: RunRows, block: bytes, first: int) -> Any:
    """The bytes at which the lines of a block begin, or their numbers."""
    return line_starts(block, first) if rows.noun == "byte" else range(first, first + block.count(b"\n") + 1)


def _parsed(rows: RunRows, block: bytes, first: int) -> pa.RecordBatch | None:
    """The rows of a block of lines; None where one is not regular: then each is looked at."""
    tab = b"\t" if b"\t" in block else b" "
    odd = (tab * 2, tab + b"\n", b"\n" + tab, b"\n\n", b"\n#", b"0x", b"0X")
    if block.translate(None, _REGULAR + tab) or block[0] in b"\n# \t" or block.endswith(tab):
        return None
    if any(each in block for each in odd):
        return None
    names = [str(at) for at in range(len(rows.names or rows.format.columns))]
    kinds = {"query_id": pa.string(), "doc_id": pa.string(), "rank": pa.int64(), "score": pa.float64()}
    types = {str(at): kinds[meaning] for meaning, at in rows.places.items() if meaning in kinds}
    try:
        table = csv.read_csv(
            io.BytesIO(block),
            csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
            csv.ParseOptions(delimiter=tab.decode(), quote_char=False),
            csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[], check_utf8=False),
        )
    except pa.ArrowInvalid:
        return None
    found = {meaning: table[str(at)].combine_chunks() for meaning, at in rows.places.items() if str(at) in types}
    positions = list(_positions(rows, block, first))[: table.num_rows]
    return _batch(found, pa.array(positions, pa.int64())) if len(positions) == table.num_rows else None


def _batch(columns: dict[str, Any], positions: pa.Array) -> pa.RecordBatch | None:
    """Rows of columns with the types of `ROWS`; None where a score is not finite."""
    count = len(positions)
    rank, score = columns.get("rank"), columns.get("score")
    if score is not None:
        with np.errstate(over="ignore"):
            rounded = score.to_numpy(zero_copy_only=False).astype(np.float32)
        if not np.isfinite(rounded).all():
            return None
    arrays = [
        columns["query_id"],
        columns["doc_id"],
        pa.array(np.zeros(count, np.int64)) if rank is None else rank,
        pa.nulls(count, pa.float32()) if score is None else pa.array(rounded),
        positions,
    ]
    return pa.record_batch(arrays, schema=ROWS)


def _table_batches(rows: RunRows, start: int, end: int) -> Iterator[pa.RecordBatch]:
    names = list(dict.fromkeys([*rows.names, *rows.left_out]))
    with errors_as(PreflightError, rows.url), open_table(rows.url) as table:
        for first, batch in table.batches(start, end or None, names, _ROWS_AT_ONCE):
            found = _converted(rows, batch, first)
            slow = iter(()) if found else numbered(rows.url, first, batch)
            yield from [found] if found else _by_row(rows, rows.rows(rows.of_records(slow)))


def _converted(rows: RunRows, batch: pa.RecordBatch, first: int) -> pa.RecordBatch | None:
    """The rows of a batch; None where one is not regular: then each is looked at."""
    columns = {meaning: batch.column(rows.names[at]) for meaning, at in rows.places.items()}
    if any(each.null_count for each in columns.values()):
        return None
    if any(batch.column(name).null_count < len(batch) for name in rows.left_out):
        return None
    try:
        found = {meaning: _cast(meaning, column) for meaning, column in columns.items()}
        if not all(are_usable(found[meaning].to_pylist()) for meaning in ("query_id", "doc_id")):
            return None
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return _batch(found, pa.array(np.arange(first, first + len(batch))))


def _cast(meaning: str, column: Any) -> Any:
    """A column of a usual type as that of its meaning; raises ArrowInvalid for others."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_number, is_whole = pa.types.is_floating(kind), pa.types.is_integer(kind)
    if meaning == "score" and (is_number or is_whole):
        return column.cast(pa.float64())
    if meaning == "rank" and is_whole:
        return column.cast(pa.int64())
    if meaning not in ("rank", "score") and (is_whole or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return column.cast(pa.string())
    raise pa.ArrowInvalid("its rows are looked at one by one")
