from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from models.kernels.attention import attend, attend_first
from models.kernels.token_rows import TokenRows

_LENGTHS = [97, 64, 64, 41, 33, 32, 32, 32, 17, 9, 8, 7, 3, 1, 1]


def _attend(vectors: Tensor, order: Sequence[int]) -> list[Tensor]:
    """The context of every token, and of the first, of some of the inputs."""
    chosen, lengths = torch.split(vectors, _LENGTHS), [_LENGTHS[place] for place in order]
    nothing = torch.zeros(sum(lengths), dtype=torch.long)
    rows = TokenRows(nothing, nothing, lengths, 16)
    padding = vectors.new_zeros(len(rows.token_ids) - rows.tokens, *vectors.shape[1:])
    query, key, value = torch.cat([*(chosen[place] for place in order), padding]).unbind(1)
    every = torch.split(attend(query, key, value, rows)[: rows.tokens], lengths)
    first = attend_first(query[rows.first], key, value, rows)
    return [torch.cat(each) for each in zip(every, first[:, None], strict=True)]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [7, 10, 12, 15, 32, 34, 35, 64])
def test_attention_has_the_same_bits_beside_others(size, dtype):
    vectors = torch.randn(sum(_LENGTHS), 3, 3, size, generator=torch.Generator().manual_seed(size)).to(dtype)
    together = _attend(vectors, range(len(_LENGTHS)))
    for order in ([11, 3, 0, 12, 4], *([place] for place in range(len(_LENGTHS)))):
        for place, context in zip(order, _attend(vectors, order), strict=True):
            assert torch.equal(context, together[place])
