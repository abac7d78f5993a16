"""The tokens of a batch as rows: the inputs one after the other, without padding between them."""

from collections.abc import Callable, Iterator
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
        token_ids: int[t].
        token_types: int[t].
        positions: int[t], the place of each token in its input, from 0.
        lengths: the number of tokens of each input.
        groups: the consecutive inputs of one length.
        first: int[b], the row of each input's first token.
        tokens: the number of rows that are tokens; those after them are padding.
    """

    def __init__(self, token_ids: Tensor, token_types: Tensor, lengths: list[int], block: int = 0) -> None:
        """Takes int[sum(lengths)] ids and token types of the inputs, one after the other."""
        self.block = block
        self.lengths = lengths
        self.tokens = len(token_ids)
        padding = -self.tokens % block if block else 0
        counts = torch.tensor(lengths)
        first = torch.cumsum(counts, 0) - counts
        positions = torch.arange(self.tokens) - torch.repeat_interleave(first, counts)
        device = token_ids.device
        self.token_ids, self.token_types = F.pad(token_ids, (0, padding)), F.pad(token_types, (0, padding))
        self.positions = F.pad(positions, (0, padding)).to(device)
        self.first = first.to(device)
        self.groups = tuple(_groups(lengths))

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


def _groups(lengths: list[int]) -> Iterator[Group]:
    start = begin = 0
    for place, length in enumerate(lengths):
        if place + 1 == len(lengths) or lengths[place + 1] != length:
            yield Group(start, place + 1 - begin, length)
            start += (place + 1 - begin) * length
            begin = place + 1
