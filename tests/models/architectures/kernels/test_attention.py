"""The operations give what torch's own give, and the bits of a row do not depend on the other
rows.
"""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from models.architectures.encoder.model import BLOCK_ROWS
from models.architectures.kernels.attention import Layout, TokenRows, attend, attend_first
from models.architectures.kernels.rowwise import Linear

_LENGTHS = [700, 700, 513, 97, 64, 64, 41, 33, 32, 32, 32, 17, 9, 8, 7, 3, 1, 1]


def _rows(lengths: Sequence[int], block: int = 64) -> TokenRows:
    nothing = torch.zeros(sum(lengths), dtype=torch.long)
    return TokenRows(nothing, nothing, lengths, Layout(block))


def _spread(vectors: Sequence[Tensor], rows: TokenRows, filling: float = 0.0) -> Tensor:
    """The vectors of inputs at their rows, those of padding filled with a number."""
    spread = torch.full((rows.rows, *vectors[0].shape[1:]), filling, dtype=vectors[0].dtype)
    for start, each in zip(rows.starts.tolist(), vectors, strict=False):
        spread[start : start + len(each)] = each
    return spread


def _attend(vectors: Sequence[Tensor], window: int, filling: float) -> tuple[list[Tensor], Tensor]:
    """The context of every token of each input, and of each input's first."""
    rows = _rows(list(map(len, vectors)))
    query, key, value = _spread(vectors, rows, filling).unbind(1)
    every, firsts = (
        attend(query, key, value, rows, window),
        attend_first(query[rows.first], key, value, rows, window),
    )
    assert every.shape[0] == rows.rows
    starts = rows.starts.tolist()
    assert not every[starts[-1] :].any()
    contexts = [
        every[start : start + len(each)] for start, each in zip(starts, vectors, strict=False)
    ]
    return contexts, firsts[: len(vectors)]


def _wanted(vectors: Tensor, window: int) -> Tensor:
    """Softmax attention of one input, written out in float32."""
    query, key, value = vectors.float().unbind(1)
    distance = (torch.arange(len(query))[:, None] - torch.arange(len(query))).abs()
    products = torch.einsum("qhs,khs->hqk", query, key) / query.shape[-1] ** 0.5
    if window:
        products = products.masked_fill(distance > window, -torch.inf)
    return torch.einsum("hqk,khs->qhs", products.softmax(-1), value).flatten(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("size", "window"),
    [*((size, 0) for size in (7, 10, 12, 15, 32, 34, 35, 64)), (12, 20), (64, 70)],
)
def test_attention_is_softmax_attention_with_the_same_bits_beside_others(size, window, dtype):
    vectors = torch.randn(
        sum(_LENGTHS), 3, 3, size, generator=torch.Generator().manual_seed(size)
    ).to(dtype)
    inputs = torch.split(vectors, _LENGTHS)
    together, firsts = _attend(inputs, window, 0.0)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.04}[dtype]
    for place, each in enumerate(inputs):
        wanted = _wanted(each, window).to(dtype)
        torch.testing.assert_close(together[place], wanted, rtol=0, atol=tolerance)
        torch.testing.assert_close(firsts[place], wanted[0], rtol=0, atol=tolerance)
    for order in ([14, 6, 1, 15, 7, 2], *([place] for place in range(len(_LENGTHS)))):
        contexts, others = _attend([inputs[place] for place in order], window, 7.0)
        for place, context, first in zip(order, contexts, others, strict=True):
            assert torch.equal(context, together[place])
            assert torch.equal(first, firsts[place])


@pytest.mark.parametrize("length", [512, 513, 700])
@pytest.mark.parametrize("window", [1, 64, 500])
@pytest.mark.parametrize("block", [0, 64], ids=["whole", "padded"])
def test_window_reads_the_tokens_near_by(window, length, block):
    vectors = torch.randn(length, 3, 2, 8, generator=torch.Generator().manual_seed(1))
    rows = _rows([length], block)
    query, key, value = _spread([vectors], rows).unbind(1)
    found = attend(query, key, value, rows, window)[:length]
    torch.testing.assert_close(found, _wanted(vectors, window), rtol=0, atol=1e-5)


DTYPES = [torch.float32, torch.bfloat16]


def _linear(inner: int, outer: int, dtype: torch.dtype, activation: str = "none") -> Linear:
    weights = {"map.weight": torch.randn(outer, inner) / inner**0.5, "map.bias": torch.randn(outer)}
    return Linear(weights, "map", activation=activation).to(dtype)


@pytest.fixture(autouse=True)
def _seeded(one_thread: None) -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["none", "gelu", "gelu_tanh"])
def test_packed_linear_equals_the_plain_one(dtype, activation):
    linear, rows, residual = (
        _linear(70, 96, dtype, activation),
        torch.randn(40, 70).to(dtype),
        torch.randn(40, 96),
    )
    plain = linear(rows), None if activation != "none" else linear(rows, residual.to(dtype))
    linear.pack(40)
    # Processors with AVX2 alone keep bfloat16 weights as they are.
    packs = dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert (linear.weight.numel() == 0) == packs
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.04}[dtype]
    torch.testing.assert_close(linear(rows), plain[0], rtol=0, atol=tolerance)
    if plain[1] is not None:
        torch.testing.assert_close(
            linear(rows, residual.to(dtype)), plain[1], rtol=0, atol=tolerance
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(384, 1536), (1536, 384), (442, 1326), (768, 768)], ids=str)
def test_row_of_a_block_has_the_same_bits_at_every_place(dtype, sizes):
    linear, block = _linear(sizes[0], sizes[1], dtype, "gelu"), BLOCK_ROWS
    linear.pack(block)
    values = torch.randn(block, sizes[0]).to(dtype)
    wanted, order = linear(values), torch.randperm(block)
    assert torch.equal(linear(values[order]), wanted[order])
    for some in (slice(0, 1), slice(7, 50), slice(100, 500)):
        others = torch.zeros_like(values)
        others[some] = values[some]
        assert torch.equal(linear(others)[some], wanted[some])
