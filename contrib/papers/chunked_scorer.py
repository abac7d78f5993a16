"""The module of torch of a monoBERT that reads a passage in chunks."""

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from models.architectures.encoder.model import EncoderScorer
from models.architectures.kernels.attention import Layout, TokenRows

if TYPE_CHECKING:
    from models.architectures.kernels.compiled import Kernels


class ChunkedScorer(nn.Module):
    """Log-odds of a batch of inputs, the chunks of each side by side, by an `EncoderScorer` and a
    `ChunkPooling`.
    """

    def __init__(self, encoder: nn.Module, chunks: int, pooling: nn.Module) -> None:
        super().__init__()
        assert isinstance(encoder, EncoderScorer)
        self.encoder, self.chunks, self.chunk_pooling = encoder, chunks, pooling

    def pack(self, kernels: "Kernels | None" = None) -> Layout:
        """As `EncoderScorer.pack`."""
        return self.encoder.pack(kernels)

    def forward(self, rows: TokenRows) -> Tensor:
        """Log-odds, float32[b / chunks], of the chunks of inputs."""
        vectors = self.encoder.pool(self.encoder.encode(rows))
        unused = -len(vectors) % self.chunks
        pooled = self.chunk_pooling(F.pad(vectors, (0, 0, 0, unused)))
        passages = F.pad(pooled, (0, 0, 0, len(vectors) - len(pooled)))
        return self.encoder.classify(passages)[: rows.count // self.chunks]
