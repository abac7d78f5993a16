"""The operations that are compiled from attention.cpp, where an installation has them and they were
measured to gain.

A library without torch and Python in it, which ctypes calls with the addresses of tensors: other
threads go on.
"""

import ctypes
import logging
from dataclasses import dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Kind = Literal["amx", "avx512_bf16", "avx512"]
VERSION = 1
"""Raised where the bits of a result change."""

# Best first, with what stands for them in the library.
_BITS: dict[Kind, int] = {"amx": 1, "avx512_bf16": 2, "avx512": 4}
# The dtypes in which each was measured to be faster than torch (benchmarks/results/README.md).
_GAINS: dict[Kind, tuple[str, ...]] = {
    "amx": ("bfloat16",),
    "avx512_bf16": ("bfloat16", "float32"),
    "avx512": ("bfloat16", "float32"),
}
_LONGEST_HEAD = 128
_NO_MEMORY = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kernels:
    """The library, and which of the processor's instructions it uses."""

    kind: Kind
    _library: ctypes.CDLL

    def takes(self, dtype: "torch.dtype | str", size: int) -> bool:
        """Whether a model with heads of so many values in a dtype should be computed here."""
        return size <= _LONGEST_HEAD and str(dtype).removeprefix("torch.") in _GAINS[self.kind]

    def attention(
        self,
        query: "Tensor",
        key: "Tensor",
        value: "Tensor",
        starts: "Tensor",
        lengths: "Tensor",
        window: int = 0,
        first: bool = False,
    ) -> "Tensor":
        """Softmax attention within each input.

        Args:
            query: float32 or bfloat16[r, heads, size], each row without gaps, and so are `key` and
                `value`; they can be views of one tensor.
            key: as `query`.
            value: as `query`; its rows are as far apart as the rows of `key`.
            starts: int32[b], the row of each input's first token, ascending.
            lengths: int32[b], the tokens of each input. Rows between inputs are not read.
            window: a token reads only those at most so many places away; 0 is all.
            first: only the first token of each input asks: `query` has one row for each.

        Returns:
            float[r, heads * size]; zeros in the rows between inputs.
        """
        rows, heads, size = query.shape
        context = query.new_empty(rows, heads * size)
        for tensor in (query, key, value):
            _require(tensor.device == query.device and tensor.dtype == query.dtype)
            _require(tensor.shape[1:] == (heads, size) and tensor.stride()[1:] == (size, 1))
        _require(
            window >= 0
            and key.shape == value.shape
            and key.stride(0) == value.stride(0)
            and size <= _LONGEST_HEAD
        )
        for tensor in (starts, lengths):
            _require(
                str(tensor.dtype) == "torch.int32"
                and tensor.shape == (len(lengths),)
                and tensor.is_contiguous()
            )
        _require(rows == (len(lengths) if first else len(key)))
        status = self._library.attend(
            _BITS[self.kind],
            _is_float32(query),
            *(_pointer(tensor) for tensor in (query, key, value, context)),
            *(ctypes.c_ssize_t(stride) for stride in (query.stride(0), key.stride(0), len(key))),
            _pointer(starts),
            _pointer(lengths),
            len(starts),
            heads,
            size,
            ctypes.c_float(size**-0.5),
            window,
            first,
        )
        _check(status)
        return context

    def residual_norm(
        self,
        rows: "Tensor",
        residual: "Tensor",
        weight: "Tensor",
        bias: "Tensor | None",
        eps: float,
        total: "Tensor | None" = None,
    ) -> "Tensor":
        """Layer normalisation of `rows + residual`, a sum in float32.

        Args:
            rows: float32 or bfloat16[r, d].
            residual: as `rows`.
            weight: float32[d].
            bias: as `weight`.
            eps: is added to the variance.
            total: receives the sum; it can be `rows` or `residual`.

        Returns:
            As `rows`.
        """
        count, width = rows.shape
        normed = rows.new_empty(rows.shape)
        for tensor in (rows, residual, *(() if total is None else (total,))):
            _require(
                tensor.dtype == rows.dtype and tensor.shape == rows.shape and tensor.is_contiguous()
            )
        for vector in (weight, *(() if bias is None else (bias,))):
            _require(_is_float32(vector) and vector.shape == (width,) and vector.is_contiguous())
        status = self._library.normalise(
            _BITS[self.kind],
            _is_float32(rows),
            *(_pointer(tensor) for tensor in (rows, residual, weight, bias, normed, total)),
            ctypes.c_ssize_t(count),
            width,
            ctypes.c_float(eps),
        )
        _check(status)
        return normed


def load_kernels(kind: Kind | None = None) -> Kernels | None:
    """The kernels of this installation on this processor; None, after a warning, where there are
    none.

    Args:
        kind: the instructions that are used, for tests and benchmarks; by default the best ones.
    """
    library, kinds, _ = _find()
    if library is None or (kind is not None and kind not in kinds):
        return None
    return Kernels(kind or kinds[0], library)


def why_torch() -> str:
    """Why there are no compiled kernels, and what to do; empty where there are."""
    return _find()[2]


@cache
def _find() -> tuple[ctypes.CDLL | None, tuple[Kind, ...], str]:
    """The library, the kinds that run here, and the reason why there are none, of which it warns
    once.
    """
    kinds: tuple[Kind, ...] = ()
    library, reason = (
        None,
        "it was installed without a compiler for Linux on x86-64; install g++, then beamrank again",
    )
    paths = [Path(__file__).with_name(f"_attention{suffix}") for suffix in EXTENSION_SUFFIXES]
    if path := next((candidate for candidate in paths if candidate.is_file()), None):
        try:
            library = ctypes.CDLL(str(path))
            here = library.kernels_here()
            kinds = tuple(kind for kind, bit in _BITS.items() if here & bit)
            reason = "" if kinds else "the processor has no AVX-512"
        except (OSError, AttributeError) as error:
            reason = f"{path.name} does not load; install beamrank again on this machine ({error})"
    if reason:
        _log.warning("attention is computed by torch, more slowly: %s", reason)
    return library if kinds else None, kinds, reason


def _require(holds: bool) -> None:
    """Other tensors would make the library read and write the memory of others."""
    if not holds:
        raise ValueError("these tensors are not what the compiled kernels take")


def _is_float32(tensor: "Tensor") -> bool:
    if tensor.device.type != "cpu" or str(tensor.dtype) not in ("torch.float32", "torch.bfloat16"):
        raise ValueError(f"the compiled kernels take no {tensor.dtype} on {tensor.device}")
    return str(tensor.dtype) == "torch.float32"


def _pointer(tensor: "Tensor | None") -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _check(status: int) -> None:
    if status == _NO_MEMORY:
        raise MemoryError("the compiled kernels find no memory")
    _require(status == 0)
