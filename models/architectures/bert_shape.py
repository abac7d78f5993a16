"""The sizes of a BERT, and the tensors that follow from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from beamrank.errors import PreflightError
from beamrank.storage.documents import validated
from models.architectures.chunk_sizes import POOLING, chunk_sizes

CLASSIFIER = "classifier"
TOKEN_TYPES = "bert.embeddings.token_type_embeddings.weight"

Size = Annotated[int, Field(ge=1, le=1 << 24)]
Layers = Annotated[int, Field(ge=1, le=1000)]

_GELU = {"gelu": False, "gelu_python": False, "gelu_new": True, "gelu_pytorch_tanh": True}


@dataclass(frozen=True)
class BertShape:
    """The sizes of a BERT, and the settings that its weights do not show.

    Attributes:
        chunks: how many inputs a passage is read as.
        attention_size: of the attention over the chunks; 0 where there is none.
    """

    layers: int
    heads: int
    hidden: int
    inner: int
    vocab_size: int
    positions: int
    token_types: int
    layer_norm_eps: float
    tanh_gelu: bool
    chunks: int = 1
    attention_size: int = 0

    @property
    def token_cost(self) -> int:
        """The number of multiplications of the layers' matrices for one token."""
        return self.layers * (4 * self.hidden**2 + 2 * self.hidden * self.inner)

    def tensors(self, num_labels: int) -> dict[str, tuple[int, ...]]:
        """The name and shape of every tensor of transformers' BertForSequenceClassification."""
        hidden, inner = self.hidden, self.inner
        sizes: dict[str, tuple[int, ...]] = {
            "bert.embeddings.word_embeddings.weight": (self.vocab_size, hidden),
            "bert.embeddings.position_embeddings.weight": (self.positions, hidden),
            TOKEN_TYPES: (self.token_types, hidden),
        }
        linear = {"bert.pooler.dense": (hidden, hidden), CLASSIFIER: (num_labels, hidden)}
        if self.attention_size:
            linear[f"{POOLING}.dense"] = (self.attention_size, hidden)
            sizes[f"{POOLING}.context.weight"] = (1, self.attention_size)
        norms = ["bert.embeddings.LayerNorm"]
        for index in range(self.layers):
            layer = f"bert.encoder.layer.{index}"
            for part in ("self.query", "self.key", "self.value", "output.dense"):
                linear[f"{layer}.attention.{part}"] = (hidden, hidden)
            linear[f"{layer}.intermediate.dense"] = (inner, hidden)
            linear[f"{layer}.output.dense"] = (hidden, inner)
            norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        for name, size in linear.items():
            sizes |= {f"{name}.weight": size, f"{name}.bias": size[:1]}
        for name in norms:
            sizes |= {f"{name}.weight": (hidden,), f"{name}.bias": (hidden,)}
        return sizes


@dataclass(frozen=True)
class _Sizes:
    """The sizes of a BERT in config.json; the largest that exist are far below these bounds."""

    num_hidden_layers: Layers
    num_attention_heads: Size
    hidden_size: Size
    intermediate_size: Size
    vocab_size: Size
    max_position_embeddings: Size = 512
    layer_norm_eps: Annotated[float, Field(gt=0, lt=1)] = 1e-12
    hidden_act: str = "gelu"


_SIZES = TypeAdapter(_Sizes)


def read_shape(config: Mapping[str, Any], found: Mapping[str, tuple[int, ...]], reference: str) -> BertShape:
    """The sizes in config.json.

    The number of token types comes from the weights: the first duoBERT was released with two rows and a
    configuration of three.

    Args:
        config: config.json.
        found: the shapes of the checkpoint's tensors.
        reference: names the checkpoint in errors.

    Raises:
        PreflightError: a size is missing or wrong, or the activation is not known.
    """
    try:
        chunks, attention_size = chunk_sizes(config)
        sizes = validated(_SIZES, config)
    except ValueError as error:
        raise PreflightError(f"config.json of the checkpoint {reference} cannot be used: {error}") from error
    if sizes.hidden_act not in _GELU:
        raise PreflightError(
            f"the checkpoint {reference} has hidden_act {sizes.hidden_act!r}; known: {', '.join(_GELU)}"
        )
    shape = BertShape(
        layers=sizes.num_hidden_layers,
        heads=sizes.num_attention_heads,
        hidden=sizes.hidden_size,
        inner=sizes.intermediate_size,
        vocab_size=sizes.vocab_size,
        positions=sizes.max_position_embeddings,
        token_types=next(iter(found.get(TOKEN_TYPES, ())), 0),
        layer_norm_eps=sizes.layer_norm_eps,
        tanh_gelu=_GELU[sizes.hidden_act],
        chunks=chunks,
        attention_size=attention_size,
    )
    if shape.hidden % shape.heads:
        raise PreflightError(
            f"config.json of the checkpoint {reference} has {shape.layers} layers and {shape.heads} heads over a width "
            f"of {shape.hidden}: the heads must share the width evenly"
        )
    return shape
