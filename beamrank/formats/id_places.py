"""Ids in columns of millions: found by 64-bit hashes, without a dictionary of strings."""

from collections.abc import Callable, Collection, ItemsView, Iterator, Mapping
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
        starts = range(0, len(ids), _IDS_AT_ONCE)
        parts = [hashes64(ids.slice(start, _IDS_AT_ONCE).to_pylist()) for start in starts]
        hashes = np.concatenate([np.empty(0, np.uint64), *parts])
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def find(self, identifier: str) -> int | None:
        """The place of an id; None if it is not there."""
        wanted = np.uint64(hash64(identifier))
        first, end = (np.searchsorted(self._hashes, wanted, side) for side in ("left", "right"))
        places = self._order[first:end].tolist()
        return next((place for place in places if self.ids[place].as_py() == identifier), None)


class IdMapping(Mapping[str, _Value]):
    """A dictionary by ids whose values are made when they are read, each from the place of its id.

    Attributes:
        places: of the ids.
        at: the value of the id at a place.
        order: the places in the order in which they are read.
    """

    def __init__(
        self,
        places: IdPlaces,
        at: Callable[[int], _Value],
        order: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """By default in the order of the places."""
        self.places, self.at = places, at
        self.order = np.arange(len(places.ids)) if order is None else order

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
    """The items of a mapping, read without looking for an id."""

    def __init__(self, mapping: IdMapping[_Value]) -> None:
        super().__init__(mapping)
        self._values = mapping

    def __iter__(self) -> Iterator[tuple[str, _Value]]:
        return zip(self._values, map(self._values.at, self._values.order.tolist()), strict=True)


def missing_ids(ids: Any, among: Collection[str] | Any) -> list[str]:
    """The ids of a column that others, a column or a collection, lack."""
    others = (
        among
        if isinstance(among, pa.ChunkedArray)
        else pa.chunked_array([pa.array(list(among), pa.string())])
    )
    # The smaller column becomes the table of the search.
    present = others.filter(pc.is_in(others, ids))
    return list(ids.filter(pc.invert(pc.is_in(ids, present))).to_pylist())


def repeated_rows(*columns: Any) -> list[tuple[int, int]]:
    """The rows whose values in some columns an earlier row has, each with the first of these;
    ascending.

    Takes 24 bytes a row: rows are compared where their hashes are equal, which are Python's.
    """
    hashes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        for start in range(0, len(hashes), _IDS_AT_ONCE):
            values = column.slice(start, _IDS_AT_ONCE).to_pylist()
            part = hashes[start : start + len(values)]
            part *= 1_000_003
            part ^= np.fromiter(map(hash, values), np.int64, len(values))
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(np.diff(hashes[order]) == 0)
    rows = np.unique(order[np.concatenate([same, same + 1])])
    keys = zip(*(column.take(pa.array(rows)).to_pylist() for column in columns), strict=True)
    firsts: dict[Any, int] = {}
    pairs = (
        (row, firsts.setdefault(key, row)) for row, key in zip(rows.tolist(), keys, strict=True)
    )
    return [(row, first) for row, first in pairs if row != first]
