"""The tokens of a batch as the rows that go through an encoder."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from models.architectures.kernels.compiled import Kernels

_MULTIPLE = 16
_Lengths = TypeVar("_Lengths", Tensor, npt.NDArray[np.int64])


@dataclass(frozen=True)
class Layout:
    """How inputs become rows; the default is one after the other without padding, for a GPU.

    Attributes:
        kernels: the compiled operations of a block; None for torch's.
        block: on a CPU, how many rows a batch has. Rows of zeros fill it up; a single input that
            needs more has as many as it needs. The rounding of a sum may depend on the number of
            rows, but not on their values. So with a fixed number, a score follows from its own
            input.
        varlen: whether attention is one call for all inputs, of a kernel that only some GPUs have,
            and not by groups.
    """

    block: int = 0
    kernels: "Kernels | None" = None
    varlen: bool = False

    def rows_of(self, lengths: _Lengths) -> _Lengths:
        """The rows that inputs of so many tokens take: at least 16 in a block, and multiples of it
        for torch.
        """
        if not self.block:
            return lengths
        return lengths.clip(_MULTIPLE) if self.kernels else -(-lengths // _MULTIPLE) * _MULTIPLE

    def first_rows(self, rows: int) -> int:
        """How many rows the first tokens of a batch of so many rows take: as many as it can have
        inputs.
        """
        return rows // _MULTIPLE


_PLAIN = Layout()


@dataclass(frozen=True)
class Group:
    """Consecutive inputs of one number of rows: `count` inputs of `length` rows, from row `start`.

    Attributes:
        is_token: bool[count, length], which rows are tokens; None where all are.
    """

    start: int
    count: int
    length: int
    is_token: Tensor | None = None

    @property
    def rows(self) -> slice:
        """Its rows."""
        return slice(self.start, self.start + self.count * self.length)

    def split(self, values: Tensor) -> Tensor:
        """[rows, ...] -> the group's [count, length, ...], a view."""
        return values[self.rows].view(self.count, self.length, *values.shape[1:])

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the tokens of each input: [rows, d] -> [count, d]."""
        split = self.split(values)
        if self.is_token is None:
            return split.mean(dim=1)
        kept = self.is_token.to(values.dtype)[..., None]
        return (split * kept).sum(dim=1) / kept.sum(dim=1)

    @cached_property
    def bias(self) -> Tensor | None:
        """float32[count, 1, 1, length] that hides keys which are no tokens from a softmax: 0 or
        -inf.
        """
        return None if self.is_token is None else hiding(self.is_token)[:, None, None]


def hiding(seen: Tensor) -> Tensor:
    """What a softmax adds to its products: bool[...] -> float32[...], 0 where they are seen and
    -inf elsewhere.
    """
    return torch.zeros_like(seen, dtype=torch.float32).masked_fill(~seen, -torch.inf)


class TokenRows:
    """The tokens of b inputs as t rows. Inputs of one length should be side by side: attention goes
    by groups.

    Attributes:
        layout: how inputs become rows.
        count: b.
        token_ids: int32[t].
        token_types: int32[t].
        positions: int32[t], the place of each token in its input, from 0.
        starts: int32[b + 1], the row of each input's first token, and that after the last input.
        lengths: int32[b], the tokens of each input, on the CPU.
        first: int32[f], the row of each input's first token; in a block, rows of padding follow.
        groups: the consecutive inputs of one number of rows.
        longest: the number of tokens of the longest input.
        rows: t.
        padding: how many of them follow the last input.
        first_padding: how many of `first` do.
    """

    def __init__(
        self,
        token_ids: Tensor,
        token_types: Tensor,
        lengths: Sequence[int],
        layout: Layout = _PLAIN,
    ) -> None:
        """Takes int[sum(lengths)] ids and token types of the inputs, one after the other, on the
        CPU.
        """
        self.layout, self.count, self.longest = layout, len(lengths), max(lengths, default=0)
        counts = torch.tensor(lengths, dtype=torch.long)
        taken = layout.rows_of(counts)
        ends = F.pad(torch.cumsum(taken, 0), (1, 0))
        self.lengths = counts.int()
        self.rows = max(int(ends[-1]), layout.block)
        self.padding = self.rows - int(ends[-1])
        positions = torch.arange(len(token_ids)) - torch.repeat_interleave(
            torch.cumsum(counts, 0) - counts, counts
        )
        columns = torch.zeros(3, self.rows, dtype=torch.int32)
        places = torch.repeat_interleave(ends[:-1], counts) + positions
        columns[:, places] = torch.stack([token_ids, token_types, positions]).int()
        self.groups = tuple(_groups(taken.tolist(), counts if layout.block else None))
        self.first_padding = layout.first_rows(self.rows) - self.count if layout.block else 0
        self._set(
            torch.cat(
                [columns.flatten(), ends.int(), F.pad(ends[:-1], (0, self.first_padding)).int()]
            )
        )

    def to(self, device: torch.device | str) -> "TokenRows":
        """The rows on a device, in one copy. From pinned memory, the copy goes on while this thread
        continues.
        """
        return self._with(self._numbers.to(device, non_blocking=True))

    def pin(self) -> "TokenRows":
        """The rows in memory that a CUDA device can read by itself."""
        return self._with(self._numbers.pin_memory())

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keeps the memory until what is queued on a stream now has run; needed for another stream
        than the copy's.
        """
        self._numbers.record_stream(stream)

    def _with(self, numbers: Tensor) -> "TokenRows":
        moved = copy(self)
        moved._set(numbers)
        return moved

    def _set(self, numbers: Tensor) -> None:
        self._numbers = numbers
        columns, self.starts, self.first = numbers.tensor_split(
            (3 * self.rows, 3 * self.rows + self.count + 1)
        )
        self.token_ids, self.token_types, self.positions = columns.view(3, -1)


def _groups(taken: list[int], lengths: Tensor | None) -> Iterator[Group]:
    """Groups of inputs that take so many rows; where they take more than they have tokens, with the
    tokens.
    """
    start = begin = 0
    for place, rows in enumerate(taken):
        if place + 1 == len(taken) or taken[place + 1] != rows:
            count = place + 1 - begin
            is_token = (
                None if lengths is None else torch.arange(rows) < lengths[begin : place + 1, None]
            )
            yield Group(start, count, rows, is_token)
            start += count * rows
            begin = place + 1
