"""Docs as 64-bit hashes of what they are found by: those that shards need, and those of a corpus unit.

The files are named by their content, so that a changed one is noticed when it is read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beamrank.errors import DataError
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, hashes64, sha256
from beamrank.storage.local_files import map_numbers

Hashes = npt.NDArray[np.uint64]
_ENTRY_BYTES = 12


@dataclass(frozen=True)
class NeededDocs:
    """Which shards need which docs: hashes uint64[n], sorted, and shards uint32[n] beside them."""

    hashes: Hashes
    shards: npt.NDArray[np.uint32]

    @classmethod
    def collect(cls, needed: Iterable[tuple[int, Sequence[str]]]) -> "NeededDocs":
        """From (shard, its doc_ids); a doc that several queries of a shard need stands once."""
        return cls.of_hashes((shard, hashes64(doc_ids)) for shard, doc_ids in needed)

    @classmethod
    def of_hashes(cls, needed: Iterable[tuple[int, Hashes]]) -> "NeededDocs":
        """From (shard, the hashes of its docs)."""
        hashes: list[Hashes] = [np.empty(0, np.uint64)]
        shards: list[npt.NDArray[np.uint32]] = [np.empty(0, np.uint32)]
        for shard, found in needed:
            distinct = np.unique(found)
            hashes.append(distinct)
            shards.append(np.full(len(distinct), shard, np.uint32))
        all_hashes, all_shards = np.concatenate(hashes), np.concatenate(shards)
        order = np.lexsort((all_shards, all_hashes))
        return cls(all_hashes[order], all_shards[order])

    def publish(self, folder: str, prefix: str = "needed-") -> str:
        """Writes the arrays under a prefix and their content's own name; returns where they are."""
        content = self.hashes.astype("<u8").tobytes() + self.shards.astype("<u4").tobytes()
        return _publish(folder, prefix, content)

    @classmethod
    def open(cls, url: str) -> "NeededDocs":
        """The arrays that `publish` wrote; a local file is mapped into memory.

        Raises:
            DataError: the file does not hold what was written, so docs would be missing or reach other shards.
        """
        content = _open(url, "Run the same command again, which writes it again")
        entries = len(content) // _ENTRY_BYTES
        return cls(content[: entries * 8].view("<u8"), content[entries * 8 :].view("<u4"))

    def lookup(self, hashes: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """Which of some docs are needed: rows int64[m] into `hashes` and shards uint32[m], one entry for each pair."""
        left = np.searchsorted(self.hashes, hashes, side="left")
        counts = np.searchsorted(self.hashes, hashes, side="right") - left
        rows = np.repeat(np.arange(len(hashes)), counts)
        ends = np.cumsum(counts)
        within = np.arange(len(rows)) - np.repeat(ends - counts, counts)
        return rows, np.asarray(self.shards[left[rows] + within], np.uint32)

    def of_shard(self, shard: int) -> Hashes:
        """The hashes of the docs that a shard needs, sorted."""
        return np.asarray(self.hashes[self.shards == shard])


def publish_unit_docs(folder: str, hashes: Hashes) -> str:
    """Writes the docs of a corpus unit, uint64[n] in any order; returns the file's name."""
    return storage.name(_publish(folder, "docs-", np.sort(hashes).astype("<u8").tobytes()))


def open_unit_docs(url: str) -> Hashes:
    """The docs of a corpus unit: uint64[n], sorted; a hash stands once for each doc.

    Raises:
        DataError: the file does not hold what was written.
    """
    return np.asarray(_open(url, "What is in a unit of the corpus is unknown").view("<u8"))


def _publish(folder: str, prefix: str, content: bytes) -> str:
    url = storage.join(folder, f"{prefix}{sha256(content)[:SHORT]}.bin")
    storage.publish_content(url, content)
    return url


def _open(url: str, effect: str) -> Any:
    """The bytes of a file, uint8[n].

    Raises:
        DataError: they are not those of its name.
    """
    if storage.is_remote(url):
        content = np.frombuffer(storage.read_bytes(url), dtype=np.uint8)
    else:
        content = map_numbers(url, np.uint8)
    if not url.endswith(f"-{sha256(content.data)[:SHORT]}.bin"):
        raise DataError(f"{url} changed after it was written. {effect}")
    return content
