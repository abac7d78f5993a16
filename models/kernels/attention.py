"""Attention within each input of a batch, without masks: inputs of one length are computed together."""

import torch
import torch.nn.functional as F
from torch import Tensor

from models.kernels.token_rows import TokenRows

# Vectors of 16 values are 64 bytes in float32, a line of the cache.
_ALIGNED = 16


def attend(query: Tensor, key: Tensor, value: Tensor, rows: TokenRows, window: int = 0) -> Tensor:
    """Softmax attention of all tokens.

    Args:
        query: float[t, heads, size], and so are `key` and `value`; they can be views of one tensor.
        key: as `query`.
        value: as `query`.
        rows: the batch.
        window: a token reads only those at most so many places away; 0 is all.

    Returns:
        float[t, heads * size]; zeros in the rows of padding.
    """
    context = query.new_empty(len(query), query.shape[1] * query.shape[2])
    context[rows.tokens :] = 0
    for group in rows.groups:
        q, k, v = (group.split(each).transpose(1, 2) for each in (query, key, value))
        mask = _near(group.length, window, query.device) if 0 < window < group.length - 1 else None
        attended = _softmax_attention(q, k, v, mask).transpose(1, 2)
        group.split(context).copy_(attended.reshape(group.count, group.length, -1))
    return context


def attend_first(query: Tensor, key: Tensor, value: Tensor, rows: TokenRows, window: int = 0) -> Tensor:
    """Softmax attention of each input's first token: float[b, heads, size] -> float[b, heads * size]."""
    contexts, place = [], 0
    for group in rows.groups:
        reach = slice(0, window + 1 if window else group.length)
        first = query[place : place + group.count, :, None]
        keys, values = (group.split(each)[:, reach].transpose(1, 2) for each in (key, value))
        contexts.append(_softmax_attention(first, keys, values).flatten(1))
        place += group.count
    return torch.cat(contexts)


def _softmax_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """float[b, heads, n, size] from the same and float[b, heads, m, size] twice.

    On a CPU, a product may round by the alignment of its vectors in memory: the padding gives all the same.
    """
    size = query.shape[-1]
    padding = -size % _ALIGNED
    if not padding:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    query, key, value = (F.pad(each, (0, padding)) for each in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=size**-0.5)[..., :size]


def _near(length: int, window: int, device: torch.device) -> Tensor:
    places = torch.arange(length, device=device)
    return (places[:, None] - places).abs() <= window
