"""Docs as 64-bit hashes of what they are found by: those that shards need, and those of a corpus
unit.

The docs that the shards of a job need are in files by range of the hash, so that no process holds
all of them. Every file is named by its content, so that a changed one is noticed when it is read.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from beamrank.errors import DataError
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, holds_content, sha256
from beamrank.storage.local_files import map_numbers

Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
# An entry on its way to its file: the hash of a doc, and the shard that needs it with
# `_HAS_TOKENS`.
_ENTRY = np.dtype([("hash", "<u8"), ("mark", "<u4")])
_HAS_TOKENS = 1 << 31
# Hashes are uniform, but a doc that many shards need has many entries: a file of 64 MB would hold
# 5.3 million.
_ENTRIES_OF_RANGE = 4_000_000
RANGE_BYTES = _ENTRIES_OF_RANGE * _ENTRY.itemsize


def count_ranges(entries: int) -> int:
    """How many ranges of the hash keep each one's file of so many entries in all at 64 MB or
    less.
    """
    return max(1, -(-entries // _ENTRIES_OF_RANGE))


def cut_needed(
    shard: int, needed: Hashes, with_tokens: Hashes, ranges: int
) -> Iterator[tuple[int, bytes]]:
    """The docs that a shard needs, in any order and as often as they like, cut by range: the
    entries of each range.

    `with_tokens` are docs whose tokens an earlier run has for the shard.
    """
    entries = np.empty(len(distinct := np.unique(needed)), _ENTRY)
    entries["hash"] = distinct
    entries["mark"] = shard | np.where(
        np.isin(distinct, with_tokens), np.uint32(_HAS_TOKENS), np.uint32(0)
    )
    numbers, starts = np.unique(_range_of(distinct, ranges), return_index=True)
    for number, some in zip(numbers.tolist(), np.split(entries, starts)[1:], strict=True):
        yield number, some.tobytes()


def _range_of(hashes: Hashes, ranges: int) -> npt.NDArray[np.uint64]:
    """The range of each hash; it grows with the hash."""
    return ((hashes >> np.uint64(32)) * np.uint64(ranges)) >> np.uint64(32)


@dataclass(frozen=True)
class NeededDocs:
    """Which shards need the docs of one range.

    Attributes:
        hashes: uint64[n], sorted; a doc that several shards need stands once for each.
        marks: uint32[n], the shard of each entry, and whether an earlier run has the doc's tokens
            for it.
    """

    hashes: Hashes
    marks: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, contents: Iterable[bytes]) -> "NeededDocs":
        """From the entries of shards, in any order."""
        entries = np.frombuffer(b"".join(contents), _ENTRY)
        hashes, marks = entries["hash"], entries["mark"]
        order = np.lexsort((marks, hashes))
        return cls(hashes[order], marks[order])

    def publish(self, folder: str, prefix: str, number: int) -> str:
        """Writes the entries under a prefix, the number of the range and their content's own name;
        returns the URL.
        """
        content = self.hashes.astype("<u8").tobytes() + self.marks.astype("<u4").tobytes()
        return _publish(folder, f"{prefix}{number:05d}-", content)

    @classmethod
    def open(cls, url: str) -> "NeededDocs":
        """The entries that `publish` wrote; a local file is mapped into memory.

        Raises:
            DataError: the file does not hold what was written, so docs would be missing or reach
                other shards.
        """
        content = _open(url)
        entries = len(content) // _ENTRY.itemsize
        return cls(content[: entries * 8].view("<u8"), content[entries * 8 :].view("<u4"))

    @property
    def has_tokens(self) -> Mask:
        """Whether an earlier run has the doc's tokens for the shard, of each entry."""
        return self.marks >= _HAS_TOKENS

    def lookup(self, hashes: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """Which of some docs are needed: rows int64[m] into `hashes` and shards uint32[m], one
        entry for each pair.
        """
        left = np.searchsorted(self.hashes, hashes, side="left")
        counts = np.searchsorted(self.hashes, hashes, side="right") - left
        rows = np.repeat(np.arange(len(hashes)), counts)
        ends = np.cumsum(counts)
        within = np.arange(len(rows)) - np.repeat(ends - counts, counts)
        return rows, self.marks[left[rows] + within] & np.uint32(_HAS_TOKENS - 1)


@dataclass(frozen=True)
class NeededList:
    """Where the docs that some shards need are listed: a file for each range of the hash, in order.

    Attributes:
        urls: the files.
        entries: how many there are in all.
        shards: the first shard and the end of those that count; the others do not take part in a
            job.
    """

    urls: tuple[str, ...]
    entries: int
    shards: tuple[int, int] = (0, _HAS_TOKENS)


class OpenedList:
    """The files of a list, each opened on first use."""

    def __init__(
        self, urls: Sequence[str], open_file: Callable[[str], NeededDocs] = NeededDocs.open
    ) -> None:
        self._urls, self._open = urls, cache(open_file)

    def lookup(self, hashes: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """`NeededDocs.lookup` over all ranges."""
        ranges = _range_of(hashes, len(self._urls))
        rows, shards = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
        order = np.argsort(ranges)
        numbers, starts = np.unique(ranges[order], return_index=True)
        for number, places in zip(numbers.tolist(), np.split(order, starts)[1:], strict=True):
            found, needed_by = self._open(self._urls[number]).lookup(hashes[places])
            rows.append(places[found])
            shards.append(needed_by)
        return np.concatenate(rows), np.concatenate(shards)

    def of_shard(self, shard: int, hashes: Hashes) -> Hashes:
        """Those of some hashes that are listed for a shard."""
        rows, shards = self.lookup(hashes)
        return np.asarray(hashes[rows[shards == shard]])


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


def find_unread(
    needed: NeededList, units: Sequence[Hashes], unchanged: Mask, folder: str, prefix: str
) -> tuple[Mask, NeededList]:
    """The units of a corpus that need not be read, since an earlier run has the tokens of all that
    is needed from them.

    A unit is one if every doc that is needed from it has tokens for each shard that needs it. A doc
    whose hash is in the units more than once has none: whose tokens they are is unknown. One range
    of the list is in memory at a time.

    Args:
        needed: the list, with the docs that have tokens.
        units: the docs of each unit of the earlier corpus, sorted.
        unchanged: bool[u], which of these units the corpus still has.
        folder: where the list of the needed docs of the unread units is written.
        prefix: how its files are named.

    Returns:
        bool[u], the units; and that list.
    """

    @lru_cache(maxsize=1)
    def opened(number: int) -> _Range:
        docs = NeededDocs.open(needed.urls[number])
        starts = np.flatnonzero(np.diff(docs.hashes, prepend=~docs.hashes[:1]))
        distinct = np.asarray(docs.hashes[starts])
        return _Range(docs, starts, [_places(distinct, unit) for unit in units])

    numbers = range(len(needed.urls))
    unread = np.logical_and.reduce(
        [unchanged, *(opened(number).complete_units() for number in numbers)]
    )
    urls, entries = [], 0
    for number in numbers:
        docs = opened(number).of_units(unread)
        urls.append(docs.publish(folder, prefix, number))
        entries += len(docs.hashes)
    return unread, NeededList(tuple(urls), entries)


@dataclass(frozen=True)
class _Range:
    """The needed docs of one range, and where they are in units.

    Attributes:
        docs: the docs.
        starts: int64[d], the first entry of each distinct hash.
        places: for each unit, the distinct hashes that it has, each as often as it is there.
    """

    docs: NeededDocs
    starts: npt.NDArray[np.int64]
    places: list[npt.NDArray[np.int64]]

    def complete_units(self) -> Mask:
        """Of which units every doc here has tokens for each shard that needs it, and is in no unit
        again.
        """
        if not len(self.starts):
            return np.ones(len(self.places), np.bool_)
        times = np.bincount(np.concatenate(self.places), minlength=len(self.starts))
        complete = np.logical_and.reduceat(self.docs.has_tokens, self.starts) & (times == 1)
        return np.array([bool(complete[places].all()) for places in self.places])

    def of_units(self, some: Mask) -> NeededDocs:
        """The docs of some units."""
        inside = np.zeros(len(self.starts), np.bool_)
        for number in np.flatnonzero(some):
            inside[self.places[number]] = True
        kept = np.repeat(inside, np.diff(self.starts, append=len(self.docs.hashes)))
        return NeededDocs(self.docs.hashes[kept], self.docs.marks[kept])


def _places(distinct: Hashes, unit: Hashes) -> npt.NDArray[np.int64]:
    """The places in sorted, distinct hashes of those that a unit has."""
    if not len(distinct):
        return np.empty(0, np.int64)
    low = np.searchsorted(unit, distinct[0])
    high = np.searchsorted(unit, distinct[-1], side="right")
    hashes = np.asarray(unit[low:high])
    places = np.searchsorted(distinct, hashes)
    return np.asarray(places[distinct[places] == hashes])


def publish_unit_docs(folder: str, hashes: Hashes) -> str:
    """Writes the docs of a corpus unit, uint64[n] in any order; returns the file's name."""
    return storage.name(_publish(folder, "docs-", np.sort(hashes).astype("<u8").tobytes()))


def open_unit_docs(url: str) -> Hashes:
    """The docs of a corpus unit: uint64[n], sorted; a hash stands once for each doc. Raises as
    `NeededDocs.open`.
    """
    return np.asarray(_open(url).view("<u8"))


def _publish(folder: str, prefix: str, content: bytes) -> str:
    url = storage.join(folder, f"{prefix}{sha256(content)[:SHORT]}.bin")
    storage.publish_content(url, content)
    return url


def _open(url: str) -> Any:
    """The bytes of a file, uint8[n]; raises DataError where they are not those of its name."""
    if storage.is_remote(url):
        content = np.frombuffer(storage.read_bytes(url), dtype=np.uint8)
    else:
        content = map_numbers(url, np.uint8)
    if not holds_content(storage.name(url), content.data):
        raise DataError(
            f"{url} changed after it was written. Run the same command again, which writes it again"
        )
    return content
