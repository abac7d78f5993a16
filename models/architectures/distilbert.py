"""DistilBERT as a cross-encoder: BERT without token types, with other names in its files."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from models.architectures.bert import BertSizes, read_shape
from models.architectures.encoder.family import Family, Names, Source, missing_token_types
from models.architectures.encoder.shape import EncoderShape, Layers, Size, dense_head
from models.tokenizers.layout import FamilyLayout

_NAMES: Names = {
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
}


@dataclass(frozen=True)
class _Sizes(BertSizes):
    """The keys of config.json that decide the encoder."""

    num_hidden_layers: Annotated[Layers, Field(validation_alias="n_layers")]
    num_attention_heads: Annotated[Size, Field(validation_alias="n_heads")]
    hidden_size: Annotated[Size, Field(validation_alias="dim")]
    intermediate_size: Annotated[Size, Field(validation_alias="hidden_dim")]
    hidden_act: Annotated[str, Field(validation_alias="activation")] = "gelu"
    activation_key: ClassVar = "activation"


def _read_shape(source: Source) -> EncoderShape:
    shape = read_shape(source.config, None, source.files.reference, _Sizes)
    return replace(shape, layer_norm_eps=1e-12)


DISTILBERT = Family(
    prefix="distilbert.",
    names=_NAMES,
    classifier="classifier",
    layout=FamilyLayout(typed=False, classes=("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")),
    read_shape=_read_shape,
    read_head=dense_head("pre_classifier", "relu", "classifier"),
    check_types=missing_token_types,
)
