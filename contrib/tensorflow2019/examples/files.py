"""Files of examples as Arrow tables, read and written: TFRecord with its ids beside it, Parquet,
and (written) TSV.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beamrank.errors import DataError, PreflightError
from beamrank.formats.decode.parquet import ParquetFile, batches_of
from beamrank.formats.rejects import Rejects
from beamrank.notes import counted
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as, open_stream
from contrib.tensorflow2019.examples.tfrecord import (
    ExampleError,
    Feature,
    RecordRange,
    decode,
    encode,
    frame,
    is_tfrecord,
    open_records,
    read_records,
    record_ranges,
)

_BATCH_EXAMPLES = 2048
_RANGE_RECORDS = 200_000
_SCALARS = ("label", "len_gt_titles")
_LARGEST = {"label": 1, "segment_ids": 2}


@dataclass(frozen=True)
class Schema:
    """One of the original schemas.

    Attributes:
        features: what an example holds; of these, `label` and `len_gt_titles` are one number.
        ids: the columns of the text file beside it: a line for each example of topics that were
            retrieved for.
    """

    features: tuple[str, ...]
    ids: tuple[str, ...]

    def arrow(self, with_ids: bool) -> pa.Schema:
        """The columns of a table; examples of triples have no ids."""
        ids = [(name, pa.string()) for name in self.ids if with_ids]
        return pa.schema([*ids, *((name, _feature_type(name)) for name in self.features)])


SCHEMAS: dict[str, Schema] = {
    # dl4marco-bert, MS MARCO.
    "mono": Schema(("query_ids", "doc_ids", "label"), ("query_id", "doc_id")),
    # dl4marco-bert, TREC CAR: len_gt_titles is the number of the topic's relevant paragraphs.
    "car": Schema(("query_ids", "doc_ids", "label", "len_gt_titles"), ("query_id", "doc_id")),
    # duobert.
    "duo": Schema(("input_ids", "segment_ids", "label"), ("query_id", "doc_id_i", "doc_id_j")),
}
_ID_COLUMNS = {name for schema in SCHEMAS.values() for name in schema.ids}


def _feature_type(name: str) -> pa.DataType:
    return pa.int32() if name in _SCALARS else pa.list_(pa.int32())


def _schema_of(names: set[str], where: str) -> Schema:
    for schema in SCHEMAS.values():
        if names == {*schema.features}:
            return schema
    known = "; ".join(", ".join(schema.features) for schema in SCHEMAS.values())
    raise PreflightError(
        f"the examples of {where} have the features {', '.join(sorted(names))}; accepted: {known}"
    )


@dataclass(frozen=True)
class StoredExamples:
    """Some examples of a file.

    Attributes:
        records: the records of a TFRecord file; None for a whole Parquet file.
        ids_offset: where their lines begin in the file of ids; None if there is none.
        vocab_size: of the tokenizer that made the token ids; None if it is not known.
    """

    url: str
    records: RecordRange | None = None
    ids_offset: int | None = None
    vocab_size: int | None = None

    def tables(self, bad: Rejects) -> Iterator[pa.Table]:
        """The examples in tables: ids, where there are some, and features. Damaged records are
        added to `bad`.

        Raises:
            PreflightError: the file holds other features.
            DataError: the file cannot be read, its ids do not belong to it, or an example cannot be
                one of the schema.
        """
        yield from (
            self._read_parquet() if self.records is None else self._read_records(self.records, bad)
        )

    def _read_parquet(self) -> Iterator[pa.Table]:
        with errors_as(DataError, self.url), storage.open_binary(self.url) as source:
            file = ParquetFile(source)
            names = {*file.schema_arrow.names}
            schema = _schema_of(names - _ID_COLUMNS, self.url)
            wanted = schema.arrow(with_ids={*schema.ids} <= names)
            first = 0
            for batch in batches_of(file, wanted.names, batch_rows=_BATCH_EXAMPLES):
                rows = range(first, first + batch.num_rows)
                features = {name: self._column(batch[name], name, rows) for name in schema.features}
                ids = [batch[name].cast(pa.string()) for name in schema.ids if name in wanted.names]
                yield self._table(schema, features, ids, rows)
                first = rows.stop

    def _column(self, column: pa.Array, name: str, rows: Sequence[int]) -> Feature:
        expected = _feature_type(name)
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        numbers = column.flatten() if is_list else column
        if is_list != pa.types.is_list(expected) or not pa.types.is_integer(numbers.type):
            raise PreflightError(
                f"{self.url}: the column {name!r} is of type {column.type}, not {expected}"
            )
        if column.null_count or numbers.null_count:
            where = f"{self.url}: rows {rows[0]} to {rows[-1]} (from 0)"
            raise DataError(f"{where}: the column {name!r} has a row or a number that is null")
        counts = column.value_lengths().to_numpy() if is_list else np.ones(len(column))
        return numbers.cast(pa.int64(), safe=False).to_numpy(), counts.astype(np.int64)

    def _read_records(self, wanted: RecordRange, bad: Rejects) -> Iterator[pa.Table]:
        ids = None if self.ids_offset is None else _read_ids(self.url, self.ids_offset)
        records, read = read_records(wanted, bad), wanted.first
        while group := list(islice(records, _BATCH_EXAMPLES)):
            numbers = [number for number, _ in group]
            try:
                features = decode([content for _, content in group])
            except ExampleError as error:
                raise DataError(
                    f"{self.url}: record {numbers[error.row]} (from 0) {error}"
                ) from error
            schema = _schema_of({*features}, self.url)
            columns: list[pa.Array] = []
            if ids is not None:
                lines = list(islice(ids, numbers[-1] + 1 - read))
                columns = _checked_ids(
                    [lines[number - read] for number in numbers], schema, self.url
                )
                read = numbers[-1] + 1
            yield self._table(schema, features, columns, numbers)

    def _table(
        self,
        schema: Schema,
        features: dict[str, Feature],
        ids: Sequence[pa.Array],
        rows: Sequence[int],
    ) -> pa.Table:
        """The examples of these rows or records, checked."""
        for place, reason in _problems(schema, features, self.vocab_size):
            unit = "row" if self.records is None else "record"
            raise DataError(f"{self.url}: {unit} {rows[place]} (from 0) {reason}")
        columns = [*ids]
        for name in schema.features:
            values, counts = features[name]
            column = pa.array(values, pa.int32())
            columns.append(
                lists(column, counts) if pa.types.is_list(_feature_type(name)) else column
            )
        return pa.table(columns, schema=schema.arrow(bool(ids)))


def lists(values: Any, counts: Any) -> pa.ListArray:
    """Values as lists of so many each."""
    return pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32()), pa.array(values)
    )


def stored_examples(url: str, kind: str, vocab_size: int | None = None) -> list[StoredExamples]:
    """A file in parts.

    Args:
        url: the file.
        kind: what `kind_of` gives.
        vocab_size: of the tokenizer that made the token ids, which are checked if it is given.

    Raises:
        PreflightError: it has no records.
        DataError: it is truncated, a length is damaged, or the file of ids beside it has another
            number of lines.
    """
    if kind == "parquet":
        return [StoredExamples(url, vocab_size=vocab_size)]
    ranges = record_ranges(url, _RANGE_RECORDS)
    if not ranges:
        raise PreflightError(f"{url} holds no records")
    offsets: list[int | None] = [None] * len(ranges)
    if storage.exists(ids_url(url)):
        count = ranges[-1].first + ranges[-1].count
        lines = offset = 0
        offsets = []
        with open_stream(ids_url(url)) as file:
            for lines, line in enumerate(file, 1):
                if (lines - 1) % _RANGE_RECORDS == 0:
                    offsets.append(offset)
                offset += len(line)
        if lines != count:
            raise DataError(
                f"{ids_url(url)} has {counted(lines, 'line')}, and {url} "
                f"{counted(count, 'record')}: they belong together line by line, so one of them "
                "is not complete"
            )
    return [
        StoredExamples(url, records, offset, vocab_size)
        for records, offset in zip(ranges, offsets, strict=True)
    ]


def kind_of(url: str) -> str | None:
    """`tfrecord` or `parquet`, by the beginning of a file; None for another one.

    Raises:
        PreflightError: it cannot be read.
    """
    with errors_as(PreflightError, url), open_records(url) as file:
        beginning = file.read(12)
    if beginning.startswith(b"PAR1"):
        return "parquet"
    return "tfrecord" if is_tfrecord(beginning) else None


def ids_url(url: str) -> str:
    """The file of ids beside a TFRecord file: `query_doc_ids_dev.txt` beside `dataset_dev.tf`."""
    name = Path(storage.name(url)).stem.removeprefix("dataset_")
    return storage.join(storage.parent(url), f"query_doc_ids_{name}.txt")


def _read_ids(url: str, offset: int) -> Iterator[list[str]]:
    """The ids of each record, from a line on."""
    with open_stream(ids_url(url)) as file:
        file.seek(offset)
        for line in file:
            yield line.decode(errors="replace").rstrip("\r\n").split("\t")


def _checked_ids(ids: list[list[str]], schema: Schema, url: str) -> list[pa.Array]:
    """The columns of ids."""
    for row in ids:
        if len(row) != len(schema.ids):
            raise DataError(
                f"{ids_url(url)} has the line {' '.join(row)!r}, with "
                f"{counted(len(row), 'column')}; these examples have {len(schema.ids)} "
                f"({', '.join(schema.ids)})"
            )
    return [pa.array(column, pa.string()) for column in zip(*ids, strict=True)]


def _problems(
    schema: Schema, features: Mapping[str, Feature], vocab_size: int | None
) -> Iterator[tuple[int, str]]:
    """Examples that the original code cannot have written, by their places, and why."""
    for name in schema.features:
        values, counts = features[name]
        if name in _SCALARS and (counts != 1).any():
            place = int(np.argmax(counts != 1))
            yield (
                place,
                f"has a feature {name!r} with {counted(int(counts[place]), 'value')}, not one",
            )
        tokens = name not in (*_SCALARS, *_LARGEST)
        most = (
            vocab_size - 1 if tokens and vocab_size is not None else _LARGEST.get(name, 2**31 - 1)
        )
        wrong = np.flatnonzero((values < 0) | (values > most))
        if len(wrong):
            place = int(np.searchsorted(np.cumsum(counts), wrong[0], side="right"))
            yield place, f"has {values[wrong[0]]} in {name!r}, whose numbers are 0 to {most:,}"
    if "segment_ids" in schema.features:
        ids, segments = features["input_ids"][1], features["segment_ids"][1]
        for place in np.flatnonzero(ids != segments).tolist():
            yield (
                place,
                f"has {ids[place]} 'input_ids' and {segments[place]} 'segment_ids': each token "
                "has one",
            )


_Write: TypeAlias = Callable[[pa.Table], object]


@contextmanager
def _tfrecord_writer(path: Path, schema: pa.Schema) -> Iterator[_Write]:
    """The ids are in a text file beside it, if the examples have some."""
    ids = [name for name in schema.names if name in _ID_COLUMNS]
    features = [name for name in schema.names if name not in _ID_COLUMNS]
    with path.open("wb") as file, open(ids_url(str(path)) if ids else os.devnull, "wb") as ids_file:

        def write(table: pa.Table) -> None:
            for start in range(0, table.num_rows, _BATCH_EXAMPLES):
                batch = table.slice(start, _BATCH_EXAMPLES).combine_chunks()
                file.write(
                    frame(encode({name: _feature(batch[name].chunk(0)) for name in features}))
                )
            if ids and table.num_rows:
                lines = pc.binary_join_element_wise(
                    *[table[name].combine_chunks() for name in ids], "\t"
                )
                ids_file.write("\n".join([*lines.to_pylist(), ""]).encode())

        yield write


def _feature(array: pa.Array) -> Feature:
    if not pa.types.is_list(array.type):
        return array.to_numpy(), np.ones(len(array), np.int64)
    return array.flatten().to_numpy(), array.value_lengths().to_numpy().astype(np.int64)


@contextmanager
def _parquet_writer(path: Path, schema: pa.Schema) -> Iterator[_Write]:
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        yield writer.write_table


@contextmanager
def _tsv_writer(path: Path, schema: pa.Schema) -> Iterator[_Write]:
    """The first line has the names of the columns; the numbers of a list are separated by
    spaces.
    """
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(schema.names) + "\n")

        def write(table: pa.Table) -> None:
            for row in table.to_pylist():
                cells = (
                    " ".join(map(str, value)) if isinstance(value, list) else str(value)
                    for value in row.values()
                )
                file.write("\t".join(cells) + "\n")

        yield write


# By the name of the format: the ending of its files, and what opens one and writes tables to it.
WRITERS: dict[str, tuple[str, Callable[[Path, pa.Schema], AbstractContextManager[_Write]]]] = {
    "tfrecord": (".tf", _tfrecord_writer),
    "parquet": (".parquet", _parquet_writer),
    "tsv": (".tsv", _tsv_writer),
}
