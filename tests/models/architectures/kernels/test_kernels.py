"""The operations give what torch's own give, and the bits of a row do not depend on the other rows."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from models.architectures.kernels.attention import attend, attend_first
from models.architectures.kernels.rowwise import Linear, pack_linears
from models.architectures.kernels.token_rows import TokenRows

DTYPES = [torch.float32, torch.bfloat16]


def _linear(inner: int, outer: int, dtype: torch.dtype, activation: str = "none") -> Linear:
    weights = {"map.weight": torch.randn(outer, inner) / inner**0.5, "map.bias": torch.randn(outer)}
    return Linear(weights, "map", activation=activation).to(dtype)


def _rows(lengths: list[int], block: int = 0) -> TokenRows:
    ids = torch.arange(sum(lengths))
    return TokenRows(ids, torch.zeros_like(ids), lengths, block)


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
    assert pack_linears(linear) == 128
    assert linear.weight.numel() == 0
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.04}[dtype]
    torch.testing.assert_close(linear(rows), plain[0], rtol=0, atol=tolerance)
    if plain[1] is not None:
        torch.testing.assert_close(linear(rows, residual.to(dtype)), plain[1], rtol=0, atol=tolerance)


def test_block_follows_from_the_largest_map():
    assert pack_linears(torch.nn.ModuleList([_linear(8, 8, torch.float32), _linear(1025, 1024, torch.float32)])) == 256


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(384, 1536), (1536, 384), (442, 1326)], ids=str)
def test_row_of_a_product_has_the_same_bits_everywhere(dtype, sizes):
    linear = _linear(sizes[0], sizes[1], dtype, "gelu")
    block = pack_linears(linear)
    values = torch.randn(2 * block + 40, sizes[0]).to(dtype)
    batch = _rows([len(values)], block)
    wanted = batch.by_blocks(linear, values)
    order = torch.randperm(len(values))
    assert torch.equal(batch.by_blocks(linear, values[order]), wanted[order])
    for some in (slice(0, 1), slice(7, 50), slice(100, 500)):
        assert torch.equal(batch.by_blocks(linear, values[some]), wanted[some])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "size"), [(12, 32), (13, 34)])
def test_attention_is_softmax_attention_of_each_input(dtype, heads, size):
    lengths = [300, 97, 97, 97, 12, 5, 5, 1]
    rows = _rows(lengths, 64)
    qkv = torch.randn(len(rows.token_ids), 3, heads, size).to(dtype)
    query, key, value = qkv.unbind(1)
    found = attend(query, key, value, rows)
    first = attend_first(query[rows.first], key, value, rows)
    assert not found[rows.tokens :].any()
    start = 0
    for place, length in enumerate(lengths):
        one = qkv[start : start + length]
        q, k, v = one.float().permute(1, 2, 0, 3)
        wanted = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1).to(dtype)
        tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.04}[dtype]
        torch.testing.assert_close(found[start : start + length], wanted, rtol=0, atol=tolerance)
        torch.testing.assert_close(first[place], wanted[0], rtol=0, atol=tolerance)
        alone = _rows([length], 64)
        q, k, v = one.clone().unbind(1)
        assert torch.equal(attend(q, k, v, alone)[:length], found[start : start + length])
        assert torch.equal(attend_first(q[:1].contiguous(), k, v, alone)[0], first[place])
        start += length
