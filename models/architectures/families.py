"""The architectures by name. Our encoder computes BERT, RoBERTa and its kin, ELECTRA, DistilBERT,
ModernBERT.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool

from beamrank.errors import PreflightError
from beamrank.plugins import Registry
from beamrank.ranking.input_layout import InputTemplate
from beamrank.records import SpecialTokens
from models.architectures.encoder.family import EncoderClassifier, Family
from models.architectures.encoder.shape import (
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
)
from models.architectures.protocol import Architecture, ArchitectureReader, ModelFiles, Shapes
from models.tokenizers.layout import FamilyLayout

CLASSIFIER = "classifier"
TOKEN_TYPES = "bert.embeddings.token_type_embeddings.weight"
_GELUS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
}


class OtherActivation(PreflightError):
    """An activation that transformers computes and the encoder here does not."""


def _activation(
    key: str, name: str, files: ModelFiles, known: Mapping[str, Activation] = _GELUS
) -> Activation:
    """The activation that a key of config.json names."""
    if name not in known:
        from transformers.activations import ACT2FN

        kind = OtherActivation if name in ACT2FN else PreflightError
        raise kind(f"{files} has {key} {name!r:.100}; known: {', '.join({**known, **ACT2FN})}")
    return known[name]


def _check_heads(shape: EncoderShape, files: ModelFiles) -> EncoderShape:
    if shape.hidden % shape.heads:
        raise PreflightError(
            f"config.json of {files} has {len(shape.attentions)} layers and {shape.heads} heads "
            f"over a width of {shape.hidden}: the heads must share the width evenly"
        )
    return shape


def _dense_head(
    dense: str, activation: Activation, classifier: str
) -> Callable[[object, EncoderShape, int], Head]:
    """The reader of a head: a dense map of the first token's vector, then the logits; both by their
    tensors' names.
    """

    def read(_: object, shape: EncoderShape, labels: int) -> Head:
        width = shape.hidden
        return Head((Dense(dense, width, width, activation), Dense(classifier, labels, width)))

    return read


@dataclass(frozen=True)
class _BertSizes:
    """The keys of config.json that decide the encoder."""

    num_hidden_layers: Layers
    num_attention_heads: Size
    hidden_size: Size
    intermediate_size: Size
    vocab_size: Size
    max_position_embeddings: Size = 512
    layer_norm_eps: Epsilon = 1e-12
    hidden_act: str = "gelu"
    activation_key: ClassVar = "hidden_act"


def _sizes(sizes: "_BertSizes | _ModernbertSizes") -> dict[str, Any]:
    """The sizes of an encoder whose embeddings are as wide as its layers."""
    return {
        "heads": sizes.num_attention_heads,
        "hidden": sizes.hidden_size,
        "inner": sizes.intermediate_size,
        "vocab_size": sizes.vocab_size,
        "embedding_size": sizes.hidden_size,
        "positions": sizes.max_position_embeddings,
    }


def bert_shape(
    files: ModelFiles, token_types: int | None, kind: type[_BertSizes] = _BertSizes
) -> EncoderShape:
    """The sizes in config.json, under the keys of BERT or of `kind`.

    The weights tell the number of token types: the first duoBERT was released with two rows and a
    configuration of three. None is for a family without.
    """
    sizes = files.keys(kind)
    shape = EncoderShape(
        attentions=(Attention(),) * sizes.num_hidden_layers,
        **_sizes(sizes),
        first_position=0,
        token_types=token_types,
        layer_norm_eps=sizes.layer_norm_eps,
        activation=_activation(sizes.activation_key, sizes.hidden_act, files),
    )
    return _check_heads(shape, files)


def _typed_shape(files: ModelFiles, prefix: str) -> EncoderShape:
    table = files.tensors.get(f"{prefix}embeddings.token_type_embeddings.weight", ())
    return bert_shape(files, next(iter(table), 0))


_BERT_NAMES = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "types": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "query": "encoder.layer.{}.attention.self.query",
    "key": "encoder.layer.{}.attention.self.key",
    "value": "encoder.layer.{}.attention.self.value",
    "attended": "encoder.layer.{}.attention.output.dense",
    "attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "widen": "encoder.layer.{}.intermediate.dense",
    "narrow": "encoder.layer.{}.output.dense",
    "inner_norm": "encoder.layer.{}.output.LayerNorm",
}
BERT = Family(
    prefix="bert.",
    names=_BERT_NAMES,
    classifier=CLASSIFIER,
    layout=FamilyLayout(),
    read_shape=_typed_shape,
    read_head=_dense_head("bert.pooler.dense", "tanh", CLASSIFIER),
    adds_type=True,
)


def bert_template(special: SpecialTokens, segments: int) -> InputTemplate:
    """`[CLS] text [SEP] text [SEP] ...`; each text, its [SEP] included, has its own token type."""
    return BERT.layout.fill(special, segments)


def bert_tensors(shape: EncoderShape, labels: int) -> Shapes:
    """The tensors of transformers' BertForSequenceClassification."""
    head = BERT.read_head(ModelFiles("", {}), shape, labels)
    return EncoderClassifier(shape, head, BERT.names, BERT.prefix, BERT.layout, 2).tensors


@dataclass(frozen=True)
class _Padding:
    pad_token_id: Annotated[int, Field(ge=0, le=1 << 24)] = 1


def _roberta_shape(files: ModelFiles, prefix: str) -> EncoderShape:
    """Positions start after the id of padding, so a table of 514 rows is for 512 tokens."""
    first = files.keys(_Padding).pad_token_id + 1
    shape = _typed_shape(files, prefix)
    if shape.positions <= first:
        raise PreflightError(
            f"config.json of {files} has max_position_embeddings {shape.positions}, of which the "
            f"first {first} are for padding (pad_token_id {first - 1}): none is left for a token"
        )
    return replace(shape, positions=shape.positions - first, first_position=first)


ROBERTA = Family(
    prefix="roberta.",
    names=_BERT_NAMES,
    classifier="classifier.out_proj",
    # The tokenizers give every token type 0.
    layout=FamilyLayout(
        separators=2,
        typed=False,
        classes=("RobertaTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer", "BartTokenizer"),
    ),
    read_shape=_roberta_shape,
    read_head=_dense_head("classifier.dense", "tanh", "classifier.out_proj"),
)


@dataclass(frozen=True)
class _Embedding:
    embedding_size: Size = 128


def _electra_shape(files: ModelFiles, prefix: str) -> EncoderShape:
    size = files.keys(_Embedding).embedding_size
    return replace(_typed_shape(files, prefix), embedding_size=size)


ELECTRA = Family(
    prefix="electra.",
    names={**_BERT_NAMES, "projection": "embeddings_project"},
    classifier="classifier.out_proj",
    layout=FamilyLayout(),
    read_shape=_electra_shape,
    read_head=_dense_head("classifier.dense", "gelu", "classifier.out_proj"),
)


@dataclass(frozen=True)
class _DistilbertSizes(_BertSizes):
    num_hidden_layers: Annotated[Layers, Field(validation_alias="n_layers")]
    num_attention_heads: Annotated[Size, Field(validation_alias="n_heads")]
    hidden_size: Annotated[Size, Field(validation_alias="dim")]
    intermediate_size: Annotated[Size, Field(validation_alias="hidden_dim")]
    hidden_act: Annotated[str, Field(validation_alias="activation")] = "gelu"
    activation_key: ClassVar = "activation"


DISTILBERT = Family(
    prefix="distilbert.",
    names={
        "words": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "norm": "embeddings.LayerNorm",
        "query": "transformer.layer.{}.attention.q_lin",
        "key": "transformer.layer.{}.attention.k_lin",
        "value": "transformer.layer.{}.attention.v_lin",
        "attended": "transformer.layer.{}.attention.out_lin",
        "attention_norm": "transformer.layer.{}.sa_layer_norm",
        "widen": "transformer.layer.{}.ffn.lin1",
        "narrow": "transformer.layer.{}.ffn.lin2",
        "inner_norm": "transformer.layer.{}.output_layer_norm",
    },
    classifier="classifier",
    layout=FamilyLayout(
        typed=False, classes=("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
    ),
    read_shape=lambda files, _: replace(
        bert_shape(files, None, _DistilbertSizes), layer_norm_eps=1e-12
    ),
    read_head=_dense_head("pre_classifier", "relu", "classifier"),
)

_Layer = Literal["full_attention", "sliding_attention"]
_Theta = Annotated[float, Field(ge=1, le=1e12)]


@dataclass(frozen=True)
class _Rope:
    rope_type: str = "default"
    rope_theta: _Theta | None = None


@dataclass(frozen=True)
class _ModernbertSizes:
    """The keys of config.json that decide the model. Tables of rotary positions are made for every
    position.
    """

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


def _modernbert_shape(files: ModelFiles, prefix: str) -> EncoderShape:  # noqa: ARG001
    sizes = files.keys(_ModernbertSizes)
    shape = EncoderShape(
        attentions=_modernbert_attentions(sizes, files),
        **_sizes(sizes),
        first_position=None,
        token_types=None,
        layer_norm_eps=sizes.norm_eps,
        activation=_activation("hidden_activation", sizes.hidden_activation, files),
        gated=True,
        pre_norm=True,
        attention_bias=sizes.attention_bias,
        inner_bias=sizes.mlp_bias,
        norm_bias=sizes.norm_bias,
    )
    if (size := _check_heads(shape, files).hidden // shape.heads) % 2:
        raise PreflightError(
            f"config.json of {files} has heads of {size} dimensions: rotary positions turn pairs "
            "of them"
        )
    return shape


def _modernbert_attentions(sizes: _ModernbertSizes, files: ModelFiles) -> tuple[Attention, ...]:
    every, count = sizes.global_attn_every_n_layers, sizes.num_hidden_layers
    layers = sizes.layer_types or [
        "sliding_attention" if number % every else "full_attention" for number in range(count)
    ]
    if len(layers) != count:
        raise PreflightError(
            f"config.json of {files} contradicts itself: {count} layers and {len(layers)} "
            "layer_types"
        )
    full, near = (
        sizes.rope_parameters.get(layer, _Rope())
        for layer in ("full_attention", "sliding_attention")
    )
    types = [rope.rope_type for rope in (full, near) if rope.rope_type != "default"]
    if scaled := sizes.rope_scaling or next(iter(types), None):
        raise PreflightError(
            f"{files} scales its rotary positions ({scaled!r:.100}); only rope_type 'default' can "
            "be scored"
        )
    # `local_attention` is the width of the whole window.
    of_type = {
        "full_attention": Attention(0, full.rope_theta or sizes.global_rope_theta),
        "sliding_attention": Attention(
            sizes.local_attention // 2, near.rope_theta or sizes.local_rope_theta
        ),
    }
    return tuple(of_type[layer] for layer in layers)


def _modernbert_head(files: ModelFiles, shape: EncoderShape, labels: int) -> Head:
    sizes = files.keys(_ModernbertSizes)
    known: dict[str, Activation] = {**_GELUS, "relu": "relu", "tanh": "tanh"}
    activation = _activation("classifier_activation", sizes.classifier_activation, files, known)
    steps = (
        Dense("head.dense", shape.hidden, shape.hidden, activation, sizes.classifier_bias),
        Norm("head.norm", shape.hidden, shape.layer_norm_eps, shape.norm_bias),
        Dense("classifier", labels, shape.hidden),
    )
    return Head(steps, sizes.classifier_pooling)


MODERNBERT = Family(
    prefix="model.",
    names={
        "words": "embeddings.tok_embeddings",
        "norm": "embeddings.norm",
        **dict.fromkeys(("query", "key", "value"), "layers.{}.attn.Wqkv"),
        "attended": "layers.{}.attn.Wo",
        "attention_norm": "layers.{}.attn_norm",
        **dict.fromkeys(("widen", "gate"), "layers.{}.mlp.Wi"),
        "narrow": "layers.{}.mlp.Wo",
        "inner_norm": "layers.{}.mlp_norm",
        "final_norm": "final_norm",
    },
    classifier="classifier",
    layout=FamilyLayout(typed=False, classes=()),
    read_shape=_modernbert_shape,
    read_head=_modernbert_head,
)


# By the class or the model_type that config.json names.
ARCHITECTURES: Registry[ArchitectureReader] = Registry(
    "architecture",
    "beamrank.architectures",
    {
        "bert": BERT.read,
        "roberta": ROBERTA.read,
        "xlm-roberta": ROBERTA.read,
        "camembert": ROBERTA.read,
        "electra": ELECTRA.read,
        "distilbert": DISTILBERT.read,
        "modernbert": MODERNBERT.read,
    },
)


def find_reader(config: Mapping[str, Any]) -> ArchitectureReader | None:
    """The architecture of a config.json: by its class, else by its model_type."""
    names = (ModelFiles("", config).class_name, config.get("model_type"))
    known = next((name for name in names if isinstance(name, str) and name in ARCHITECTURES), None)
    return None if known is None else ARCHITECTURES[known]


def read_architecture(files: ModelFiles, segments: int) -> Architecture:
    """The architecture of a checkpoint for inputs of so many texts, or that which transformers
    computes.
    """
    if reader := find_reader(files.config):
        with suppress(OtherActivation):
            return reader(files, segments)
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    )

    model_type, own_code = files.config.get("model_type"), files.config.get("auto_map")
    if (
        own_code
        or not isinstance(model_type, str)
        or model_type not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    ):
        name = f" ({files.class_name})" if files.class_name else ""
        raise PreflightError(
            f"{files} has the model_type {model_type!r:.100}{name:.100}, which cannot be scored; "
            f"known: {', '.join(map(repr, ARCHITECTURES))}, every sequence classifier of "
            "transformers"
            + (". The code that it comes with (auto_map) is never run" if own_code else "")
        )
    from models.architectures.transformers import read_classifier

    return read_classifier(files, segments)
