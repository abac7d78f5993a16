"""`torch.nn.attention.varlen.varlen_attn` as documented, on the CPU, where torch has no such
kernel.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int] = (-1, -1),
) -> Tensor:
    """Attention within each sequence. A window is around the key at the query's distance from the
    end.
    """
    assert query.shape[-1] % 8 == 0
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    counts, lengths = cu_seq_q.diff().tolist(), cu_seq_k.diff().tolist()
    assert (max(counts), max(lengths)) == (max_q, max_k)
    context = torch.empty_like(query)
    parts = zip(
        torch.split(context, counts),
        torch.split(query, counts),
        torch.split(key, lengths),
        torch.split(value, lengths),
        strict=True,
    )
    for out, q, k, v in parts:
        distance = torch.arange(len(k)) - (torch.arange(len(q))[:, None] + len(k) - len(q))
        left, right = (len(k) if reach < 0 else reach for reach in window_size)
        mask = (distance >= -left) & (distance <= right)
        q, k, v = (each.transpose(0, 1) for each in (q, k, v))
        out.copy_(
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).transpose(0, 1)
        )
    return context
