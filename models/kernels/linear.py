"""Linear maps."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.kernels.norm import frozen


class Linear(nn.Module):
    """A linear map with an activation; several maps of one input are concatenated to one."""

    def __init__(self, weights: Mapping[str, Tensor], *names: str, activation: str = "none") -> None:
        """Takes the maps' tensors, float32.

        Args:
            weights: NAME.weight and, unless the maps have none, NAME.bias.
            names: of the maps.
            activation: none, gelu, or gelu_tanh.
        """
        super().__init__()
        self.weight = frozen(torch.cat([weights[f"{name}.weight"] for name in names]))
        biases = [weights[f"{name}.bias"] for name in names if f"{name}.bias" in weights]
        self.bias = frozen(torch.cat(biases)) if biases else None
        self.activation = activation

    def forward(self, rows: Tensor, residual: Tensor | None = None) -> Tensor:
        """float[r, in] -> float[r, out]: the map, then the activation, then the sum with `residual`."""
        values = F.linear(rows, self.weight, self.bias)
        if self.activation != "none":
            values = F.gelu(values, approximate="tanh" if self.activation == "gelu_tanh" else "none")
        return values if residual is None else values.add_(residual)
