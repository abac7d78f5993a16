"""The tokens of a batch as rows: the inputs one after the other, without padding between them."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Group:
    """Consecutive inputs of one length: `count` inputs of `length` tokens, from row `start`."""

    start: int
    count: int
    length: int

    @property
    def rows(self) -> slice:
        """Its rows."""
        return slice(self.start, self.start + self.count * self.length)

    def split(self, values: Tensor) -> Tensor:
        """[rows, ...] -> the group's [count, length, ...], a view."""
        return values[self.rows].view(self.count, self.length, *values.shape[1:])


class TokenRows:
    """The tokens of b inputs, t rows in all. Inputs of one length should be side by side: attention goes by groups.

    On a CPU, `block` is how many rows a product takes at a time. The rounding of a sum may depend on the number of
    rows, but not on their values; so with a fixed number, a row's result depends on that row alone. Rows of padding
    at the end make t a multiple of it. On a GPU it is 0: all rows at once.

    Attributes:
        token_ids: int32[t].
        token_types: int32[t].
        positions: int32[t], the place of each token in its input, from 0.
        starts: int32[b + 1], the row of each input's first token, and the number of tokens.
        first: int32[b], the row of each input's first token.
        groups: the consecutive inputs of one length.
        longest: the number of tokens of the longest input.
        tokens: the number of rows that are tokens.
        padding: the number of rows after them.
        varlen: whether attention is one call for all inputs, of a kernel that only some GPUs have, and not by groups.
    """

    def __init__(
        self, token_ids: Tensor, token_types: Tensor, lengths: list[int], block: int = 0, varlen: bool = False
    ) -> None:
        """Takes int[sum(lengths)] ids and token types of the inputs, one after the other, on the CPU."""
        self.block = block
        self.varlen = varlen
        self.tokens = len(token_ids)
        self.padding = -self.tokens % block if block else 0
        self.longest = max(lengths, default=0)
        self.groups = tuple(_groups(lengths))
        counts = torch.tensor(lengths, dtype=torch.long)
        ends = torch.cumsum(counts, 0)
        positions = torch.arange(self.tokens) - torch.repeat_interleave(ends - counts, counts)
        columns = F.pad(torch.stack([token_ids, token_types, positions]).int(), (0, self.padding))
        self._set(torch.cat([columns.flatten(), F.pad(ends, (1, 0)).int()]))

    def to(self, device: torch.device | str) -> "TokenRows":
        """The rows on a device, in one copy. From pinned memory, the copy goes on while this thread continues."""
        return self._with(self._numbers.to(device, non_blocking=True))

    def pin(self) -> "TokenRows":
        """The rows in memory that a CUDA device can read by itself."""
        return self._with(self._numbers.pin_memory())

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keeps the memory until what is queued on a stream now has run; needed for another stream than the copy's."""
        self._numbers.record_stream(stream)

    def _with(self, numbers: Tensor) -> "TokenRows":
        moved = copy(self)
        moved._set(numbers)
        return moved

    def _set(self, numbers: Tensor) -> None:
        self._numbers = numbers
        rows = self.tokens + self.padding
        self.token_ids, self.token_types, self.positions = numbers[: 3 * rows].view(3, -1)
        self.starts = numbers[3 * rows :]
        self.first = self.starts[:-1]

    def by_blocks(self, function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
        """`function(*rows)` of a function that computes each row of its result from the same row of its arguments.

        Args:
            function: takes [r, ...] tensors and returns one.
            rows: [r, ...] each; the rows of tokens, or one row of each input.
        """
        if not self.block:
            return function(*rows)
        count = len(rows[0])
        padding = -count % self.block
        if padding:
            rows = tuple(torch.cat([each, each.new_zeros(padding, *each.shape[1:])]) for each in rows)
        if count <= self.block:
            return function(*rows)[:count]
        result = None
        for start in range(0, count, self.block):
            block = function(*(each[start : start + self.block] for each in rows))
            if result is None:
                result = block.new_empty(count, *block.shape[1:])
            result[start : start + self.block] = block[: count - start]
        assert result is not None
        return result


class EqualRows(TokenRows):
    """The tokens of inputs of one length, in operations that can be traced for any number of inputs and any length."""

    def __init__(self, token_ids: Tensor, token_types: Tensor) -> None:
        """Takes int[b, n] ids and token types. In a trace, b and n are variables."""
        count, length = token_ids.shape
        self.block = self.padding = 0
        self.varlen = False
        self.tokens = count * length
        self.token_ids, self.token_types = token_ids.reshape(-1), token_types.reshape(-1)
        self.positions = (torch.ones_like(token_ids).cumsum(1) - 1).reshape(-1)
        self.first = torch.arange(count) * length
        self.groups = (Group(0, count, length),)


def _groups(lengths: list[int]) -> Iterator[Group]:
    start = begin = 0
    for place, length in enumerate(lengths):
        if place + 1 == len(lengths) or lengths[place + 1] != length:
            yield Group(start, place + 1 - begin, length)
            start += (place + 1 - begin) * length
            begin = place + 1
