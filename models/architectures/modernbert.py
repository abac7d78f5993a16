"""ModernBERT as a cross-encoder: pre-norm, rotary positions, gated inner maps, windows in most layers."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool

from beamrank.errors import PreflightError
from models.architectures.encoder.family import Family, Names, Slice, Source, missing_token_types
from models.architectures.encoder.shape import (
    GELUS,
    Activation,
    Attention,
    Dense,
    EncoderShape,
    Epsilon,
    Head,
    Layers,
    Norm,
    Pooling,
    Size,
    check_heads,
    read_activation,
    read_sizes,
)
from models.tokenizers.layout import FamilyLayout

_NAMES: Names = {
    "words": "embeddings.tok_embeddings",
    "norm": "embeddings.norm",
    "query": Slice("layers.{}.attn.Wqkv", 0, 3),
    "key": Slice("layers.{}.attn.Wqkv", 1, 3),
    "value": Slice("layers.{}.attn.Wqkv", 2, 3),
    "attended": "layers.{}.attn.Wo",
    "attention_norm": "layers.{}.attn_norm",
    "widen": Slice("layers.{}.mlp.Wi", 0, 2),
    "gate": Slice("layers.{}.mlp.Wi", 1, 2),
    "narrow": "layers.{}.mlp.Wo",
    "inner_norm": "layers.{}.mlp_norm",
    "final_norm": "final_norm",
}
_HEAD_ACTIVATIONS: dict[str, Activation] = {**GELUS, "relu": "relu", "tanh": "tanh"}

_Layer = Literal["full_attention", "sliding_attention"]
_Theta = Annotated[float, Field(ge=1, le=1e12)]


@dataclass(frozen=True)
class _Rope:
    """The rotary positions of one kind of layer."""

    rope_type: str = "default"
    rope_theta: _Theta | None = None


@dataclass(frozen=True)
class _Sizes:
    """The keys of config.json that decide the model. Tables of rotary positions are made for every position."""

    num_hidden_layers: Layers
    num_attention_heads: Size
    hidden_size: Size
    intermediate_size: Size
    vocab_size: Size
    max_position_embeddings: Annotated[int, Field(ge=1, le=1 << 16)] = 8192
    norm_eps: Epsilon = 1e-5
    norm_bias: StrictBool = False
    attention_bias: StrictBool = False
    mlp_bias: StrictBool = False
    hidden_activation: str = "gelu"
    local_attention: Annotated[int, Field(ge=2, le=1 << 24)] = 128
    layer_types: list[_Layer] | None = None
    global_attn_every_n_layers: Size = 3
    rope_parameters: dict[_Layer, _Rope] = field(default_factory=dict)
    rope_scaling: Any = None
    global_rope_theta: _Theta = 160_000.0
    local_rope_theta: _Theta = 10_000.0
    classifier_pooling: Pooling = "cls"
    classifier_activation: str = "gelu"
    classifier_bias: StrictBool = False


def _read_shape(source: Source) -> EncoderShape:
    reference = source.files.reference
    sizes = read_sizes(_Sizes, source.config, reference)
    shape = EncoderShape(
        attentions=_read_attentions(sizes, source),
        heads=sizes.num_attention_heads,
        hidden=sizes.hidden_size,
        inner=sizes.intermediate_size,
        vocab_size=sizes.vocab_size,
        embedding_size=sizes.hidden_size,
        positions=sizes.max_position_embeddings,
        first_position=None,
        token_types=None,
        layer_norm_eps=sizes.norm_eps,
        activation=read_activation("hidden_activation", sizes.hidden_activation, GELUS, reference),
        gated=True,
        pre_norm=True,
        attention_bias=sizes.attention_bias,
        inner_bias=sizes.mlp_bias,
        norm_bias=sizes.norm_bias,
    )
    check_heads(shape, reference)
    if (size := shape.hidden // shape.heads) % 2:
        raise PreflightError(
            f"config.json of {source.checkpoint} has heads of {size} dimensions: rotary positions turn pairs of them"
        )
    return shape


def _read_attentions(sizes: _Sizes, source: Source) -> tuple[Attention, ...]:
    every, count = sizes.global_attn_every_n_layers, sizes.num_hidden_layers
    layers = sizes.layer_types or [
        "sliding_attention" if number % every else "full_attention" for number in range(count)
    ]
    if len(layers) != count:
        raise PreflightError(
            f"config.json of {source.checkpoint} contradicts itself: {count} layers and {len(layers)} layer_types"
        )
    ropes = {each: sizes.rope_parameters.get(each, _Rope()) for each in ("full_attention", "sliding_attention")}
    scaled = sizes.rope_scaling or next(
        (each.rope_type for each in ropes.values() if each.rope_type != "default"), None
    )
    if scaled:
        raise PreflightError(
            f"{source.checkpoint} scales its rotary positions ({scaled!r:.100}); only rope_type 'default' can be scored"
        )
    full = Attention(0, ropes["full_attention"].rope_theta or sizes.global_rope_theta)
    # `local_attention` is the width of the whole window.
    near = Attention(sizes.local_attention // 2, ropes["sliding_attention"].rope_theta or sizes.local_rope_theta)
    return tuple(full if each == "full_attention" else near for each in layers)


def _read_head(source: Source, shape: EncoderShape, labels: int) -> Head:
    reference = source.files.reference
    sizes = read_sizes(_Sizes, source.config, reference)
    activation = read_activation("classifier_activation", sizes.classifier_activation, _HEAD_ACTIVATIONS, reference)
    steps = (
        Dense("head.dense", shape.hidden, shape.hidden, activation, sizes.classifier_bias),
        Norm("head.norm", shape.hidden, shape.layer_norm_eps, shape.norm_bias),
        Dense("classifier", labels, shape.hidden),
    )
    return Head(steps, sizes.classifier_pooling)


MODERNBERT = Family(
    prefix="model.",
    names=_NAMES,
    classifier="classifier",
    layout=FamilyLayout(typed=False, classes=()),
    read_shape=_read_shape,
    read_head=_read_head,
    check_types=missing_token_types,
)
