"""Linear maps."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from models.architectures.kernels.compiled import Kernels

_APPROXIMATE = {"none": "", "gelu": "none", "gelu_tanh": "tanh"}


class Linear(nn.Module):
    """A linear map with an activation; several maps of one input are concatenated to one."""

    def __init__(
        self, weights: Mapping[str, Tensor], *names: str, activation: str = "none"
    ) -> None:
        """Takes the maps' tensors, float32.

        Args:
            weights: NAME.weight and, unless the maps have none, NAME.bias.
            names: of the maps.
            activation: of the result.
        """
        super().__init__()
        self.weight = frozen(torch.cat([weights[f"{name}.weight"] for name in names]))
        biases = [weights[f"{name}.bias"] for name in names if f"{name}.bias" in weights]
        self.bias = frozen(torch.cat(biases)) if biases else None
        self.activation = activation
        self._packed: Tensor | None = None

    def pack(self, rows: int) -> None:
        """Puts the weights into the order in which oneDNN multiplies them with so many rows; they
        stay on the CPU.

        Without this, oneDNN reorders bfloat16 weights at each call, and float32 goes to a slower
        library.
        """
        if _can_pack(self.weight.dtype):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.data, rows)
            self.weight = frozen(self.weight.new_empty(0))

    def forward(self, rows: Tensor, residual: Tensor | None = None) -> Tensor:
        """float[r, in] -> float[r, out]: the map, then the activation, or the sum with
        `residual`.
        """
        if self._packed is not None:
            return self._multiply_packed(rows, residual)
        values = F.linear(rows, self.weight, self.bias)
        if self.activation != "none":
            values = F.gelu(values, approximate=_APPROXIMATE[self.activation])
        return values if residual is None else values.add_(residual)

    def _multiply_packed(self, rows: Tensor, residual: Tensor | None) -> Tensor:
        multiply = torch.ops.mkldnn._linear_pointwise
        if residual is not None:
            summed: Tensor = multiply.binary(rows, residual, self._packed, self.bias, "add")
            return summed
        name = "none" if self.activation == "none" else "gelu"
        values: Tensor = multiply(
            rows, self._packed, self.bias, name, [], _APPROXIMATE[self.activation]
        )
        return values


def linears(module: nn.Module) -> Iterator[Linear]:
    """Each `Linear` of a module."""
    return (layer for layer in module.modules() if isinstance(layer, Linear))


def _can_pack(dtype: torch.dtype) -> bool:
    """Whether torch has the operators, which are not part of its public interface, and oneDNN
    computes in the dtype.
    """
    operators = ("_reorder_linear_weight", "_linear_pointwise")
    if not torch._C._has_mkldnn or not all(hasattr(torch.ops.mkldnn, name) for name in operators):
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


class LayerNorm(nn.Module):
    """Layer normalisation, with or without bias."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, eps: float) -> None:
        """Takes NAME.weight and, if it is there, NAME.bias."""
        super().__init__()
        self.weight = frozen(weights[f"{name}.weight"])
        self.bias = frozen(weights[f"{name}.bias"]) if f"{name}.bias" in weights else None
        self.eps = eps

    def forward(self, rows: Tensor) -> Tensor:
        """float[r, d] -> float[r, d]."""
        return F.layer_norm(rows, self.weight.shape, self.weight, self.bias, self.eps)

    def of_sum(
        self, linear: Linear, rows: Tensor, residual: Tensor, kernels: "Kernels | None", sums: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The normalised sum of `linear(rows)` and a residual, and the sum itself, at least where
        it is asked for.

        The compiled kernels add in float32; torch rounds the sum to the dtype of the rows before it
        normalises.
        """
        if kernels is None:
            summed: Tensor = linear(rows, residual)
            return self(summed), summed
        total, bias = (
            torch.empty_like(residual) if sums else None,
            None if self.bias is None else self.bias.float(),
        )
        return kernels.residual_norm(
            linear(rows), residual, self.weight.float(), bias, self.eps, total
        ), total


def frozen(tensor: Tensor) -> nn.Parameter:
    """A parameter without a gradient."""
    return nn.Parameter(tensor.contiguous(), requires_grad=False)


class Rotation(nn.Module):
    """Turns each pair of dimensions i, i + size / 2 of a head by an angle that grows with the
    position.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, theta: float, positions: int, size: int) -> None:
        """Takes the base of the angles, how many positions there are, and the size of a head."""
        super().__init__()
        frequencies = 1.0 / theta ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, heads: Tensor, positions: Tensor) -> Tensor:
        """float[r, ..., size] at int[r] positions -> the same, computed in float32."""
        shape = (-1, *(1,) * (heads.dim() - 2), heads.shape[-1] // 2)
        cos, sin = (table[positions].view(shape) for table in (self.cos, self.sin))
        first, second = heads.float().chunk(2, dim=-1)
        turned = (
            torch.addcmul(first * cos, second, sin, value=-1),
            torch.addcmul(second * cos, first, sin),
        )
        return torch.cat(turned, dim=-1).to(heads.dtype)
