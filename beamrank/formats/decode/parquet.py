"""Parquet files, opened so that a small one that is huge when it is decoded is refused."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beamrank.formats.values import holds_texts, plain_type

_BATCH_ROWS = 4096
# A row group's texts may be so large when they are decoded, or so many times as in the file. The
# first is the limit of JSON's values too.
_MOST_BYTES, _MOST_TIMES, _FEW_ROWS = 1 << 28, 100, 64


class ParquetFile(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file that can be opened in another way too."""

    def __init__(self, source: Any) -> None:
        self.source, self.size_bytes = source, source.seek(0, os.SEEK_END)
        super().__init__(source)

    def longest(self, names: Sequence[str], group: int) -> int:
        """The bytes of a row of the longest texts in the dictionaries of columns, or of the first
        texts.
        """
        file = pq.ParquetFile(
            self.source, metadata=self.metadata, read_dictionary=names, pre_buffer=False
        )
        try:
            first = next(file.iter_batches(1, row_groups=[group], columns=names), None)
        except (OSError, pa.ArrowException):
            # Arrow cannot do that where texts repeat the beginning of others. Other errors come
            # again.
            return _MOST_BYTES // _FEW_ROWS
        columns = () if first is None else first.columns
        repeated = [column.dictionary for column in columns if pa.types.is_dictionary(column.type)]
        return sum(
            pc.max(_lengths(texts)).as_py() or 0 for texts in repeated if _has_texts(texts.type)
        )


def batches_of(
    file: ParquetFile,
    columns: Sequence[str],
    groups: Iterable[int] | None = None,
    batch_rows: int = _BATCH_ROWS,
) -> Iterator[Any]:
    """Record batches of some row groups, of at most so many rows.

    Raises:
        ArrowInvalid: rows are missing, at which Arrow just ends.
        MemoryError: a row group is too large when it is decoded.
    """
    schema = file.schema_arrow
    places = ((name, schema.get_field_index(name)) for name in columns)
    kinds = {name: schema.field(at).type for name, at in places if at >= 0}
    texts = [name for name, kind in kinds.items() if _has_texts(kind)]
    single = [name for name in texts if holds_texts(kinds[name])]
    for group in range(file.num_row_groups) if groups is None else groups:
        missing = file.metadata.row_group(group).num_rows
        if not missing:
            continue
        rows, room = _sizes(file, single, group) if texts else (batch_rows, _MOST_BYTES)
        batches = file.iter_batches(min(batch_rows, rows), row_groups=[group], columns=columns)
        for batch in batches:
            missing -= len(batch)
            room -= sum(text_bytes(batch.column(name)) for name in texts)
            check_room(room, group)
            yield batch
        if missing:
            raise pa.ArrowInvalid(f"row group {group} states {missing} more rows than it holds")


def _sizes(file: ParquetFile, texts: list[str], group: int) -> tuple[int, int]:
    """How many rows of a row group with these columns of texts fit in memory, and the bytes that
    all may take.
    """
    # Not the metadata of its columns: Arrow ends the process where their statistics are damaged.
    metadata = file.metadata.row_group(group)
    rows, encoded = metadata.num_rows, metadata.total_byte_size
    packed = file.size_bytes * rows // max(file.metadata.num_rows, 1)
    room = room_bytes(packed)
    check_room(room - encoded, group)
    longest = file.longest(texts, group) if texts else 0
    row_bytes = max(1, longest, encoded // rows)
    return max(1, _MOST_BYTES // row_bytes), room


def room_bytes(packed_bytes: int) -> int:
    """How large a part of a file may be when it is decoded."""
    return max(_MOST_BYTES, _MOST_TIMES * packed_bytes)


def check_room(left_bytes: int, part: int) -> None:
    """Raises MemoryError where a row group or record batch has less than nothing left."""
    if left_bytes < 0:
        raise MemoryError(
            f"part {part} (from 0) takes more than {_MOST_BYTES >> 20} MiB, and more than "
            f"{_MOST_TIMES} times as much as in the file, when it is decoded"
        )


def _has_texts(kind: Any) -> bool:
    """Whether a column of a type holds texts, or lists of them."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return holds_texts(plain_type(kind.value_type if is_list else kind))


def text_bytes(column: Any) -> int:
    """The bytes of a column of texts with the texts of a dictionary repeated."""
    if not (pa.types.is_dictionary(column.type) and holds_texts(plain_type(column.type))):
        return int(column.nbytes)
    return pc.sum(_lengths(column.dictionary).take(column.indices)).as_py() or 0


def _lengths(texts: Any) -> Any:
    """The bytes of each text."""
    # A view has no such function.
    is_view = pa.types.is_string_view(texts.type)
    return pc.binary_length(texts.cast(pa.large_string()) if is_view else texts)
