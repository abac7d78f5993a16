"""The tokens of a batch as the rows that go through an encoder, and attention within each input.

Inputs of one number of rows are computed together. Where the GPU has a kernel for inputs of any
lengths, it takes all at once.
"""

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
    """The bias that a softmax adds to its products: bool[...] -> float32[...], 0 where they are
    seen and -inf elsewhere.
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
        prefix: how many ids of the first input are before its last text.
        padding: how many of them follow the last input.
        first_padding: how many of `first` do.
    """

    def __init__(
        self,
        token_ids: Tensor,
        token_types: Tensor,
        lengths: Sequence[int],
        layout: Layout = _PLAIN,
        prefix: int = 0,
    ) -> None:
        """Takes int[sum(lengths)] ids and token types of the inputs, one after the other, on the
        CPU.
        """
        self.layout, self.count, self.longest = layout, len(lengths), max(lengths, default=0)
        self.prefix = prefix
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


# Vectors of 16 values are 64 bytes in float32, a line of a CPU's cache. The fused kernels of a GPU
# take multiples of 8.
_ALIGNED, _ALIGNED_ON_GPU = 16, 8
# The longest vector that FlashAttention takes.
_LONGEST_VECTOR = 256
# Inputs of more tokens, and of more than so many windows, are computed in bands of queries: a mask
# of 8,192 * 8,192 is 256 MiB. What is computed for shorter ones can be traced for any length.
_LONGEST_SQUARE, _WIDEST_SQUARE, _BAND = 512, 4, 64


def supports_varlen(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a device has the kernel for inputs of any lengths: FlashAttention, from Ampere on, in
    half precision.
    """
    return (
        device.type == "cuda"
        and dtype in (torch.float16, torch.bfloat16)
        and torch.backends.cuda.is_flash_attention_available()
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def attend(query: Tensor, key: Tensor, value: Tensor, rows: TokenRows, window: int = 0) -> Tensor:
    """Softmax attention of all tokens.

    Args:
        query: float[t, heads, size], and so are `key` and `value`; they can be views of one tensor.
        key: as `query`.
        value: as `query`.
        rows: the batch.
        window: a token reads only those at most so many places away; 0 is all.

    Returns:
        float[t, heads * size]; zeros in the rows after the last input.
    """
    if kernels := rows.layout.kernels:
        return kernels.attention(query, key, value, rows.starts[:-1], rows.lengths, window)
    return _attend(query, key, value, rows, window)


def _attend(query: Tensor, key: Tensor, value: Tensor, rows: TokenRows, window: int) -> Tensor:
    if _takes_all(query, rows):
        reach = (window, window) if window else (-1, -1)
        return _varlen_attention(query, key, value, rows, (rows.starts, rows.longest), reach)
    size = query.shape[-1]
    query, key, value = (_padded(tensor) for tensor in (query, key, value))
    contexts = []
    for group in rows.groups:
        q, k, v = (group.split(tensor).transpose(1, 2) for tensor in (query, key, value))
        if 0 < window < group.length - 1:
            attended = _windowed_attention(q, k, v, group, window, size)
        else:
            attended = _softmax_attention(q, k, v, group.bias, size)
        contexts.append(attended.transpose(1, 2).reshape(group.count * group.length, -1))
    return _joined(contexts, rows.padding)


def attend_first(
    query: Tensor, key: Tensor, value: Tensor, rows: TokenRows, window: int = 0
) -> Tensor:
    """Softmax attention of each input's first token: float[f, heads, size] -> float[f, heads *
    size].
    """
    if kernels := rows.layout.kernels:
        asked = query[: rows.count]
        context = kernels.attention(
            asked, key, value, rows.starts[:-1], rows.lengths, window, first=True
        )
        return F.pad(context, (0, 0, 0, rows.first_padding))
    return _attend_first(query, key, value, rows, window)


def _attend_first(
    query: Tensor, key: Tensor, value: Tensor, rows: TokenRows, window: int
) -> Tensor:
    # With a window, the kernel would put it around the last token of each input.
    if _takes_all(query, rows) and not window:
        places = torch.arange(len(rows.starts), dtype=torch.int32, device=query.device)
        return _varlen_attention(query, key, value, rows, (places, 1))
    size = query.shape[-1]
    query, key, value = (_padded(tensor) for tensor in (query, key, value))
    contexts, place = [], 0
    for group in rows.groups:
        reach = slice(0, window + 1 if window else group.length)
        first = query[place : place + group.count, :, None]
        keys, values = (group.split(tensor)[:, reach].transpose(1, 2) for tensor in (key, value))
        bias = None if group.bias is None else group.bias[..., reach]
        contexts.append(_softmax_attention(first, keys, values, bias, size).flatten(1))
        place += group.count
    return _joined(contexts, rows.first_padding)


def _joined(contexts: list[Tensor], padding: int) -> Tensor:
    """The contexts one after the other, then rows of zeros."""
    if not padding:
        return torch.cat(contexts) if len(contexts) > 1 else contexts[0]
    return torch.cat([*contexts, contexts[0].new_zeros(padding, contexts[0].shape[1])])


def _takes_all(query: Tensor, rows: TokenRows) -> bool:
    return rows.layout.varlen and query.shape[-1] <= _LONGEST_VECTOR


def _varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: TokenRows,
    queries: tuple[Tensor, int],
    reach: tuple[int, int] = (-1, -1),
) -> Tensor:
    """float[t, heads * size] of one call; `queries`: where each input's queries begin, and how many
    it has at most.
    """
    # Imports the compiler of torch, which takes seconds.
    from torch.nn.attention.varlen import varlen_attn

    size = query.shape[-1]
    starts, longest = queries
    context = varlen_attn(
        _padded(query),
        _padded(key),
        _padded(value),
        starts,
        rows.starts,
        longest,
        rows.longest,
        scale=size**-0.5,
        window_size=reach,
    )
    assert isinstance(context, Tensor)
    return context[..., :size].flatten(1)


def _softmax_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, size: int
) -> Tensor:
    """float[b, heads, n, size] from padded vectors, float[b, heads, n, padded] and float[b, heads,
    m, padded] twice.
    """
    bias = None if bias is None else bias.to(query.dtype)
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=size**-0.5)
    return context[..., :size]


def _padded(vectors: Tensor) -> Tensor:
    """The vectors with zeros at their ends, which do not change a product.

    On a CPU, a product may round by the alignment of its vectors in memory: the padding gives all
    the same. On a GPU, the fused kernels need it.
    """
    padding = -vectors.shape[-1] % (_ALIGNED if vectors.device.type == "cpu" else _ALIGNED_ON_GPU)
    return F.pad(vectors, (0, padding)) if padding else vectors


def _windowed_attention(
    query: Tensor, key: Tensor, value: Tensor, group: Group, window: int, size: int
) -> Tensor:
    """As `_softmax_attention`, of tokens at most so many places away."""
    length = query.shape[2]
    places = torch.arange(length, device=query.device)
    if length <= max(_LONGEST_SQUARE, _WIDEST_SQUARE * window):
        return _softmax_attention(query, key, value, _near(places, places, group, window), size)
    contexts = []
    for start in range(0, length, _BAND):
        band, reach = (
            slice(start, start + _BAND),
            slice(max(0, start - window), start + _BAND + window),
        )
        bias = _near(places[band], places[reach], group, window)
        contexts.append(
            _softmax_attention(query[:, :, band], key[:, :, reach], value[:, :, reach], bias, size)
        )
    return torch.cat(contexts, dim=2)


def _near(queries: Tensor, keys: Tensor, group: Group, window: int) -> Tensor:
    """float32[..., n, m] that hides from each place of `queries` the `keys` that are far or are no
    token.

    A row of padding reads itself: a softmax over nothing would give NaN, which the rows of tokens
    would read then.
    """
    distance = (queries[:, None] - keys).abs()
    if group.is_token is None:
        return hiding(distance <= window)
    return hiding((distance <= window) & group.is_token[:, None, None, keys] | (distance == 0))
