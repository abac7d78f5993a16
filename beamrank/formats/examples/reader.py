"""Files of examples as Arrow tables: TFRecord with its ids beside it, and Parquet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora.readers.parquet import open_parquet
from beamrank.formats.examples.proto import ExampleError, decode
from beamrank.formats.examples.schemas import ID_COLUMNS, Schema, feature_type, schema_of
from beamrank.formats.examples.tfrecord import RecordRange, group, is_tfrecord, read_records, record_ranges
from beamrank.formats.problems import counted
from beamrank.records import BadRow
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as, open_stream

_BATCH_EXAMPLES = 2048
_RANGE_RECORDS = 200_000


@dataclass(frozen=True)
class StoredExamples:
    """Some examples of a file.

    Attributes:
        records: the records of a TFRecord file; None for a whole Parquet file.
        ids_offset: where their lines begin in the file of ids; None if there is none.
    """

    url: str
    records: RecordRange | None = None
    ids_offset: int | None = None

    def tables(self, bad: list[BadRow]) -> Iterator[pa.Table]:
        """The examples in tables: ids, where there are some, and features. Damaged records are added to `bad`.

        Raises:
            PreflightError: the file holds other features.
            DataError: the file cannot be read, or its ids do not belong to it.
        """
        yield from self._read_parquet() if self.records is None else self._read_records(self.records, bad)

    def _read_parquet(self) -> Iterator[pa.Table]:
        with open_parquet(self.url) as file:
            names = {*file.schema_arrow.names}
            schema = schema_of(names - ID_COLUMNS, self.url)
            wanted = schema.arrow(with_ids={*schema.ids} <= names)
            for batch in file.iter_batches(batch_size=_BATCH_EXAMPLES, columns=wanted.names):
                yield pa.Table.from_batches([batch]).select(wanted.names).cast(wanted)

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
                yield _table(schema, features, _checked_ids(found, schema, self.url))
            else:
                yield _table(schema, features, [])


def stored_examples(url: str, kind: str) -> list[StoredExamples]:
    """A file in pieces.

    Args:
        url: the file.
        kind: what `kind_of` gives.

    Raises:
        PreflightError: it has no records.
        DataError: it is truncated, a length is damaged, or the file of ids beside it has another number of lines.
    """
    if kind == "parquet":
        return [StoredExamples(url)]
    ranges = record_ranges(url, _RANGE_RECORDS)
    if not ranges:
        raise PreflightError(f"{url} holds no records")
    if not storage.exists(ids_url(url)):
        return [StoredExamples(url, some) for some in ranges]
    count = ranges[-1].first + ranges[-1].count
    offsets, lines = _line_offsets(ids_url(url), _RANGE_RECORDS)
    if lines != count:
        raise DataError(
            f"{ids_url(url)} has {counted(lines, 'line')}, and {url} {counted(count, 'record')}: they belong together "
            "line by line, so one of them is not complete"
        )
    return [StoredExamples(url, some, offset) for some, offset in zip(ranges, offsets, strict=True)]


def kind_of(url: str) -> str | None:
    """`tfrecord` or `parquet`, by the beginning of a file; None for another one.

    Raises:
        PreflightError: it cannot be read.
    """
    with errors_as(PreflightError, url), open_stream(url) as file:
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


def _table(
    schema: Schema,
    features: dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
    ids: Sequence[pa.Array],
) -> pa.Table:
    columns = [*ids]
    for name in schema.features:
        values, counts = features[name]
        column = pa.array(values, pa.int32())
        if pa.types.is_list(feature_type(name)):
            offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
            column = pa.ListArray.from_arrays(offsets, column)
        columns.append(column)
    return pa.table(columns, schema=schema.arrow(bool(ids)))
