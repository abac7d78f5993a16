"""RoBERTa, XLM-RoBERTa and CamemBERT as cross-encoders: one model under three names, with other tokenizers."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field, TypeAdapter

from beamrank.errors import PreflightError
from models.architectures.bert import NAMES, count_types, read_shape
from models.architectures.encoder.family import Family, Source, missing_token_types
from models.architectures.encoder.shape import Dense, EncoderShape, Head, read_sizes
from models.tokenizers.layout import FamilyLayout


@dataclass(frozen=True)
class _Padding:
    """The key of config.json that decides the positions."""

    pad_token_id: Annotated[int, Field(ge=0, le=1 << 24)] = 1


_PADDING = TypeAdapter(_Padding)


def _read_shape(source: Source) -> EncoderShape:
    """Positions start after the id of padding, so a table of 514 rows is for 512 tokens."""
    reference = source.files.reference
    first = read_sizes(_PADDING, source.config, reference).pad_token_id + 1
    shape = read_shape(source.config, count_types(source), reference)
    if shape.positions <= first:
        raise PreflightError(
            f"config.json of {source.checkpoint} has max_position_embeddings {shape.positions}, of which the first "
            f"{first} are for padding (pad_token_id {first - 1}): none is left for a token"
        )
    return replace(shape, positions=shape.positions - first, first_position=first)


def _read_head(source: Source, shape: EncoderShape, labels: int) -> Head:
    del source
    dense = Dense("classifier.dense", shape.hidden, shape.hidden, "tanh")
    return Head((dense, Dense("classifier.out_proj", labels, shape.hidden)))


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
    read_shape=_read_shape,
    read_head=_read_head,
    check_types=missing_token_types,
)
