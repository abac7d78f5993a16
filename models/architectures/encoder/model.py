"""The encoder and its head as a module of torch: the function of transformers' classifiers with
less work.

Nothing is approximated: one product makes query, key and value; where the head reads only the first
token, the last layer computes only that. The head stays in float32 for any dtype of the layers:
bfloat16 log-odds would tie.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.architectures.encoder.shape import Activation, Dense, EncoderShape, Head, Norm
from models.architectures.kernels.attention import Layout, TokenRows, attend, attend_first
from models.architectures.kernels.rowwise import LayerNorm, Linear, Rotation, frozen, linears

if TYPE_CHECKING:
    from models.architectures.kernels.compiled import Kernels

Weights = Mapping[str, Tensor]
"""`PART.weight` and `PART.bias` of each part."""

# The fewest rows of a block with which no model was more than 5 % slower than with the best number.
BLOCK_ROWS = 1024


class _Layer(nn.Module):
    """The layer around its attention."""

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
        self.attention_norm = (
            LayerNorm(weights, f"{number}.attention_norm", eps) if has_norm else nn.Identity()
        )
        self.inner_norm = LayerNorm(weights, f"{number}.inner_norm", eps)

    def before(self, hidden: Tensor) -> Tensor:
        """The input of attention: float[r, d] -> float[r, d]."""
        normed: Tensor = self.attention_norm(hidden) if self.pre_norm else hidden
        return normed

    def finish(self, hidden: Tensor, context: Tensor, rows: TokenRows) -> Tensor:
        """The output of the layer: float[r, d] twice -> float[r, d]."""
        first = self.inner_norm if self.pre_norm else self.attention_norm
        assert isinstance(first, LayerNorm)
        kernels = rows.layout.kernels
        normed, summed = first.of_sum(self.attended, context, hidden, kernels, self.pre_norm)
        if self.pre_norm:
            output: Tensor = self.narrow(self._inner(normed), summed)
            return output
        return self.inner_norm.of_sum(
            self.narrow, self._inner(normed), normed, kernels, sums=False
        )[0]

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
        vectors = self.qkv(self.before(hidden)).view(-1, 3, *self.heads)
        if rotation is not None:
            vectors[:, :2] = rotation(vectors[:, :2], rows.positions)
        query, key, value = vectors.unbind(1)
        return self.finish(hidden, attend(query, key, value, rows, self.window), rows)


class FirstRowsLayer(_Layer):
    """A transformer layer that computes only each input's first token."""

    def __init__(self, weights: Weights, number: int, shape: EncoderShape) -> None:
        super().__init__(weights, number, shape)
        self.query = Linear(weights, f"{number}.query")
        self.key_value = Linear(weights, *(f"{number}.{part}" for part in ("key", "value")))

    def forward(self, hidden: Tensor, rows: TokenRows, rotation: Rotation | None) -> Tensor:
        """float[t, d] -> float[f, d]. A rotation leaves the query at position 0 as it is."""
        first = hidden[rows.first]
        query = self.query(self.before(first)).view(-1, *self.heads)
        vectors = self.key_value(self.before(hidden)).view(-1, 2, *self.heads)
        if rotation is not None:
            vectors[:, 0] = rotation(vectors[:, 0], rows.positions)
        key, value = vectors.unbind(1)
        return self.finish(first, attend_first(query, key, value, rows, self.window), rows)


_ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, "tanh"),
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "none": nn.Identity,
}


class EncoderScorer(nn.Module):
    """Log-odds of a batch of inputs."""

    def __init__(
        self, shape: EncoderShape, head: Head, weights: Weights, dtype: torch.dtype
    ) -> None:
        """Builds the model of float32 weights; the layers get the dtype, embeddings and head stay
        float32.
        """
        super().__init__()
        self.dtype = dtype
        self.block = BLOCK_ROWS
        self.pooling = head.pooling
        self.words = frozen(weights["words.weight"])
        first = shape.first_position
        self.positions = None if first is None else frozen(weights["positions.weight"][first:])
        self.types = None if shape.token_types is None else frozen(weights["types.weight"])
        self.norm = LayerNorm(weights, "norm", shape.layer_norm_eps)
        projected = shape.embedding_size != shape.hidden
        self.projection = Linear(weights, "projection") if projected else nn.Identity()
        last = len(shape.attentions) - 1
        self.lower_layers = nn.ModuleList(
            FullLayer(weights, number, shape) for number in range(last)
        ).to(dtype)
        last_class = FirstRowsLayer if head.pooling == "cls" else FullLayer
        self.last_layer = last_class(weights, last, shape).to(dtype)
        thetas = [attention.rope_theta for attention in shape.attentions]
        size = shape.hidden // shape.heads
        known = sorted({theta for theta in thetas if theta is not None})
        self.rotations = nn.ModuleList(Rotation(theta, shape.positions, size) for theta in known)
        self.rotation_of = [None if theta is None else known.index(theta) for theta in thetas]
        final = shape.pre_norm
        self.final_norm = (
            LayerNorm(weights, "final_norm", shape.layer_norm_eps) if final else nn.Identity()
        )
        *steps, classifier = head.steps
        self.steps = nn.Sequential(*(_step(weights, step) for step in steps))
        self.classifier = Linear(weights, classifier.name)

    def pack(self, kernels: "Kernels | None" = None) -> Layout:
        """Packs the weights for a CPU, and says how the model takes inputs there."""
        takes = kernels is not None and kernels.takes(self.dtype, self.last_layer.heads[1])
        layout = Layout(self.block, kernels if takes else None)
        of_first = {*linears(self.steps), self.classifier}
        if isinstance(self.last_layer, FirstRowsLayer):
            of_first |= {*linears(self.last_layer)} - {self.last_layer.key_value}
        for linear in linears(self):
            linear.pack(layout.first_rows(layout.block) if linear in of_first else layout.block)
        return layout

    def forward(self, rows: TokenRows) -> Tensor:
        """Log-odds, float32[b]."""
        return self.judge(self.encode(rows))[: rows.count]

    def encode(self, rows: TokenRows) -> Tensor:
        """The input of the head, float32[f, d]: of the first tokens, or the mean over the tokens of
        each input.
        """
        hidden = self._embed(rows)
        *lower, last = (
            None if rotation is None else self.rotations[rotation] for rotation in self.rotation_of
        )
        for layer, rotation in zip(self.lower_layers, lower, strict=True):
            hidden = layer(hidden, rows, rotation)
        normed: Tensor = self.final_norm(self.last_layer(hidden, rows, last).float())
        if self.pooling == "cls":
            return normed
        means = torch.cat([group.mean(normed) for group in rows.groups])
        return F.pad(means, (0, 0, 0, rows.first_padding))

    def judge(self, vectors: Tensor) -> Tensor:
        """The head: float32[f, d] of `encode` -> float32[f]."""
        return self.classify(self.pool(vectors))

    def pool(self, vectors: Tensor) -> Tensor:
        """The steps of the head before the logits: float32[f, d] of `encode` -> float32[f, d]."""
        pooled: Tensor = self.steps(vectors)
        return pooled

    def classify(self, vectors: Tensor) -> Tensor:
        """The last step of the head: float32[f, d] of `pool` -> float32[f]."""
        logits: Tensor = self.classifier(vectors)
        return logits[:, -1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]

    def _embed(self, rows: TokenRows) -> Tensor:
        hidden = F.embedding(rows.token_ids, self.words)
        if self.positions is not None:
            hidden += F.embedding(rows.positions, self.positions)
        if self.types is not None:
            hidden += F.embedding(rows.token_types, self.types)
        embedded: Tensor = self.projection(self.norm(hidden))
        return embedded.to(self.dtype)


def _step(weights: Weights, step: Dense | Norm) -> nn.Module:
    if isinstance(step, Norm):
        return LayerNorm(weights, step.name, step.eps)
    return nn.Sequential(Linear(weights, step.name), _ACTIVATIONS[step.activation]())
