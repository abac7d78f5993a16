"""The compiled attention beside torch's, on one thread and by the instructions that both may use.

Each kind of instructions has a process of its own, in which oneDNN, and so torch, is kept to them:
an older processor's figures, as far as this one's are like them. Inputs have 3 tokens less than the
length that they are padded to.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.results import Part
from benchmarks.subprocess_meter import run_apart
from models.architectures.kernels.compiled import Kernels, Kind, load_kernels

if TYPE_CHECKING:
    from torch import Tensor

_ONEDNN: dict[Kind, str] = {
    "amx": "AVX512_CORE_AMX",
    "avx512_bf16": "AVX512_CORE_BF16",
    "avx512": "AVX512_CORE",
}
_DTYPES = ("bfloat16", "float32")
_SIZES, _LENGTHS, _HEADS = (32, 34, 64), (32, 64, 96, 128, 256, 512), 12
# Short enough that most repetitions are undisturbed.
_ROWS, _WIDTHS = 512, (384, 768)


class Row(NamedTuple):
    """Microseconds for 1,000 tokens, and root mean square errors against float32 where the values
    vary by 1.

    Attributes:
        operation: attention or norm (of a sum, where torch's is given the sum).
        size: of a head, or the width of a row.
        length: that the inputs are padded to; 0 for norm.
    """

    operation: str
    size: int
    length: int
    torch: float
    compiled: float
    torch_error: float
    compiled_error: float


def measure(options: argparse.Namespace, _: Path) -> Iterator[tuple[str, Part]]:
    """Yields a part for each kind of instructions and dtype; they differ in float32 only by what
    torch may use.
    """
    for kind in _ONEDNN:
        for dtype in _DTYPES:
            rows = run_apart(_measure, kind, dtype, options.rounds)
            if rows:
                yield f"{kind}, {dtype}", Part({"rows": [row._asdict() for row in rows]})


def _measure(kind: Kind, dtype: str, rounds: int) -> list[Row]:
    os.environ["ONEDNN_MAX_CPU_ISA"] = _ONEDNN[kind]
    import torch

    torch.set_num_threads(1)
    kernels = load_kernels(kind)
    if kernels is None:
        return []
    with torch.inference_mode():
        attention = [
            _attention(kernels, dtype, size, length, rounds)
            for size in _SIZES
            for length in _LENGTHS
        ]
        return attention + [_norm(kernels, dtype, width, rounds) for width in _WIDTHS]


def _attention(kernels: Kernels, dtype: str, size: int, length: int, rounds: int) -> Row:
    import torch
    import torch.nn.functional as F

    count = _ROWS // length
    vectors = torch.randn(count * length, 3, _HEADS, size).to(getattr(torch, dtype))
    lengths = torch.full((count,), length - 3, dtype=torch.int32)
    starts = torch.arange(count, dtype=torch.int32) * length
    mask = (torch.arange(length) < lengths[:, None])[:, None, None]

    def by_torch(vectors: "Tensor") -> "Tensor":
        query, key, value = (
            F.pad(each, (0, -size % 16)) if size % 16 else each
            for each in vectors.view(count, length, 3, _HEADS, size).permute(2, 0, 3, 1, 4)
        )
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=size**-0.5
        )
        return context[..., :size].transpose(1, 2).reshape(count * length, -1)

    def compiled() -> "Tensor":
        query, key, value = vectors.unbind(1)
        return kernels.attention(query, key, value, starts, lengths)

    return _row(
        "attention",
        size,
        length,
        lambda: by_torch(vectors),
        compiled,
        by_torch(vectors.float()),
        rounds,
    )


def _norm(kernels: Kernels, dtype: str, width: int, rounds: int) -> Row:
    import torch
    import torch.nn.functional as F

    rows, residual = torch.randn(2, _ROWS, width).to(getattr(torch, dtype))
    weight, bias = torch.ones(width), torch.zeros(width)
    summed, own_weight, own_bias = (each.to(rows.dtype) for each in (rows + residual, weight, bias))
    expected = F.layer_norm(rows.float() + residual.float(), (width,))

    def by_torch() -> "Tensor":
        return F.layer_norm(summed, (width,), own_weight, own_bias)

    def compiled() -> "Tensor":
        return kernels.residual_norm(rows, residual, weight, bias, 1e-5)

    return _row("norm", width, 0, by_torch, compiled, expected, rounds)


def _row(
    operation: str,
    size: int,
    length: int,
    by_torch: Callable[[], "Tensor"],
    compiled: Callable[[], "Tensor"],
    expected: "Tensor",
    rounds: int,
) -> Row:
    """Both in turn; the best of 10 repetitions in each round counts."""
    import torch

    # Attention is not computed of the rows of padding; torch computes something there.
    count = len(expected)
    is_token = (
        (torch.arange(count) % length < length - 3)
        if length
        else torch.ones(count, dtype=torch.bool)
    )
    errors = [
        (each().float() - expected)[is_token].square().mean().sqrt().item()
        for each in (by_torch, compiled)
    ]
    best = [float("inf")] * 2
    for _ in range(10 * rounds):
        for place, each in enumerate((by_torch, compiled)):
            start = time.perf_counter()
            each()
            best[place] = min(best[place], time.perf_counter() - start)
    by_torch_us, compiled_us = (round(each * 1e9 / count, 1) for each in best)
    torch_error, compiled_error = (float(f"{each:.2g}") for each in errors)
    return Row(operation, size, length, by_torch_us, compiled_us, torch_error, compiled_error)
