"""The operations give what torch's own give, and the bits of a row do not depend on the other rows."""

from collections.abc import Iterator

import pytest
import torch

from models.architectures.encoder.model import BLOCK_ROWS
from models.architectures.kernels.rowwise import Linear

DTYPES = [torch.float32, torch.bfloat16]


def _linear(inner: int, outer: int, dtype: torch.dtype, activation: str = "none") -> Linear:
    weights = {"map.weight": torch.randn(outer, inner) / inner**0.5, "map.bias": torch.randn(outer)}
    return Linear(weights, "map", activation=activation).to(dtype)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in the engine, where each batch is the work of one thread: threads that share one divide sums."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["none", "gelu", "gelu_tanh"])
def test_packed_linear_equals_the_plain_one(dtype, activation):
    linear, rows, residual = _linear(70, 96, dtype, activation), torch.randn(40, 70).to(dtype), torch.randn(40, 96)
    plain = linear(rows), None if activation != "none" else linear(rows, residual.to(dtype))
    linear.pack(40)
    assert linear.weight.numel() == 0
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.04}[dtype]
    torch.testing.assert_close(linear(rows), plain[0], rtol=0, atol=tolerance)
    if plain[1] is not None:
        torch.testing.assert_close(linear(rows, residual.to(dtype)), plain[1], rtol=0, atol=tolerance)


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
