"""BERT as a cross-encoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from beamrank.ranking.input_layout import SEGMENTS, InputTemplate
from beamrank.records import SpecialTokens
from models.architectures.encoder.family import (
    Family,
    Names,
    Source,
    missing_token_types,
    refuse_missing_types,
    tensor_shapes,
)
from models.architectures.encoder.shape import (
    GELUS,
    Attention,
    EncoderShape,
    Epsilon,
    Layers,
    Size,
    check_heads,
    dense_head,
    read_activation,
    read_sizes,
)
from models.architectures.protocol import Shapes
from models.tokenizers.layout import FamilyLayout

CLASSIFIER = "classifier"
TOKEN_TYPES = "bert.embeddings.token_type_embeddings.weight"
NAMES: Names = {
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
_PREFIX = "bert."
_LAYOUT = FamilyLayout()
_read_head = dense_head(f"{_PREFIX}pooler.dense", "tanh", CLASSIFIER)


@dataclass(frozen=True)
class BertSizes:
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


def bert_template(special: SpecialTokens, segments: int) -> InputTemplate:
    """`[CLS] text [SEP] text [SEP] ...`; each text, its [SEP] included, has its own token type."""
    return _LAYOUT.fill(special, segments)


def read_shape(
    config: Mapping[str, Any], token_types: int | None, reference: str, kind: type[BertSizes] = BertSizes
) -> EncoderShape:
    """The sizes in config.json, of BERT and of families with the same keys.

    Args:
        config: config.json.
        token_types: the number in the weights: the first duoBERT was released with two rows and a configuration of
            three. None for a family without.
        reference: names the checkpoint in errors.
        kind: names the keys of a family that differ.

    Raises:
        PreflightError: a size is missing or wrong, or the activation is not known.
    """
    sizes = read_sizes(kind, config, reference)
    shape = EncoderShape(
        attentions=(Attention(),) * sizes.num_hidden_layers,
        heads=sizes.num_attention_heads,
        hidden=sizes.hidden_size,
        inner=sizes.intermediate_size,
        vocab_size=sizes.vocab_size,
        embedding_size=sizes.hidden_size,
        positions=sizes.max_position_embeddings,
        first_position=0,
        token_types=token_types,
        layer_norm_eps=sizes.layer_norm_eps,
        activation=read_activation(sizes.activation_key, sizes.hidden_act, GELUS, reference),
    )
    check_heads(shape, reference)
    return shape


def bert_tensors(shape: EncoderShape, labels: int) -> Shapes:
    """The tensors of transformers' BertForSequenceClassification."""
    return tensor_shapes(shape, _read_head(None, shape, labels), NAMES, _PREFIX)


def missing_types(token_types: int, segments: int, checkpoint: str) -> tuple[str, ...]:
    """A warning where an input has more texts than a BERT has token types.

    Raises:
        PreflightError: it has one token type, so it was not trained on inputs of several texts.
    """
    if token_types >= segments:
        return ()
    if token_types < SEGMENTS["mono"]:
        refuse_missing_types(token_types, tuple(range(segments)), checkpoint)
    return (
        f"{checkpoint} has token type embeddings for 2 segments, duoBERT's input has 3. The second doc "
        "gets a row of zeros, as TensorFlow gave the models of 2019 that came so; any other model scores badly",
    )


def shape_of(source: Source) -> EncoderShape:
    """`read_shape` with the token types that the weights have."""
    table = source.files.tensors.get(f"{source.prefix}embeddings.token_type_embeddings.weight", ())
    return read_shape(source.config, next(iter(table), 0), source.files.reference)


def _check_types(source: Source, shape: EncoderShape, types: tuple[int, ...]) -> tuple[str, ...]:
    if any(types):
        return missing_types(shape.token_types or 0, len(types), source.checkpoint)
    return missing_token_types(source, shape, types)


BERT = Family(
    prefix=_PREFIX,
    names=NAMES,
    classifier=CLASSIFIER,
    layout=_LAYOUT,
    read_shape=shape_of,
    read_head=_read_head,
    check_types=_check_types,
)
