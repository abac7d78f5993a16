"""ELECTRA as a cross-encoder: BERT with embeddings of their own width, and a head without a pooler."""

from dataclasses import dataclass, replace

from models.architectures.bert import NAMES, shape_of
from models.architectures.encoder.family import Family, Source, missing_token_types
from models.architectures.encoder.shape import EncoderShape, Size, dense_head, read_sizes
from models.tokenizers.layout import FamilyLayout


@dataclass(frozen=True)
class _Embedding:
    """The key of config.json that BERT does not have."""

    embedding_size: Size = 128


def _read_shape(source: Source) -> EncoderShape:
    embedding = read_sizes(_Embedding, source.config, source.files.reference)
    return replace(shape_of(source), embedding_size=embedding.embedding_size)


ELECTRA = Family(
    prefix="electra.",
    names={**NAMES, "projection": "embeddings_project"},
    classifier="classifier.out_proj",
    layout=FamilyLayout(),
    read_shape=_read_shape,
    read_head=dense_head("classifier.dense", "gelu", "classifier.out_proj"),
    check_types=missing_token_types,
)
