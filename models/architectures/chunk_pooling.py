"""The module of a BERT that reads a passage in chunks: it pools the vectors of a passage's chunks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.architectures.encoder.model import EncoderScorer
from models.architectures.kernels.token_rows import Layout, TokenRows

if TYPE_CHECKING:
    from models.architectures.kernels.compiled import Kernels


class ChunkedScorer(nn.Module):
    """Log-odds of a batch of inputs, the chunks of each side by side."""

    def __init__(self, encoder: nn.Module, chunks: int, attention_size: int, weights: Mapping[str, Tensor]) -> None:
        """Takes an `EncoderScorer`, how many chunks a passage has, the size of u, and the tensors of the pooling."""
        super().__init__()
        assert isinstance(encoder, EncoderScorer)
        self.encoder, self.chunks = encoder, chunks
        self.chunk_pooling = ChunkPooling(chunks, encoder.words.shape[1], attention_size).requires_grad_(False)
        self.chunk_pooling.load_state_dict(dict(weights))

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


class ChunkPooling(nn.Module):
    """Attention over the chunks of a passage, or the maximum of each dimension.

    The attention is that of Yang et al. 2016 (equations 5 to 7), with chunks for words: u_i = tanh(W h_i + b), alpha is
    the softmax of u_i . u over the chunks, and the passage's vector is the sum of alpha_i h_i.
    """

    def __init__(self, chunks: int, hidden: int, attention_size: int) -> None:
        """Takes how many chunks a passage has, the width of a vector and of u; `attention_size` 0 is the maximum."""
        super().__init__()
        self._chunks = chunks
        self._attends = attention_size > 0
        if self._attends:
            self.dense = nn.Linear(hidden, attention_size)
            self.context = nn.Linear(attention_size, 1, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """float[b * chunks, hidden], the chunks of a passage one after the other -> float[b, hidden]."""
        chunks = vectors.view(-1, self._chunks, vectors.shape[1])
        if not self._attends:
            return chunks.amax(dim=1)
        weights = torch.softmax(self.context(torch.tanh(self.dense(chunks))), dim=1)
        return (weights * chunks).sum(dim=1)
