"""Writes examples: as TFRecord with its ids beside it, as Parquet, as TSV."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from contrib.tensorflow2019.examples.proto import encode
from contrib.tensorflow2019.examples.reader import ids_url
from contrib.tensorflow2019.examples.schemas import FEATURES, ID_COLUMNS
from contrib.tensorflow2019.examples.tfrecord import frame

# More records at a time are slower: they do not fit into a processor's cache.
_ENCODED_RECORDS = 2048


class Writer(Protocol):
    """Writes tables of examples to files, which `close` completes."""

    def write(self, table: pa.Table) -> None:
        """Appends examples."""

    def close(self) -> None:
        """Completes the files."""


class TfrecordWriter:
    """A TFRecord file, and the ids in a text file beside it if the examples have some."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._features = [name for name in schema.names if name in FEATURES]
        self._ids = [name for name in schema.names if name in ID_COLUMNS]
        self._files = ExitStack()
        self._file = self._files.enter_context(path.open("wb"))
        if self._ids:
            beside = Path(ids_url(str(path)))
            self._ids_file = self._files.enter_context(beside.open("wb"))

    def write(self, table: pa.Table) -> None:
        for start in range(0, table.num_rows, _ENCODED_RECORDS):
            some = table.slice(start, _ENCODED_RECORDS)
            self._file.write(frame(*encode({name: _values(some[name]) for name in self._features})))
        if self._ids and table.num_rows:
            lines = pc.binary_join_element_wise(*[table[name].combine_chunks() for name in self._ids], "\t")
            self._ids_file.write("\n".join([*lines.to_pylist(), ""]).encode())

    def close(self) -> None:
        self._files.close()


class ParquetWriter:
    """A Parquet file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class TsvWriter:
    """A text file with the names of its columns in the first line; the numbers of a list are separated by spaces."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._file = path.open("w", encoding="utf-8", newline="\n")
        self._file.write("\t".join(schema.names) + "\n")

    def write(self, table: pa.Table) -> None:
        columns = [_texts(column.combine_chunks()) for column in table.columns]
        self._file.writelines("\t".join(row) + "\n" for row in zip(*columns, strict=True))

    def close(self) -> None:
        self._file.close()


# By the name of the format: the ending of its files, and its writer.
WRITERS: dict[str, tuple[str, Callable[[Path, pa.Schema], Writer]]] = {
    "tfrecord": (".tf", TfrecordWriter),
    "parquet": (".parquet", ParquetWriter),
    "tsv": (".tsv", TsvWriter),
}


def _values(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a column, one after the other, and how many each row has."""
    array = column.combine_chunks()
    if not pa.types.is_list(array.type):
        return array.to_numpy(), np.ones(len(array), np.int64)
    return array.flatten().to_numpy(), np.diff(array.offsets.to_numpy()).astype(np.int64)


def _texts(array: pa.Array) -> list[str]:
    if pa.types.is_list(array.type):
        return [" ".join(map(str, values)) for values in array.to_pylist()]
    return list(map(str, array.to_pylist()))
