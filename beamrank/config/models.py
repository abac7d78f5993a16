"""The sections of the models, and how their inputs are laid out."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from beamrank.ranking.aggregation import METHODS
from beamrank.ranking.input_layout import SegmentPooling, Truncation
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


class StageConfig(Section):
    """The section of a stage."""

    k: Positive = 1000
    """Candidates that it receives, at most."""

    def check_input(self, name: str, layout: InputConfig) -> None:
        """Raises ValueError where the inputs of its model cannot be laid out so; `name` is the stage's."""


class ModelConfig(StageConfig):
    """The section of a stage with a checkpoint."""

    checkpoint: CheckpointName
    """A Hugging Face id, a folder or its URL."""

    def doc_tokens(self, input_tokens: int) -> int:
        """The most wordpieces of a doc that are scored, where its inputs together hold `input_tokens`."""
        return input_tokens


class MonoConfig(ModelConfig):
    """monoBERT; leave it out to stop after the first stage."""

    checkpoint: CheckpointName
    """`embedded:mono`, a Hugging Face id, a folder or its URL."""
    k: Positive = 1000
    """Candidates that are scored (the papers' k0); by default at most those given."""
    segments: SegmentsConfig | None = None
    """Splits long docs; by default their beginning is scored."""

    def doc_tokens(self, input_tokens: int) -> int:
        """See `ModelConfig.doc_tokens`."""
        return input_tokens if self.segments is None else self.segments.doc_tokens

    def check_input(self, name: str, layout: InputConfig) -> None:
        """See `StageConfig.check_input`."""
        room = layout.max_length - layout.max_query_length - 2
        if self.segments is not None and self.segments.length_tokens > room:
            raise ValueError(
                f"{name}.segments.length_tokens is {self.segments.length_tokens}, but an input of max_length "
                f"{layout.max_length} holds {room} wordpieces of a doc beside the longest query: the rest of each "
                "segment would be cut off"
            )

    @property
    def pooling(self) -> SegmentPooling:
        """How a doc's segments make its score; without effect if docs are whole."""
        return "max" if self.segments is None else self.segments.pooling


class DuoConfig(ModelConfig):
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

    def check_input(self, name: str, layout: InputConfig) -> None:  # noqa: ARG002
        """See `StageConfig.check_input`."""
        if layout.truncation == "hf":
            raise ValueError("truncation `hf` is defined for pairs only, and duoBERT's input has three segments")
        if layout.max_length - layout.max_query_length < 6:
            raise ValueError(
                f"input.max_length {layout.max_length} leaves duoBERT's two docs no room beside a query of "
                f"max_query_length {layout.max_query_length}"
            )

    @model_validator(mode="after")
    def _check_opponents(self) -> Self:
        if (self.aggregation == "sample") != (self.opponents is not None):
            raise ValueError(
                "`opponents` is how many opponents `aggregation: sample` draws for a candidate: give both or neither"
            )
        return self
