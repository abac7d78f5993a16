"""The sections of the models, and how their inputs are laid out."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from beamrank.ranking.aggregation import METHODS
from beamrank.ranking.input_layout import Truncation
from beamrank.ranking.segments import SegmentPooling
from beamrank.section import CheckpointName, OneOf, Positive, Section


class SegmentsConfig(Section):
    """Long docs in segments that monoBERT scores one by one."""

    length_tokens: Positive
    """Wordpieces of a segment."""
    stride_tokens: Positive | None = None
    """Wordpieces from the beginning of a segment to that of the next; default: length_tokens."""
    pooling: SegmentPooling = "max"
    """Which of the segments' scores is the doc's; `first` scores one."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 16
    """Segments of a doc that are scored at most."""

    @model_validator(mode="after")
    def _check_stride(self) -> Self:
        if self.stride > self.length_tokens:
            raise ValueError(
                f"stride_tokens {self.stride} is more than length_tokens {self.length_tokens}: tokens between two "
                "segments would not be read"
            )
        return self

    @property
    def stride(self) -> int:
        """Wordpieces from the beginning of a segment to that of the next."""
        return self.stride_tokens or self.length_tokens

    @property
    def most(self) -> int:
        """The most segments of a doc that are scored."""
        return 1 if self.pooling == "first" else self.limit

    @property
    def doc_tokens(self) -> int:
        """The most wordpieces of a doc that the segments cover."""
        return self.length_tokens + (self.most - 1) * self.stride


class MonoConfig(Section):
    """monoBERT; leave it out to stop after the first stage."""

    checkpoint: CheckpointName
    """`embedded:mono`, a Hugging Face id, a folder or its URL."""
    k: Positive = 1000
    """Candidates that are scored (the papers' k0); by default at most those given."""
    segments: SegmentsConfig | None = None
    """Splits long docs; by default their beginning is scored."""

    def doc_tokens(self, input_tokens: int) -> int:
        """The most wordpieces of a doc that are scored, where its inputs together hold `input_tokens`."""
        return input_tokens if self.segments is None else self.segments.doc_tokens

    @property
    def pooling(self) -> SegmentPooling:
        """How a doc's segments make its score; without effect if docs are whole."""
        return "max" if self.segments is None else self.segments.pooling


class DuoConfig(Section):
    """duoBERT; leave it out to stop after monoBERT."""

    checkpoint: CheckpointName
    """`embedded:duo`, a Hugging Face id, a folder or its URL."""
    k: Positive = 50
    """Candidates that are compared (the papers' k1); by default at most mono.k."""
    aggregation: Annotated[str, OneOf(METHODS)] = "sum"
    """How scores of pairs make a candidate's."""
    opponents: Positive | None = None
    """With `sample`: opponents of a candidate (m of equation 7)."""
    seed: int = 0
    """With `sample`: decides which opponents are drawn."""

    def doc_tokens(self, input_tokens: int) -> int:
        """See `MonoConfig.doc_tokens`."""
        return input_tokens

    @model_validator(mode="after")
    def _check_opponents(self) -> Self:
        if (self.aggregation == "sample") != (self.opponents is not None):
            raise ValueError(
                "`opponents` is how many opponents `aggregation: sample` draws for a candidate: give both or neither"
            )
        return self


class InputConfig(Section):
    """How a model's input is laid out (docs/reference/model-inputs.md)."""

    truncation: Truncation = "original"
    """The rule for texts that are too long."""
    max_query_length: Annotated[int, Field(ge=3)] = 64
    """Tokens, special tokens included."""
    max_length: Annotated[int, Field(ge=8)] = 512
    """Tokens, special tokens included; at most the positions of the checkpoint."""

    @model_validator(mode="after")
    def _check_room(self) -> Self:
        # `hf` does not read max_query_length.
        if self.truncation != "hf" and self.max_query_length > self.max_length - 5:
            raise ValueError(
                f"max_query_length {self.max_query_length} leaves no room for a doc in max_length {self.max_length}"
            )
        return self
