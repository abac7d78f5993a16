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
from typing import TYPE_CHECKING, Any

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

Row = dict[str, Any]
"""Of torch and of the compiled `operation`, microseconds for 1,000 tokens, and root mean square
errors against float32 where the values vary by 1; `size` is of a head, or the width of a row, and
`length` what the inputs are padded to.
"""


def measure(options: argparse.Namespace, _: Path) -> Iterator[tuple[str, Part]]:
    """Yields a part for each kind of instructions and dtype; they differ in float32 only by what
    torch may use.
    """
    for kind in _ONEDNN:
        for dtype in _DTYPES:
            rows = run_apart(_measure, kind, dtype, options.rounds)
            if rows:
                yield f"{kind}, {dtype}", Part({"rows": rows})


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
    query, key, value = vectors.unbind(1)

    def by_torch(vectors: "Tensor") -> "Tensor":
        rows = vectors.view(count, length, 3, _HEADS, size).permute(2, 0, 3, 1, 4)
        padded = F.pad(rows, (0, -size % 16)) if size % 16 else rows
        query, key, value = padded
        context = F.scaled_dot_product_attention(query, key, value, mask, scale=size**-0.5)
        return context[..., :size].transpose(1, 2).reshape(count * length, -1)

    # Attention is not computed of the rows of padding; torch computes something there.
    return {"operation": "attention", "size": size, "length": length} | _compare(
        lambda: by_torch(vectors),
        lambda: kernels.attention(query, key, value, starts, lengths),
        by_torch(vectors.float()),
        mask.flatten(),
        rounds,
    )


def _norm(kernels: Kernels, dtype: str, width: int, rounds: int) -> Row:
    """Of a sum; torch's is given the sum."""
    import torch
    import torch.nn.functional as F

    rows, residual = torch.randn(2, _ROWS, width).to(getattr(torch, dtype))
    weight, bias, summed = torch.ones(width), torch.zeros(width), rows + residual
    own = weight.to(rows.dtype), bias.to(rows.dtype)
    return {"operation": "norm", "size": width, "length": 0} | _compare(
        lambda: F.layer_norm(summed, (width,), *own),
        lambda: kernels.residual_norm(rows, residual, weight, bias, 1e-5),
        F.layer_norm(rows.float() + residual.float(), (width,)),
        torch.ones(_ROWS, dtype=torch.bool),
        rounds,
    )


def _compare(
    by_torch: Callable[[], "Tensor"],
    compiled: Callable[[], "Tensor"],
    expected: "Tensor",
    is_token: "Tensor",
    rounds: int,
) -> Row:
    """Both in turn; the best of 10 repetitions in each round counts."""
    sides = {"torch": by_torch, "compiled": compiled}
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(10 * rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            best[name] = min(best[name], time.perf_counter() - start)
    row: Row = {name: round(seconds * 1e9 / len(expected), 1) for name, seconds in best.items()}
    for name, side in sides.items():
        off = (side().float() - expected)[is_token]
        row[f"{name}_error"] = float(f"{off.square().mean().sqrt().item():.2g}")
    return row
