"""monoBERT that reads a passage in chunks (Mass et al. 2019, section 4.3.2), as `beamrank train`
makes it.

transformers does not know its model_type and refuses it; as a plain BERT it would load, and score
chunks one by one. Needs no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import SEGMENTS, InputTemplate
from beamrank.records import SpecialTokens
from models.architectures.encoder.family import EncoderClassifier
from models.architectures.families import BERT
from models.architectures.protocol import ModelFiles, check_tensors

if TYPE_CHECKING:
    import torch

CHUNKED_BERT = "chunked_bert"
CHUNKS, POOLING = "chunks", "chunk_pooling"


@dataclass(frozen=True)
class _Entry:
    """The entry `chunks` of config.json."""

    count: Annotated[int, Field(ge=1, le=512)]
    pooling: Literal["attention", "max"]
    attention_size: Annotated[int, Field(ge=1, le=1 << 24)] = 0

    def __post_init__(self) -> None:
        if self.pooling == "attention" and not self.attention_size:
            raise ValueError("`attention` needs an attention_size: give it")


@dataclass(frozen=True)
class _Config:
    chunks: _Entry


@dataclass(frozen=True)
class ChunkedBert(EncoderClassifier):
    """A BERT that cuts the doc of an input into `chunks`; `attention_size` is 0 for max pooling."""

    chunks: int = 1
    attention_size: int = 0

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        pooling = {
            f"{POOLING}.dense.weight": (self.attention_size, self.shape.hidden),
            f"{POOLING}.dense.bias": (self.attention_size,),
            f"{POOLING}.context.weight": (1, self.attention_size),
        }
        return super().tensors | (pooling if self.attention_size else {})

    def template(self, special: SpecialTokens) -> InputTemplate:
        return replace(super().template(special), doc_parts=self.chunks)

    def build(
        self, weights: Mapping[str, "torch.Tensor"], dtype: "torch.dtype"
    ) -> "torch.nn.Module":
        from models.architectures.encoder.model import ChunkedScorer

        pooling = {
            name.removeprefix(f"{POOLING}."): each
            for name, each in weights.items()
            if name.startswith(POOLING)
        }
        return ChunkedScorer(
            super().build(weights, dtype), self.chunks, self.attention_size, pooling
        )


def read_chunked_bert(files: ModelFiles, segments: int) -> ChunkedBert:
    """Reads a checkpoint; an `ArchitectureReader`."""
    if segments != SEGMENTS["mono"]:
        raise PreflightError(f"{files} reads passages in chunks, which is for mono alone")
    chunks, attention_size = chunk_sizes(files)
    bert = BERT.read(files, segments)
    if bert.own_layout is not None:
        raise PreflightError(
            f"{files} reads passages in chunks, and its tokenizer does not lay them out as BERT's "
            "([CLS] query [SEP] passage [SEP] with token types 0 and 1): give it the tokenizer "
            "that it was trained with"
        )
    model = ChunkedBert(**vars(bert), chunks=chunks, attention_size=attention_size)
    check_tensors(files, model.tensors)
    return model


def chunk_entry(count: int, attention_size: int) -> dict[str, Any]:
    """The entry `chunks`: how many, and the size of the attention over them, or 0 for max
    pooling.
    """
    pooling = (
        {"pooling": "attention", "attention_size": attention_size}
        if attention_size
        else {"pooling": "max"}
    )
    return {"count": count, **pooling}


def chunk_sizes(files: ModelFiles) -> tuple[int, int]:
    """The arguments of `chunk_entry`, by config.json."""
    entry = files.keys(_Config).chunks
    return entry.count, entry.attention_size if entry.pooling == "attention" else 0
