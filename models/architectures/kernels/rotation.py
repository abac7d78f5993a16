"""Rotary position embeddings (RoPE)."""

import torch
from torch import Tensor, nn


class Rotation(nn.Module):
    """Turns each pair of dimensions i, i + size / 2 of a head by an angle that grows with the position."""

    cos: Tensor
    sin: Tensor

    def __init__(self, theta: float, positions: int, size: int) -> None:
        """Takes the base of the angles, how many positions there are, and the size of a head."""
        super().__init__()
        frequencies = 1.0 / theta ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
        angles = (torch.arange(positions, dtype=torch.float32)[:, None] * frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, heads: Tensor, positions: Tensor) -> Tensor:
        """float[r, ..., size] at int[r] positions -> the same, computed in float32."""
        values = heads.float()
        shape = (-1, *(1,) * (values.dim() - 2), values.shape[-1])
        cos, sin = (table[positions].view(shape) for table in (self.cos, self.sin))
        first, second = values.chunk(2, dim=-1)
        turned = values * cos + torch.cat([-second, first], dim=-1) * sin
        return turned.to(heads.dtype)
