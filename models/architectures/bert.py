"""BERT as a cross-encoder: which checkpoints can be scored, and the template of their input."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import SEGMENTS, InputTemplate
from beamrank.records import SpecialTokens
from models.architectures.bert_shape import CLASSIFIER, TOKEN_TYPES, BertShape, read_shape
from models.architectures.chunk_sizes import CHUNKED_BERT
from models.architectures.classifier import check_modules, check_tensors, count_labels
from models.architectures.protocol import ModelFiles

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Bert:
    """A BERT sequence classifier: an `Architecture`."""

    shape: BertShape
    num_labels: int
    segments: int
    warnings: tuple[str, ...]

    @property
    def positions(self) -> int:
        return self.shape.positions

    @property
    def vocab_size(self) -> int:
        return self.shape.vocab_size

    @property
    def chunks(self) -> int:
        return self.shape.chunks

    @property
    def token_cost(self) -> int:
        return self.shape.token_cost

    @cached_property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The tensors of transformers' BertForSequenceClassification."""
        return self.shape.tensors(self.num_labels)

    def template(self, special: SpecialTokens) -> InputTemplate:
        return bert_template(special, self.segments)

    def build(self, weights: Mapping[str, "torch.Tensor"], dtype: "torch.dtype") -> "torch.nn.Module":
        """Builds the model; a text whose token type is missing gets a row of zeros."""
        import torch

        from models.architectures.bert_model import BertScorer

        types = weights[TOKEN_TYPES]
        rows = types.new_zeros(max(0, self.segments - len(types)), types.shape[1])
        return BertScorer(self.shape, {**weights, TOKEN_TYPES: torch.cat([types, rows])}, dtype)


def bert_template(special: SpecialTokens, segments: int) -> InputTemplate:
    """`[CLS] text [SEP] text [SEP] ...`; each text, its [SEP] included, has its own token type."""
    ends = ((special.sep_id,),) * segments
    return InputTemplate((special.cls_id,), ends, tuple(range(segments)), special.pad_id)


def read_bert(files: ModelFiles, segments: int) -> Bert:
    """Checks a BERT sequence classifier; also one of beamrank's own that reads a doc in chunks.

    Args:
        files: the checkpoint's.
        segments: how many texts an input has.

    Raises:
        PreflightError: it cannot be scored.
    """
    reference, config = files.reference, files.config
    if config["model_type"] == CHUNKED_BERT and segments != SEGMENTS["mono"]:
        raise PreflightError(f"the checkpoint {reference} reads passages in chunks, which is for mono alone")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise PreflightError(
            f"the checkpoint {reference} has position_embedding_type {config['position_embedding_type']!r}; only "
            "'absolute' can be scored"
        )
    if config.get("is_decoder"):
        raise PreflightError(f"the checkpoint {reference} is a decoder (is_decoder): a re-ranker reads both ways")
    check_modules(files)
    num_labels = count_labels(files, f"{CLASSIFIER}.weight")
    shape = read_shape(config, files.tensors, reference)
    check_tensors(files, shape.tensors(num_labels))
    return Bert(shape, num_labels, segments, missing_types(shape.token_types, segments, f"the checkpoint {reference}"))


def missing_types(token_types: int, segments: int, checkpoint: str) -> tuple[str, ...]:
    """A warning where an input has more texts than a BERT has token types.

    Raises:
        PreflightError: it has one token type, so it was not trained on inputs of several texts.
    """
    if token_types >= segments:
        return ()
    if token_types < SEGMENTS["mono"]:
        kind = next(kind for kind, count in SEGMENTS.items() if count == segments)
        raise PreflightError(
            f"{checkpoint} knows {token_types} token type, and {kind}BERT's input has {segments} "
            "segments: it cannot have been trained for this"
        )
    return (
        f"{checkpoint} has token type embeddings for 2 segments, duoBERT's input has 3. The second doc "
        "gets a row of zeros, as TensorFlow gave the models of 2019 that came so; any other model scores badly",
    )
