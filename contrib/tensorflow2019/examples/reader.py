"""Files of examples as Arrow tables: TFRecord with its ids beside it, and Parquet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.errors import DataError, PreflightError
from beamrank.formats.notes import counted
from beamrank.formats.texts.parquet import open_parquet
from beamrank.records import BadRow
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as, open_stream
from contrib.tensorflow2019.examples.proto import ExampleError, decode
from contrib.tensorflow2019.examples.schemas import ID_COLUMNS, Schema, feature_type, largest_value, schema_of
from contrib.tensorflow2019.examples.tfrecord import (
    RecordRange,
    group,
    is_tfrecord,
    open_records,
    read_records,
    record_ranges,
)

# The numbers of some examples, one after the other, and how many each has.
Feature = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]

_BATCH_EXAMPLES = 2048
_RANGE_RECORDS = 200_000


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

    def tables(self, bad: list[BadRow]) -> Iterator[pa.Table]:
        """The examples in tables: ids, where there are some, and features. Damaged records are added to `bad`.

        Raises:
            PreflightError: the file holds other features.
            DataError: the file cannot be read, its ids do not belong to it, or an example cannot be one of the schema.
        """
        yield from self._read_parquet() if self.records is None else self._read_records(self.records, bad)

    def _read_parquet(self) -> Iterator[pa.Table]:
        with open_parquet(self.url) as file:
            names = {*file.schema_arrow.names}
            schema = schema_of(names - ID_COLUMNS, self.url)
            wanted = schema.arrow(with_ids={*schema.ids} <= names)
            first = 0
            for batch in file.iter_batches(batch_size=_BATCH_EXAMPLES, columns=wanted.names):
                rows = range(first, first + batch.num_rows)
                features = {name: self._column(batch[name], name, rows) for name in schema.features}
                ids = [batch[name].cast(pa.string()) for name in schema.ids if name in wanted.names]
                yield self._table(schema, features, ids, rows)
                first = rows.stop

    def _column(self, column: pa.Array, name: str, rows: Sequence[int]) -> Feature:
        """The numbers of a column, and how many each row has."""
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        numbers = column.flatten() if is_list else column
        if is_list != pa.types.is_list(feature_type(name)) or not pa.types.is_integer(numbers.type):
            raise PreflightError(f"{self.url}: the column {name!r} is of type {column.type}, not {feature_type(name)}")
        if column.null_count or numbers.null_count:
            raise DataError(f"{self._places(rows)}: the column {name!r} has a row or a number that is null")
        counts = column.value_lengths().to_numpy() if is_list else np.ones(len(column))
        return numbers.cast(pa.int64(), safe=False).to_numpy(), counts.astype(np.int64)

    def _places(self, rows: Sequence[int]) -> str:
        return f"{self.url}: rows {rows[0]} to {rows[-1]} (from 0)"

    def _table(
        self, schema: Schema, features: dict[str, Feature], ids: Sequence[pa.Array], rows: Sequence[int]
    ) -> pa.Table:
        """The examples of these rows or records, checked."""
        found = _problem(schema, features, self.vocab_size)
        if found is not None:
            unit = "row" if self.records is None else "record"
            raise DataError(f"{self.url}: {unit} {rows[found[0]]} (from 0) {found[1]}")
        columns = [*ids]
        for name in schema.features:
            values, counts = features[name]
            column = pa.array(values, pa.int32())
            if pa.types.is_list(feature_type(name)):
                offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
                column = pa.ListArray.from_arrays(offsets, column)
            columns.append(column)
        return pa.table(columns, schema=schema.arrow(bool(ids)))

    def _read_records(self, some: RecordRange, bad: list[BadRow]) -> Iterator[pa.Table]:
        ids = None if self.ids_offset is None else _read_ids(self.url, self.ids_offset)
        read = some.first
        for numbers, contents in group(read_records(some, bad), _BATCH_EXAMPLES):
            try:
                features = decode(contents)
            except ExampleError as error:
                raise DataError(f"{self.url}: record {numbers[error.row]} (from 0) {error}") from error
            schema = schema_of({*features}, self.url)
            if ids is not None:
                lines = list(islice(ids, numbers[-1] + 1 - read))
                found = [lines[number - read] for number in numbers]
                read = numbers[-1] + 1
                yield self._table(schema, features, _checked_ids(found, schema, self.url), numbers)
            else:
                yield self._table(schema, features, [], numbers)


def stored_examples(url: str, kind: str, vocab_size: int | None = None) -> list[StoredExamples]:
    """A file in parts.

    Args:
        url: the file.
        kind: what `kind_of` gives.
        vocab_size: of the tokenizer that made the token ids, which are checked if it is given.

    Raises:
        PreflightError: it has no records.
        DataError: it is truncated, a length is damaged, or the file of ids beside it has another number of lines.
    """
    if kind == "parquet":
        return [StoredExamples(url, vocab_size=vocab_size)]
    ranges = record_ranges(url, _RANGE_RECORDS)
    if not ranges:
        raise PreflightError(f"{url} holds no records")
    if not storage.exists(ids_url(url)):
        return [StoredExamples(url, some, None, vocab_size) for some in ranges]
    count = ranges[-1].first + ranges[-1].count
    offsets, lines = _line_offsets(ids_url(url), _RANGE_RECORDS)
    if lines != count:
        raise DataError(
            f"{ids_url(url)} has {counted(lines, 'line')}, and {url} {counted(count, 'record')}: they belong together "
            "line by line, so one of them is not complete"
        )
    return [StoredExamples(url, some, offset, vocab_size) for some, offset in zip(ranges, offsets, strict=True)]


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


def _line_offsets(url: str, lines: int) -> tuple[list[int], int]:
    """Where each line whose number is a multiple of `lines` begins, and how many lines there are."""
    offsets, offset, count = [], 0, 0
    with open_stream(url) as file:
        for count, line in enumerate(file, 1):
            if (count - 1) % lines == 0:
                offsets.append(offset)
            offset += len(line)
    return offsets, count


def _read_ids(url: str, offset: int) -> Iterator[list[str]]:
    """The ids of each record, from a line on."""
    with open_stream(ids_url(url)) as file:
        file.seek(offset)
        for line in file:
            yield line.decode(errors="replace").rstrip("\r\n").split("\t")


def _checked_ids(ids: list[list[str]], schema: Schema, url: str) -> list[pa.Array]:
    """The columns of ids."""
    for each in ids:
        if len(each) != len(schema.ids):
            raise DataError(
                f"{ids_url(url)} has the line {' '.join(each)!r}, with {counted(len(each), 'column')}; these examples "
                f"have {len(schema.ids)} ({', '.join(schema.ids)})"
            )
    return [pa.array(column, pa.string()) for column in zip(*ids, strict=True)]


def _problem(schema: Schema, features: Mapping[str, Feature], vocab_size: int | None) -> tuple[int, str] | None:
    """The first example found that the original code cannot have written, by its place, and why."""
    for name in schema.features:
        values, counts = features[name]
        if not pa.types.is_list(feature_type(name)) and (counts != 1).any():
            place = int(np.argmax(counts != 1))
            return place, f"has a feature {name!r} with {counted(int(counts[place]), 'value')}, not one"
        most = largest_value(name, vocab_size)
        wrong = np.flatnonzero((values < 0) | (values > most))
        if len(wrong):
            place = int(np.searchsorted(np.cumsum(counts), wrong[0], side="right"))
            return place, f"has {values[wrong[0]]} in {name!r}, whose numbers are 0 to {most:,}"
    if schema.features[:2] == ("input_ids", "segment_ids"):
        tokens, segments = features["input_ids"][1], features["segment_ids"][1]
        if (tokens != segments).any():
            place = int(np.argmax(tokens != segments))
            return (
                place,
                f"has {tokens[place]} 'input_ids' and {segments[place]} 'segment_ids': each token has one",
            )
    return None
