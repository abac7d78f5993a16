from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from models.architectures.kernels.attention import attend, attend_first
from models.architectures.kernels.token_rows import TokenRows

_LENGTHS = [700, 700, 513, 97, 64, 64, 41, 33, 32, 32, 32, 17, 9, 8, 7, 3, 1, 1]


def _attend(vectors: Tensor, order: Sequence[int], window: int) -> list[Tensor]:
    """The context of every token, and of the first, of some of the inputs."""
    chosen, lengths = torch.split(vectors, _LENGTHS), [_LENGTHS[place] for place in order]
    nothing = torch.zeros(sum(lengths), dtype=torch.long)
    rows = TokenRows(nothing, nothing, lengths, 16)
    padding = vectors.new_zeros(len(rows.token_ids) - rows.tokens, *vectors.shape[1:])
    query, key, value = torch.cat([*(chosen[place] for place in order), padding]).unbind(1)
    every = torch.split(attend(query, key, value, rows, window)[: rows.tokens], lengths)
    first = attend_first(query[rows.first], key, value, rows, window)
    return [torch.cat(each) for each in zip(every, first[:, None], strict=True)]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("size", "window"), [*((size, 0) for size in (7, 10, 12, 15, 32, 34, 35, 64)), (12, 20), (64, 70)]
)
def test_attention_has_the_same_bits_beside_others(size, window, dtype):
    vectors = torch.randn(sum(_LENGTHS), 3, 3, size, generator=torch.Generator().manual_seed(size)).to(dtype)
    together = _attend(vectors, range(len(_LENGTHS)), window)
    for order in ([14, 6, 1, 15, 7, 2], *([place] for place in range(len(_LENGTHS)))):
        for place, context in zip(order, _attend(vectors, order, window), strict=True):
            assert torch.equal(context, together[place])


@pytest.mark.parametrize("length", [512, 513, 700])
@pytest.mark.parametrize("window", [1, 64, 500])
def test_window_reads_the_tokens_near_by(window, length):
    query, key, value = torch.randn(3, length, 2, 8, generator=torch.Generator().manual_seed(1))
    nothing = torch.zeros(length, dtype=torch.long)
    found = attend(query, key, value, TokenRows(nothing, nothing, [length]), window)
    far = (torch.arange(length)[:, None] - torch.arange(length)).abs() > window
    products = torch.einsum("qhs,khs->hqk", query, key) / 8**0.5
    wanted = torch.einsum("hqk,khs->qhs", products.masked_fill(far, -torch.inf).softmax(-1), value).flatten(1)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
