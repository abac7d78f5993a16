"""The sizes of an encoder and of the head above it, and the parts that follow from them. Needs no
torch.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

Activation = Literal["gelu", "gelu_tanh", "relu", "tanh", "none"]
Pooling = Literal["cls", "mean"]

# Bounds of sizes in config.json; the largest models are far below them.
Size = Annotated[int, Field(ge=1, le=1 << 24)]
Layers = Annotated[int, Field(ge=1, le=1000)]
Epsilon = Annotated[float, Field(gt=0, lt=1)]


class Part(NamedTuple):
    """An embedding table, a linear map or a normalisation: the shape of its weight, and whether it
    has a bias.
    """

    weight: tuple[int, ...]
    bias: bool = False


class Attention(NamedTuple):
    """The attention of a layer: which tokens a token sees.

    Attributes:
        window: how many tokens on each side; 0 for all.
        rope_theta: the base of the rotary position embeddings; None for a layer without them.
    """

    window: int = 0
    rope_theta: float | None = None


class Dense(NamedTuple):
    """A linear map of the head and its activation; its tensors have the `name`."""

    name: str
    rows: int
    columns: int
    activation: Activation = "none"
    bias: bool = True


class Norm(NamedTuple):
    """A layer normalisation of the head; its tensors have the `name`."""

    name: str
    size: int
    eps: float
    bias: bool = True


@dataclass(frozen=True)
class Head:
    """From the last layer's output to the logits: `steps` after the pooling; the last one yields
    the logits.
    """

    steps: tuple[Dense | Norm, ...]
    pooling: Pooling = "cls"

    @property
    def classifier(self) -> Dense:
        """The step that yields the logits."""
        step = self.steps[-1]
        assert isinstance(step, Dense)
        return step

    def parts(self) -> dict[str, Part]:
        """The parts by the names of their tensors."""
        return {
            step.name: Part(
                (step.rows, step.columns) if isinstance(step, Dense) else (step.size,), step.bias
            )
            for step in self.steps
        }


@dataclass(frozen=True)
class EncoderShape:
    """The sizes of an encoder, and the settings that its weights do not show.

    Attributes:
        attentions: what each layer attends to.
        hidden: the width of a token's vector.
        inner: the width inside of a layer.
        embedding_size: the width of the embeddings; another than `hidden` is projected.
        positions: the maximum number of tokens of an input.
        first_position: the row of the first token in the table of positions; None without a table.
        token_types: the rows of the table of token types; None without a table.
        gated: whether a layer's inner activation is multiplied by a gate (GeGLU).
        pre_norm: whether normalisations precede attention and inner map, with one more after the
            last layer.
    """

    attentions: tuple[Attention, ...]
    heads: int
    hidden: int
    inner: int
    vocab_size: int
    embedding_size: int
    positions: int
    first_position: int | None
    token_types: int | None
    layer_norm_eps: float
    activation: Activation
    gated: bool = False
    pre_norm: bool = False
    attention_bias: bool = True
    inner_bias: bool = True
    norm_bias: bool = True

    def parts(self) -> dict[str, Part]:
        """Every part by name; a layer's have its number before them, as `3.query`."""
        parts = {"words": Part((self.vocab_size, self.embedding_size))}
        if self.first_position is not None:
            parts["positions"] = Part((self.first_position + self.positions, self.embedding_size))
        if self.token_types is not None:
            parts["types"] = Part((self.token_types, self.embedding_size))
        parts["norm"] = Part((self.embedding_size,), self.norm_bias)
        if self.embedding_size != self.hidden:
            parts["projection"] = Part((self.hidden, self.embedding_size), bias=True)
        norm = Part((self.hidden,), self.norm_bias)
        linear = Part((self.hidden, self.hidden), self.attention_bias)
        widen = Part((self.inner, self.hidden), self.inner_bias)
        narrow = Part((self.hidden, self.inner), self.inner_bias)
        for layer in range(len(self.attentions)):
            for name in ("query", "key", "value", "attended"):
                parts[f"{layer}.{name}"] = linear
            # The embeddings' normalisation is also that before the first layer's attention.
            if layer or not self.pre_norm:
                parts[f"{layer}.attention_norm"] = norm
            parts[f"{layer}.widen"] = widen
            if self.gated:
                parts[f"{layer}.gate"] = widen
            parts |= {f"{layer}.narrow": narrow, f"{layer}.inner_norm": norm}
        if self.pre_norm:
            parts["final_norm"] = norm
        return parts
