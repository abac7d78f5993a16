"""monoBERT that reads a passage in chunks (Mass et al. 2019, section 4.3.2), as `beamrank train`
makes it.

transformers does not know its model_type and refuses it; as a plain BERT it would load, and score
chunks one by one. Needs no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import TEXT_COUNTS, InputTemplate
from beamrank.records import SpecialTokens
from models.architectures.encoder.family import EncoderClassifier
from models.architectures.families import BERT
from models.architectures.protocol import ModelFiles, check_tensors
from models.training.config import ChunksConfig

if TYPE_CHECKING:
    import torch

_POOLING = "chunk_pooling."


@dataclass(frozen=True)
class _Config:
    chunks: ChunksConfig


@dataclass(frozen=True, kw_only=True)
class ChunkedBert(EncoderClassifier):
    """A BERT that cuts the doc of an input into `chunks`."""

    chunks: ChunksConfig

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        size = self.chunks.attention
        pooling = {
            f"{_POOLING}dense.weight": (size, self.shape.hidden),
            f"{_POOLING}dense.bias": (size,),
            f"{_POOLING}context.weight": (1, size),
        }
        return super().tensors | (pooling if size else {})

    def template(self, special: SpecialTokens) -> InputTemplate:
        return replace(super().template(special), doc_parts=self.chunks.count)

    def build(
        self, weights: Mapping[str, "torch.Tensor"], dtype: "torch.dtype"
    ) -> "torch.nn.Module":
        from contrib.papers.chunked_scorer import ChunkedScorer
        from contrib.papers.chunked_training import ChunkPooling

        pooling = ChunkPooling(self.chunks.count, self.shape.hidden, self.chunks.attention)
        of_pooling = {
            name.removeprefix(_POOLING): tensor
            for name, tensor in weights.items()
            if name.startswith(_POOLING)
        }
        pooling.requires_grad_(False).load_state_dict(of_pooling)
        return ChunkedScorer(super().build(weights, dtype), self.chunks.count, pooling)


class _Reader:
    """An `ArchitectureReader`, which `beamrank train` asks for the model of `chunks`."""

    def __call__(self, files: ModelFiles, segments: int) -> ChunkedBert:
        if segments != TEXT_COUNTS["mono"]:
            raise PreflightError(f"{files} reads passages in chunks, which is for mono alone")
        chunks = files.keys(_Config).chunks
        bert = BERT.read(files, segments)
        if bert.own_layout is not None:
            raise PreflightError(
                f"{files} reads passages in chunks, and its tokenizer does not lay them out as "
                "BERT's ([CLS] query [SEP] passage [SEP] with token types 0 and 1): give it the "
                "tokenizer that it was trained with"
            )
        model = ChunkedBert(**vars(bert), chunks=chunks)
        check_tensors(files, model.tensors)
        return model

    def trained(self, config: Any, chunks: ChunksConfig) -> tuple[Any, Any]:
        from contrib.papers.chunked_training import chunked_model

        return chunked_model(config, chunks)


CHUNKED_BERT = _Reader()
