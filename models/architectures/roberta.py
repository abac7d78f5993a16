"""RoBERTa, XLM-RoBERTa and CamemBERT as cross-encoders: one model under three names, with other tokenizers."""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from beamrank.errors import PreflightError
from models.architectures.bert import NAMES, shape_of
from models.architectures.encoder.family import Family, Source, missing_token_types
from models.architectures.encoder.shape import EncoderShape, dense_head, read_sizes
from models.tokenizers.layout import FamilyLayout


@dataclass(frozen=True)
class _Padding:
    """The key of config.json that decides the positions."""

    pad_token_id: Annotated[int, Field(ge=0, le=1 << 24)] = 1


def _read_shape(source: Source) -> EncoderShape:
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
    read_shape=_read_shape,
    read_head=dense_head("classifier.dense", "tanh", "classifier.out_proj"),
    check_types=missing_token_types,
)
