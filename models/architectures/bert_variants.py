"""Families whose layers are BERT's: RoBERTa (with XLM-RoBERTa and CamemBERT), ELECTRA and DistilBERT."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from beamrank.errors import PreflightError
from models.architectures.bert import NAMES, BertSizes, read_shape, shape_of
from models.architectures.encoder.family import Family, Names, Source, missing_token_types
from models.architectures.encoder.shape import EncoderShape, Layers, Size, dense_head, read_sizes
from models.tokenizers.layout import FamilyLayout


@dataclass(frozen=True)
class _Padding:
    """The key of config.json that decides the positions."""

    pad_token_id: Annotated[int, Field(ge=0, le=1 << 24)] = 1


def _roberta_shape(source: Source) -> EncoderShape:
    """Positions start after the id of padding, so a table of 514 rows is for 512 tokens."""
    first = read_sizes(_Padding, source.config, source.files.reference).pad_token_id + 1
    shape = shape_of(source)
    if shape.positions <= first:
        raise PreflightError(
            f"config.json of {source.checkpoint} has max_position_embeddings {shape.positions}, of which the first "
            f"{first} are for padding (pad_token_id {first - 1}): none is left for a token"
        )
    return replace(shape, positions=shape.positions - first, first_position=first)


ROBERTA = Family(
    prefix="roberta.",
    names=NAMES,
    classifier="classifier.out_proj",
    # The tokenizers give every token type 0.
    layout=FamilyLayout(
        separators=2,
        typed=False,
        classes=("RobertaTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer", "BartTokenizer"),
    ),
    read_shape=_roberta_shape,
    read_head=dense_head("classifier.dense", "tanh", "classifier.out_proj"),
    check_types=missing_token_types,
)


@dataclass(frozen=True)
class _Embedding:
    """The key of config.json that BERT does not have."""

    embedding_size: Size = 128


def _electra_shape(source: Source) -> EncoderShape:
    embedding = read_sizes(_Embedding, source.config, source.files.reference)
    return replace(shape_of(source), embedding_size=embedding.embedding_size)


ELECTRA = Family(
    prefix="electra.",
    names={**NAMES, "projection": "embeddings_project"},
    classifier="classifier.out_proj",
    layout=FamilyLayout(),
    read_shape=_electra_shape,
    read_head=dense_head("classifier.dense", "gelu", "classifier.out_proj"),
    check_types=missing_token_types,
)


_DISTILBERT_NAMES: Names = {
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
class _DistilbertSizes(BertSizes):
    """The keys of config.json that decide the encoder."""

    num_hidden_layers: Annotated[Layers, Field(validation_alias="n_layers")]
    num_attention_heads: Annotated[Size, Field(validation_alias="n_heads")]
    hidden_size: Annotated[Size, Field(validation_alias="dim")]
    intermediate_size: Annotated[Size, Field(validation_alias="hidden_dim")]
    hidden_act: Annotated[str, Field(validation_alias="activation")] = "gelu"
    activation_key: ClassVar = "activation"


def _distilbert_shape(source: Source) -> EncoderShape:
    shape = read_shape(source.config, None, source.files.reference, _DistilbertSizes)
    return replace(shape, layer_norm_eps=1e-12)


DISTILBERT = Family(
    prefix="distilbert.",
    names=_DISTILBERT_NAMES,
    classifier="classifier",
    layout=FamilyLayout(typed=False, classes=("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")),
    read_shape=_distilbert_shape,
    read_head=dense_head("pre_classifier", "relu", "classifier"),
    check_types=missing_token_types,
)
