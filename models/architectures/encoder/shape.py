"""The sizes of an encoder and of the head above it, and the parts that follow from them. Needs no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import Field

from beamrank.errors import PreflightError
from beamrank.storage.documents import usable

Activation = Literal["gelu", "gelu_tanh", "relu", "tanh", "none"]
Pooling = Literal["cls", "mean"]

# Bounds of sizes in config.json; the largest models are far below them.
Size = Annotated[int, Field(ge=1, le=1 << 24)]
Layers = Annotated[int, Field(ge=1, le=1000)]
Epsilon = Annotated[float, Field(gt=0, lt=1)]

GELUS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_Config = TypeVar("_Config")


class Part(NamedTuple):
    """An embedding table, a linear map or a normalisation: the shape of its weight, and whether it has a bias."""

    weight: tuple[int, ...]
    bias: bool = False


class Attention(NamedTuple):
    """What the tokens of a layer attend to.

    Attributes:
        window: how many tokens on each side; 0 for all.
        rope_theta: the base of the rotary position embeddings; None for a layer without them.
    """

    window: int = 0
    rope_theta: float | None = None


class Dense(NamedTuple):
    """A linear map of the head and its activation; `name` is that of its tensors."""

    name: str
    rows: int
    columns: int
    activation: Activation = "none"
    bias: bool = True


class Norm(NamedTuple):
    """A layer normalisation of the head; `name` is that of its tensors."""

    name: str
    size: int
    eps: float
    bias: bool = True


@dataclass(frozen=True)
class Head:
    """From the last layer's output to the logits.

    Attributes:
        steps: what is applied to the pooled vector, in order; the last one yields the logits.
        pooling: the vector of the first token, or the mean over all tokens.
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
            step.name: Part((step.rows, step.columns) if isinstance(step, Dense) else (step.size,), step.bias)
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
        pre_norm: whether normalisations precede attention and inner map, with one more after the last layer.
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

    @property
    def token_cost(self) -> int:
        """The number of multiplications of the layers' matrices for one token."""
        widened = self.inner * (3 if self.gated else 2)
        return len(self.attentions) * (4 * self.hidden**2 + self.hidden * widened)

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
        for layer in range(len(self.attentions)):
            parts |= {f"{layer}.{name}": part for name, part in self._layer_parts(layer).items()}
        if self.pre_norm:
            parts["final_norm"] = Part((self.hidden,), self.norm_bias)
        return parts

    def _layer_parts(self, layer: int) -> dict[str, Part]:
        norm = Part((self.hidden,), self.norm_bias)
        # The embeddings' normalisation is also that before the first layer's attention.
        attention_norm = {} if self.pre_norm and layer == 0 else {"attention_norm": norm}
        linear = Part((self.hidden, self.hidden), self.attention_bias)
        widen = Part((self.inner, self.hidden), self.inner_bias)
        return {
            **dict.fromkeys(("query", "key", "value", "attended"), linear),
            **attention_norm,
            **dict.fromkeys(("widen", "gate") if self.gated else ("widen",), widen),
            "narrow": Part((self.hidden, self.inner), self.inner_bias),
            "inner_norm": norm,
        }


def read_sizes(kind: type[_Config], config: Mapping[str, Any], reference: str) -> _Config:
    """The keys of config.json that decide a model's sizes.

    Raises:
        PreflightError: one is missing or invalid.
    """
    return usable(kind, config, f"config.json of the checkpoint {reference}")


def dense_head(dense: str, activation: Activation, classifier: str) -> Callable[[object, EncoderShape, int], Head]:
    """The reader of a head over so many labels: a dense map of the first token's vector, then the logits.

    Args:
        dense: the dense map's tensors.
        activation: of the dense map.
        classifier: the tensors of the map to logits.
    """

    def read(_: object, shape: EncoderShape, labels: int) -> Head:
        width = shape.hidden
        return Head((Dense(dense, width, width, activation), Dense(classifier, labels, width)))

    return read


def read_activation(key: str, name: str, known: Mapping[str, Activation], reference: str) -> Activation:
    """The activation that a key of config.json names.

    Raises:
        PreflightError: it is unknown.
    """
    if name not in known:
        raise PreflightError(f"the checkpoint {reference} has {key} {name!r}; known: {', '.join(known)}")
    return known[name]


def check_heads(shape: EncoderShape, reference: str) -> None:
    """Raises PreflightError where the heads do not share the width evenly."""
    if shape.hidden % shape.heads:
        raise PreflightError(
            f"config.json of the checkpoint {reference} has {len(shape.attentions)} layers and {shape.heads} heads "
            f"over a width of {shape.hidden}: the heads must share the width evenly"
        )
