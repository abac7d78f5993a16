"""ELECTRA as a cross-encoder: BERT with embeddings of their own width, and a head without a pooler."""

from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from models.architectures.bert import NAMES, count_types, read_shape
from models.architectures.encoder.family import Family, Source, missing_token_types
from models.architectures.encoder.shape import Dense, EncoderShape, Head, Size, read_sizes
from models.tokenizers.layout import FamilyLayout


@dataclass(frozen=True)
class _Embedding:
    """The key of config.json that BERT does not have."""

    embedding_size: Size = 128


_EMBEDDING = TypeAdapter(_Embedding)


def _read_shape(source: Source) -> EncoderShape:
    reference = source.files.reference
    shape = read_shape(source.config, count_types(source), reference)
    return replace(shape, embedding_size=read_sizes(_EMBEDDING, source.config, reference).embedding_size)


def _read_head(source: Source, shape: EncoderShape, labels: int) -> Head:
    del source
    dense = Dense("classifier.dense", shape.hidden, shape.hidden, "gelu")
    return Head((dense, Dense("classifier.out_proj", labels, shape.hidden)))


ELECTRA = Family(
    prefix="electra.",
    names={**NAMES, "projection": "embeddings_project"},
    classifier="classifier.out_proj",
    layout=FamilyLayout(),
    read_shape=_read_shape,
    read_head=_read_head,
    check_types=missing_token_types,
)
