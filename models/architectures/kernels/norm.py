"""Layer normalisation."""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn


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


def frozen(tensor: Tensor) -> nn.Parameter:
    """A parameter without a gradient."""
    return nn.Parameter(tensor.contiguous(), requires_grad=False)
