"""Passages that a model reads in chunks: the vectors of the chunks become one."""

import torch
from torch import Tensor, nn


class ChunkPooling(nn.Module):
    """Attention over the chunks of a passage, or the maximum of each dimension.

    The attention is that of Yang et al. 2016 (equations 5 to 7), with chunks for words: u_i =
    tanh(W h_i + b), alpha is the softmax of u_i . u over the chunks, and the passage's vector is
    the sum of alpha_i h_i. Without attention (`attention_size` 0, the size of u), it is the
    maximum.
    """

    def __init__(self, chunks: int, hidden: int, attention_size: int) -> None:
        super().__init__()
        self._chunks = chunks
        self._attends = attention_size > 0
        if self._attends:
            self.dense = nn.Linear(hidden, attention_size)
            self.context = nn.Linear(attention_size, 1, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """float[b * chunks, hidden], the chunks of a passage one after the other -> float[b,
        hidden].
        """
        chunks = vectors.view(-1, self._chunks, vectors.shape[1])
        if not self._attends:
            return chunks.amax(dim=1)
        weights = torch.softmax(self.context(torch.tanh(self.dense(chunks))), dim=1)
        return (weights * chunks).sum(dim=1)
