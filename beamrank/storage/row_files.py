"""Rows in a Parquet file that workers read one at a time; the content of each page is checked when
it is read.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.errors import DataError
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, sha256
from beamrank.storage.stores import UnreachableError

_GROUP_ROWS = 64
# A smaller file at a store is read whole.
_SMALL_BYTES = 1 << 20
_Read = TypeVar("_Read")
_AGAIN = "Run the same command again, which writes it again"


def write_rows(folder: str, prefix: str, schema: pa.Schema, rows: Iterator[dict[str, Any]]) -> str:
    """Writes what the workers of a job read a row at a time; returns the URL, which ends in the
    content's own name.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, schema, compression="zstd", write_statistics=False, write_page_checksum=True
    ) as writer:
        while batch := list(islice(rows, _GROUP_ROWS)):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
    content = bytes(sink.getvalue())
    url = storage.join(folder, f"{prefix}{sha256(content)[:SHORT]}.parquet")
    storage.publish_content(url, content)
    return url


def read_rows(url: str) -> list[dict[str, Any]]:
    """All rows of a file of `write_rows`; raises DataError where it is missing or was changed."""
    rows: list[dict[str, Any]] = open_rows(url).read().to_pylist()
    return rows


def read_row(url: str, row: int) -> dict[str, Any]:
    """A row of a file of `write_rows`; raises as `read_rows`."""
    values: list[dict[str, Any]] = (
        open_rows(url).group(row // _GROUP_ROWS).slice(row % _GROUP_ROWS, 1).to_pylist()
    )
    return values[0]


class RowFile:
    """A Parquet file whose row groups are read one by one, by one thread at a time."""

    def __init__(self, url: str) -> None:
        self._url, self._lock = url, Lock()
        checked = {"pre_buffer": True, "page_checksum_verification": True}
        self._file = self._checked(lambda: pq.ParquetFile(_source(url), **checked))

    def group(self, number: int) -> Any:
        """The table of one."""
        return self._checked(lambda: self._file.read_row_group(number, use_threads=False))

    def read(self, *columns: str) -> Any:
        """The table of all, with some columns or all."""
        return self._checked(lambda: self._file.read(list(columns) or None, use_threads=False))

    def _checked(self, read: Callable[[], _Read]) -> _Read:
        try:
            with self._lock:
                return read()
        except (FileNotFoundError, IndexError, pa.ArrowException) as error:
            raise DataError(f"{self._url} is missing or was changed: {error}. {_AGAIN}") from error
        except OSError as error:
            # The error of a damaged page has no number.
            if error.errno is not None or isinstance(error, UnreachableError):
                raise
            raise DataError(f"{self._url} was changed: {error}. {_AGAIN}") from error


@lru_cache(maxsize=4)
def open_rows(url: str) -> RowFile:
    """A file of `write_rows`, or of a plan's topics, whose first pages are read."""
    return RowFile(url)


def _source(url: str) -> Any:
    if not storage.is_remote(url):
        return storage.absolute(url)
    if storage.size_bytes(url) < _SMALL_BYTES:
        return pa.BufferReader(storage.read_bytes(url))
    return storage.open_binary(url, read_ahead=False)
