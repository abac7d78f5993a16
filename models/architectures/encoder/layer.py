"""A transformer layer, for all tokens or for each input's first token alone."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from models.architectures.encoder.shape import EncoderShape
from models.architectures.kernels.attention import attend, attend_first
from models.architectures.kernels.linear import Linear
from models.architectures.kernels.norm import LayerNorm
from models.architectures.kernels.rotation import Rotation
from models.architectures.kernels.token_rows import TokenRows

Weights = Mapping[str, Tensor]
"""`PART.weight` and `PART.bias` of each part."""


class _Layer(nn.Module):
    """What surrounds a layer's attention."""

    def __init__(self, weights: Weights, number: int, shape: EncoderShape) -> None:
        super().__init__()
        self.heads = (shape.heads, shape.hidden // shape.heads)
        self.window = shape.attentions[number].window
        self.pre_norm = shape.pre_norm
        self.attended = Linear(weights, f"{number}.attended")
        self.widen = Linear(weights, f"{number}.widen", activation=shape.activation)
        self.gate = Linear(weights, f"{number}.gate") if shape.gated else None
        self.narrow = Linear(weights, f"{number}.narrow")
        has_norm = f"{number}.attention_norm.weight" in weights
        eps = shape.layer_norm_eps
        self.attention_norm = LayerNorm(weights, f"{number}.attention_norm", eps) if has_norm else nn.Identity()
        self.inner_norm = LayerNorm(weights, f"{number}.inner_norm", eps)

    def before(self, hidden: Tensor) -> Tensor:
        """What attention reads: float[r, d] -> float[r, d]."""
        normed: Tensor = self.attention_norm(hidden) if self.pre_norm else hidden
        return normed

    def finish(self, hidden: Tensor, context: Tensor) -> Tensor:
        """What follows the attention: float[r, d] twice -> float[r, d]."""
        hidden = self.attended(context, hidden)
        if not self.pre_norm:
            hidden = self.attention_norm(hidden)
        before: Tensor = self.inner_norm(hidden) if self.pre_norm else hidden
        output: Tensor = self.narrow(self._inner(before), hidden)
        return output if self.pre_norm else self.inner_norm(output)

    def _inner(self, hidden: Tensor) -> Tensor:
        inner: Tensor = self.widen(hidden)
        return inner if self.gate is None else inner.mul_(self.gate(hidden))


class FullLayer(_Layer):
    """A transformer layer for all tokens."""

    def __init__(self, weights: Weights, number: int, shape: EncoderShape) -> None:
        super().__init__(weights, number, shape)
        self.qkv = Linear(weights, *(f"{number}.{part}" for part in ("query", "key", "value")))

    def forward(self, hidden: Tensor, rows: TokenRows, rotation: Rotation | None) -> Tensor:
        """float[t, d] -> float[t, d]."""

        def project(hidden: Tensor, positions: Tensor) -> Tensor:
            vectors: Tensor = self.qkv(self.before(hidden)).view(-1, 3, *self.heads)
            if rotation is None:
                return vectors
            return torch.cat([rotation(vectors[:, :2], positions), vectors[:, 2:]], dim=1)

        query, key, value = rows.by_blocks(project, hidden, rows.positions).unbind(1)
        return rows.by_blocks(self.finish, hidden, attend(query, key, value, rows, self.window))


class FirstRowsLayer(_Layer):
    """A transformer layer that computes each input's first token alone."""

    def __init__(self, weights: Weights, number: int, shape: EncoderShape) -> None:
        super().__init__(weights, number, shape)
        self.query = Linear(weights, f"{number}.query")
        self.key_value = Linear(weights, *(f"{number}.{part}" for part in ("key", "value")))

    def forward(self, hidden: Tensor, rows: TokenRows, rotation: Rotation | None) -> Tensor:
        """float[t, d] -> float[b, d]. A rotation leaves the query at position 0 as it is."""

        def project(hidden: Tensor, positions: Tensor) -> Tensor:
            vectors: Tensor = self.key_value(self.before(hidden)).view(-1, 2, *self.heads)
            if rotation is None:
                return vectors
            return torch.cat([rotation(vectors[:, :1], positions), vectors[:, 1:]], dim=1)

        first = hidden[rows.first]
        query = rows.by_blocks(self._project_query, first).view(-1, *self.heads)
        key, value = rows.by_blocks(project, hidden, rows.positions).unbind(1)
        return rows.by_blocks(self.finish, first, attend_first(query, key, value, rows, self.window))

    def _project_query(self, first: Tensor) -> Tensor:
        query: Tensor = self.query(self.before(first))
        return query
