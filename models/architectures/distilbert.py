"""DistilBERT as a cross-encoder: BERT without token types."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from models.architectures.encoder.family import Family, Names, Source, missing_token_types
from models.architectures.encoder.shape import (
    GELUS,
    Attention,
    Dense,
    EncoderShape,
    Head,
    Layers,
    Size,
    check_heads,
    read_activation,
    read_sizes,
)
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
class _Sizes:
    """The keys of config.json that decide the encoder."""

    n_layers: Layers
    n_heads: Size
    dim: Size
    hidden_dim: Size
    vocab_size: Size
    max_position_embeddings: Size = 512
    activation: str = "gelu"


_SIZES = TypeAdapter(_Sizes)


def _read_shape(source: Source) -> EncoderShape:
    reference = source.files.reference
    sizes = read_sizes(_SIZES, source.config, reference)
    shape = EncoderShape(
        attentions=(Attention(),) * sizes.n_layers,
        heads=sizes.n_heads,
        hidden=sizes.dim,
        inner=sizes.hidden_dim,
        vocab_size=sizes.vocab_size,
        embedding_size=sizes.dim,
        positions=sizes.max_position_embeddings,
        first_position=0,
        token_types=None,
        layer_norm_eps=1e-12,
        activation=read_activation("activation", sizes.activation, GELUS, reference),
    )
    check_heads(shape, reference)
    return shape


def _read_head(source: Source, shape: EncoderShape, labels: int) -> Head:
    del source
    dense = Dense("pre_classifier", shape.hidden, shape.hidden, "relu")
    return Head((dense, Dense("classifier", labels, shape.hidden)))


DISTILBERT = Family(
    prefix="distilbert.",
    names=_NAMES,
    classifier="classifier",
    layout=FamilyLayout(typed=False, classes=("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")),
    read_shape=_read_shape,
    read_head=_read_head,
    check_types=missing_token_types,
)
