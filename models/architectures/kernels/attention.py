"""Attention within each input of a batch.

Inputs of one number of rows are computed together. Where the GPU has a kernel for inputs of any
lengths, it takes all at once.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from models.architectures.kernels.token_rows import Group, TokenRows, hiding

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
    if _takes_all(query, rows):
        reach = (window, window) if window else (-1, -1)
        return _varlen_attention(query, key, value, rows, (rows.starts, rows.longest), reach)
    size = query.shape[-1]
    query, key, value = (_padded(each) for each in (query, key, value))
    contexts = []
    for group in rows.groups:
        q, k, v = (group.split(each).transpose(1, 2) for each in (query, key, value))
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
    # With a window, the kernel would put it around the last token of each input.
    if _takes_all(query, rows) and not window:
        each = torch.arange(len(rows.starts), dtype=torch.int32, device=query.device)
        return _varlen_attention(query, key, value, rows, (each, 1))
    size = query.shape[-1]
    query, key, value = (_padded(each) for each in (query, key, value))
    contexts, place = [], 0
    for group in rows.groups:
        reach = slice(0, window + 1 if window else group.length)
        first = query[place : place + group.count, :, None]
        keys, values = (group.split(each)[:, reach].transpose(1, 2) for each in (key, value))
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
    """float[t, heads * size] of one call; `queries`: where those of each input begin, and how many
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
        some, reach = (
            slice(start, start + _BAND),
            slice(max(0, start - window), start + _BAND + window),
        )
        bias = _near(places[some], places[reach], group, window)
        contexts.append(
            _softmax_attention(query[:, :, some], key[:, :, reach], value[:, :, reach], bias, size)
        )
    return torch.cat(contexts, dim=2)


def _near(queries: Tensor, keys: Tensor, group: Group, window: int) -> Tensor:
    """float32[..., n, m] that hides from each place of `queries` those of `keys` that are far or
    are no token.

    A row of padding reads itself: a softmax over nothing would give NaN, which the rows of tokens
    would read then.
    """
    distance = (queries[:, None] - keys).abs()
    if group.is_token is None:
        return hiding(distance <= window)
    return hiding((distance <= window) & group.is_token[:, None, None, keys] | (distance == 0))
