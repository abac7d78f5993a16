"""Pools the vectors of a passage's chunks into one (Mass et al. 2019, section 4.3.2)."""

import torch
from torch import Tensor, nn


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
