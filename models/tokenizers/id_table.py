"""A memory for the token ids of words."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.tokenizers.base import Ids, Lengths, gather_rows

_LONGEST_KEPT_CHARS = 40


class IdTable:
    """Token ids by text. Missing texts are computed once, all new texts of a call together.

    A full table keeps, of the first half of its rows, the short ones: frequent words come early and
    are rarely long. So it never holds more than `max_rows` texts of `max_chars` characters in all,
    and one call's new texts. With the defaults and English words a full table takes about 60 MB.
    `compute` gives the ids of new texts one after the other and how many each has.
    """

    def __init__(
        self,
        dtype: np.dtype[Any],
        compute: Callable[[Sequence[str]], tuple[Ids, Lengths]],
        max_rows: int = 1 << 18,
        max_chars: int = 1 << 23,
    ) -> None:
        self._dtype = dtype
        self._compute = compute
        self._max_rows = max_rows
        self._max_chars = max_chars
        self._clear()

    def __len__(self) -> int:
        return len(self._rows)

    def rows_of(self, texts: Iterable[str], count: int) -> NDArray[np.int32]:
        """The row of each of `count` texts. Rows are valid until the next call of this method."""
        if len(self._rows) > self._max_rows or self._chars > self._max_chars:
            self._forget()
        before = len(self._rows)
        try:
            rows = np.fromiter(map(self._rows.__getitem__, texts), np.int32, count=count)
            new = list(islice(reversed(self._rows), len(self._rows) - before))[::-1]
            if new:
                self._append(new, *self._compute(new))
        except BaseException:
            # Rows without ids must not outlive this call.
            self._clear()
            raise
        return rows

    def lengths(self, rows: NDArray[np.int32]) -> Lengths:
        """The number of ids of each of these rows."""
        return self._ends[rows + 1] - self._ends[rows]

    def gather(self, rows: NDArray[np.int32], lengths: Lengths) -> Ids:
        """The ids of these rows, one after the other; `lengths` is what `lengths(rows)` gave."""
        return gather_rows(self._ids, self._ends[rows], lengths)

    def _clear(self) -> None:
        # A missing text gets the next row inside the dictionary's own C code.
        self._rows: defaultdict[str, int] = defaultdict()
        self._rows.default_factory = self._rows.__len__
        self._chars = 0
        self._ids = np.empty(1024, self._dtype)
        self._ends = np.zeros(1024, np.int64)

    def _append(self, new: Sequence[str], ids: Ids, lengths: Lengths) -> None:
        count = len(self._rows)
        first = count - len(new)
        start = int(self._ends[first])
        self._ends = _with_room(self._ends, first + 1, count + 1)
        self._ends[first + 1 : count + 1] = start + np.cumsum(lengths)
        self._ids = _with_room(self._ids, start, start + len(ids))
        self._ids[start : start + len(ids)] = ids
        self._chars += sum(map(len, new))

    def _forget(self) -> None:
        half = list(islice(self._rows, self._max_rows // 2))
        rows = np.array(
            [row for row, text in enumerate(half) if len(text) <= _LONGEST_KEPT_CHARS], np.int32
        )
        lengths = self.lengths(rows)
        ids = self.gather(rows, lengths)
        self._clear()
        kept = [half[row] for row in rows]
        for text in kept:
            self._rows[text]
        self._append(kept, ids, lengths)


def _with_room(buffer: Ids, used: int, size: int) -> Ids:
    if size <= len(buffer):
        return buffer
    grown = np.empty(max(size, 2 * len(buffer)), buffer.dtype)
    grown[:used] = buffer[:used]
    return grown
