"""The docs that the shards of a job need, as 64-bit hashes of what they are found by.

They are in files by range of the hash, so that no process holds all of them. Every file is named by
its content, so that a changed one is noticed when it is read.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from beamrank.errors import DataError
from beamrank.storage import files as storage
from beamrank.storage.disk_cache import local_copy
from beamrank.storage.documents import SHORT, holds_content, sha256
from beamrank.storage.local_files import map_numbers

Hashes = npt.NDArray[np.uint64]
# An entry on its way to its file: the hash of a doc, and the shard that needs it.
_ENTRY = np.dtype([("hash", "<u8"), ("shard", "<u4")])
_NO_END = 1 << 31
# In this machine's cache: copies of files from a store.
LISTS = "lists"
# Hashes are uniform, but a doc that many shards need has many entries: a file of 64 MB would hold
# 5.3 million.
_ENTRIES_OF_RANGE = 4_000_000
RANGE_BYTES = _ENTRIES_OF_RANGE * _ENTRY.itemsize


def count_ranges(entries: int) -> int:
    """How many ranges of the hash keep each one's file of so many entries in all at 64 MB or
    less.
    """
    return max(1, -(-entries // _ENTRIES_OF_RANGE))


def cut_needed(shard: int, needed: Hashes, ranges: int) -> Iterator[tuple[int, bytes]]:
    """The docs that a shard needs, in any order and as often as they like, cut by range: the
    entries of each range.
    """
    entries = np.empty(len(distinct := np.unique(needed)), _ENTRY)
    entries["hash"] = distinct
    entries["shard"] = shard
    numbers, starts = np.unique(_range_of(distinct, ranges), return_index=True)
    for number, of_range in zip(numbers.tolist(), np.split(entries, starts)[1:], strict=True):
        yield number, of_range.tobytes()


def _range_of(hashes: Hashes, ranges: int) -> npt.NDArray[np.uint64]:
    """The range of each hash; it grows with the hash."""
    return ((hashes >> np.uint64(32)) * np.uint64(ranges)) >> np.uint64(32)


@dataclass(frozen=True)
class NeededDocs:
    """The shards that need the docs of one range.

    Attributes:
        hashes: uint64[n], sorted; a doc that several shards need stands once for each.
        shards: uint32[n], the shard of each entry.
    """

    hashes: Hashes
    shards: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, contents: Iterable[bytes]) -> "NeededDocs":
        """From the entries of shards, in any order."""
        entries = np.frombuffer(b"".join(contents), _ENTRY)
        hashes, shards = entries["hash"], entries["shard"]
        order = np.lexsort((shards, hashes))
        return cls(hashes[order], shards[order])

    def publish(self, folder: str, prefix: str, number: int) -> str:
        """Writes the entries under a prefix, the number of the range and their content's own name;
        returns the URL.
        """
        content = self.hashes.astype("<u8").tobytes() + self.shards.astype("<u4").tobytes()
        url = storage.join(folder, f"{prefix}{number:05d}-{sha256(content)[:SHORT]}.bin")
        storage.publish_content(url, content)
        return url

    @classmethod
    def open(cls, url: str) -> "NeededDocs":
        """The entries that `publish` wrote, mapped into memory: of a file at a store, this machine
        makes a copy once.

        Raises:
            DataError: the file does not hold what was written, so docs would be missing or reach
                other shards.
        """
        content = _open(url)
        entries = len(content) // _ENTRY.itemsize
        return cls(content[: entries * 8].view("<u8"), content[entries * 8 :].view("<u4"))

    def lookup(self, hashes: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """The docs that are needed, of some: rows int64[m] into `hashes` and shards uint32[m], one
        entry for each pair.
        """
        left = np.searchsorted(self.hashes, hashes, side="left")
        counts = np.searchsorted(self.hashes, hashes, side="right") - left
        rows = np.repeat(np.arange(len(hashes)), counts)
        ends = np.cumsum(counts)
        within = np.arange(len(rows)) - np.repeat(ends - counts, counts)
        return rows, self.shards[left[rows] + within]


@dataclass(frozen=True)
class NeededList:
    """The lists of the docs that some shards need: a file for each range of the hash, in order.

    Attributes:
        urls: the files.
        entries: how many there are in all.
        shards: the first shard that counts, and the end; the others do not take part in a job.
    """

    urls: tuple[str, ...]
    entries: int
    shards: tuple[int, int] = (0, _NO_END)


class OpenedList:
    """The files of a list, each opened on first use."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls, self._open = urls, cache(NeededDocs.open)

    def lookup(self, hashes: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """`NeededDocs.lookup` over all ranges."""
        ranges = _range_of(hashes, len(self._urls))
        rows, shards = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
        order = np.argsort(ranges)
        numbers, starts = np.unique(ranges[order], return_index=True)
        for number, places in zip(numbers.tolist(), np.split(order, starts)[1:], strict=True):
            local, needed_by = self._open(self._urls[number]).lookup(hashes[places])
            rows.append(places[local])
            shards.append(needed_by)
        return np.concatenate(rows), np.concatenate(shards)


def write_needed(
    needed: Iterable[tuple[int, bytes]], ranges: int, folder: str, prefix: str
) -> NeededList:
    """Publishes the list of what shards need, from the `cut_needed` of each; one range at a time is
    in memory.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(ranges)]
        for number, content in needed:
            files[number].write(content)
        entries, urls = sum(file.tell() for file in files) // _ENTRY.itemsize, []
        for number, file in enumerate(files):
            file.seek(0)
            urls.append(NeededDocs.of([file.read()]).publish(folder, prefix, number))
    return NeededList(tuple(urls), entries)


def listed(files: Sequence[tuple[str, int]]) -> NeededList:
    """The list of these files, one for each range in order, by URL and size in bytes."""
    return NeededList(
        tuple(url for url, _ in files), sum(size for _, size in files) // _ENTRY.itemsize
    )


def _open(url: str) -> Any:
    """The bytes of a file, uint8[n]; raises DataError where its name has another digest."""
    content = map_numbers(local_copy(LISTS, url), np.uint8)
    if not holds_content(storage.name(url), content.data):
        raise DataError(
            f"{url} changed after it was written. Run the same command again, which writes it again"
        )
    return content
