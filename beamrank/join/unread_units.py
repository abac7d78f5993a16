"""Which units of a corpus need not be read, since an earlier run has the tokens of all docs that are needed from them.

Both questions are answered range by range of the hash: of the needed docs one range is in memory, and the docs of the
units are files that are mapped into it.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from beamrank.join.doc_hashes import Hashes, NeededDocs, NeededList, open_unit_docs
from beamrank.storage import files as storage
from beamrank.storage.local_files import map_numbers

_FILES_AT_ONCE = 8
_Mask = npt.NDArray[np.bool_]


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

    @classmethod
    def of(cls, docs: NeededDocs, units: Sequence[str]) -> "_Range":
        starts = np.flatnonzero(np.diff(docs.hashes, prepend=~docs.hashes[:1]))
        distinct = np.asarray(docs.hashes[starts])
        return cls(docs, starts, [_places(distinct, map_numbers(path, "<u8")) for path in units])

    def complete_units(self) -> _Mask:
        """Of which units every doc here has tokens for each shard that needs it, and is in no unit again."""
        if not len(self.starts):
            return np.ones(len(self.places), np.bool_)
        times = np.bincount(np.concatenate(self.places), minlength=len(self.starts))
        complete = np.logical_and.reduceat(self.docs.has_tokens, self.starts) & (times == 1)
        return np.array([bool(complete[places].all()) for places in self.places])

    def of_units(self, some: _Mask) -> NeededDocs:
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
    low, high = np.searchsorted(unit, distinct[0]), np.searchsorted(unit, distinct[-1], side="right")
    hashes = np.asarray(unit[low:high])
    places = np.searchsorted(distinct, hashes)
    return np.asarray(places[distinct[places] == hashes])


class EarlierUnits:
    """The units of an earlier corpus, of which a list of needed docs tells for which docs there are tokens."""

    def __init__(self, needed: NeededList, units: Sequence[str]) -> None:
        """`units` are the checked local files of their docs (`local_unit_docs`)."""
        self._needed, self._units = needed, units
        self._last: tuple[int, _Range] | None = None

    def find_complete(self) -> _Mask:
        """Of each unit, whether every doc that is needed from it has tokens for each shard that needs it.

        A doc whose hash is in the earlier corpus more than once has none: whose tokens they are is unknown.
        """
        complete = np.ones(len(self._units), np.bool_)
        for number in range(len(self._needed.urls)):
            complete &= self._range(number).complete_units()
        return complete

    def publish_docs(self, some: _Mask, folder: str, prefix: str) -> NeededList:
        """Publishes the list of the needed docs that some units have."""
        urls, entries = [], 0
        for number in range(len(self._needed.urls)):
            docs = self._range(number).of_units(some)
            urls.append(docs.publish(folder, prefix, number))
            entries += len(docs.hashes)
        return NeededList(tuple(urls), entries)

    def _range(self, number: int) -> _Range:
        """The last one is kept: most jobs have one range."""
        if self._last is None or self._last[0] != number:
            self._last = None
            self._last = number, _Range.of(NeededDocs.open(self._needed.urls[number]), self._units)
        return self._last[1]


@contextmanager
def local_unit_docs(urls: Sequence[str]) -> Iterator[list[str]]:
    """The files of the docs of units on this machine, checked; copies of remote ones are removed at the end.

    Raises:
        DataError: a file does not hold what was written.
    """
    with TemporaryDirectory() as folder, ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        yield list(pool.map(_checked_copy(folder), urls))


def _checked_copy(folder: str) -> Callable[[str], str]:
    def copy(url: str) -> str:
        content = open_unit_docs(url)
        if not storage.is_remote(url):
            return storage.absolute(url)
        path = Path(folder, storage.name(url))
        path.write_bytes(content.tobytes())
        return str(path)

    return copy
