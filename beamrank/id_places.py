"""Where ids are in a column of millions: found by 64-bit hashes, without a dictionary of strings."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, ItemsView, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.storage.documents import hash64, hashes64

_IDS_AT_ONCE = 1 << 16
_Value = TypeVar("_Value")


class IdPlaces:
    """The places of distinct ids: 16 bytes an id beside the column, string[n]."""

    def __init__(self, ids: Any) -> None:
        self.ids = ids
        hashes = column_hashes(ids)
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def find(self, identifier: str) -> int | None:
        """The place of an id; None if it is not there."""
        wanted = np.uint64(hash64(identifier))
        at = int(np.searchsorted(self._hashes, wanted))
        while at < len(self._hashes) and self._hashes[at] == wanted:
            place = int(self._order[at])
            if self.ids[place].as_py() == identifier:
                return place
            at += 1
        return None

    def find_all(self, ids: Any) -> npt.NDArray[np.int64]:
        """The place of each id of a column; -1 for those that are not there: int64[m]."""
        if not len(self._hashes):
            return np.full(len(ids), -1, np.int64)
        hashes = column_hashes(ids)
        at = np.searchsorted(self._hashes, hashes).clip(max=len(self._hashes) - 1)
        places = np.where(self._hashes[at] == hashes, self._order[at], -1)
        found = np.flatnonzero(places >= 0)
        same = pc.equal(self.ids.take(pa.array(places[found])), ids.take(pa.array(found)))
        # Those whose hash another id has too.
        for row in found[~same.to_numpy(zero_copy_only=False)].tolist():
            place = self.find(ids[row].as_py())
            places[row] = -1 if place is None else place
        return places


class IdMapping(Mapping[str, _Value]):
    """A dictionary by ids whose values are made when they are read, each from the place of its id."""

    def __init__(self, places: IdPlaces, order: npt.NDArray[np.int64] | None = None) -> None:
        """Takes the places of the ids, and the order in which they are read, by default that of the places."""
        self.places, self.order = places, np.arange(len(places.ids)) if order is None else order

    @abstractmethod
    def at(self, place: int) -> _Value:
        """The value of the id at a place."""

    @property
    def ids(self) -> Any:
        """string[n], in their places."""
        return self.places.ids

    def __getitem__(self, identifier: str) -> _Value:
        place = self.places.find(identifier)
        if place is None:
            raise KeyError(identifier)
        return self.at(place)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _IDS_AT_ONCE):
            yield from self.ids.take(pa.array(self.order[start : start + _IDS_AT_ONCE])).to_pylist()

    def __contains__(self, identifier: object) -> bool:
        return isinstance(identifier, str) and self.places.find(identifier) is not None

    def __len__(self) -> int:
        return len(self.order)

    def items(self) -> ItemsView[str, _Value]:
        return _Items(self)


class _Items(ItemsView[str, _Value]):
    """Those of a mapping, read without looking for an id."""

    def __init__(self, mapping: IdMapping[_Value]) -> None:
        super().__init__(mapping)
        self._values = mapping

    def __iter__(self) -> Iterator[tuple[str, _Value]]:
        return zip(self._values, map(self._values.at, self._values.order.tolist()), strict=True)


def missing_ids(ids: Any, among: Collection[str] | Any) -> list[str]:
    """The ids of a column that others, a column or a collection, lack."""
    others = among if isinstance(among, pa.ChunkedArray) else pa.chunked_array([pa.array(list(among), pa.string())])
    # The smaller column becomes the table of the search.
    found = others.filter(pc.is_in(others, ids))
    return list(ids.filter(pc.invert(pc.is_in(ids, found))).to_pylist())


def column_hashes(ids: Any) -> npt.NDArray[np.uint64]:
    """The hash of each id of a column: uint64[n]."""
    chunks = pa.chunked_array([ids]).chunks if isinstance(ids, pa.Array) else ids.chunks
    parts = [
        hashes64(chunk.slice(start, _IDS_AT_ONCE).to_pylist())
        for chunk in chunks
        for start in range(0, len(chunk), _IDS_AT_ONCE)
    ]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def repeated_rows(
    hashes: npt.NDArray[np.uint64], keys: Callable[[Any], Sequence[Hashable]]
) -> Iterator[tuple[int, int]]:
    """The rows whose key an earlier row has, each with the first of these; ascending.

    Args:
        hashes: of the keys.
        keys: those of some rows, int64[m].
    """
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(np.diff(hashes[order]) == 0)
    rows = np.unique(order[np.concatenate([same, same + 1])])
    firsts: dict[Hashable, int] = {}
    for row, key in zip(rows.tolist(), keys(pa.array(rows)), strict=True):
        if firsts.setdefault(key, row) != row:
            yield row, firsts[key]
