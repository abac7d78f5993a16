"""The module of a BERT that reads a passage in chunks: it cuts inputs, and pools the vectors of a passage's chunks."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from beamrank.ranking.input_layout import InputTemplate, PackedInputs, lay_out
from models.architectures.encoder.model import EncoderScorer
from models.architectures.kernels.token_rows import TokenRows


class ChunkedScorer(nn.Module):
    """Log-odds of a batch of inputs, whose docs are cut into chunks."""

    def __init__(self, encoder: nn.Module, chunks: int, attention_size: int, weights: Mapping[str, Tensor]) -> None:
        """Takes an `EncoderScorer`, how many chunks a passage has, the size of u, and the tensors of the pooling."""
        super().__init__()
        assert isinstance(encoder, EncoderScorer)
        self.encoder, self.chunks = encoder, chunks
        self.chunk_pooling = ChunkPooling(chunks, encoder.words.shape[1], attention_size).requires_grad_(False)
        self.chunk_pooling.load_state_dict(dict(weights))

    def forward(self, rows: TokenRows) -> Tensor:
        """Log-odds, float32[b]."""
        cut = self._cut(rows)
        pooled = self.encoder.pool(self.encoder.encode(cut), cut)
        passages = cut.by_blocks(self._pool, pooled.view(-1, self.chunks, pooled.shape[1]))
        return self.encoder.classify(passages, cut)

    def _cut(self, rows: TokenRows) -> TokenRows:
        """The chunks of each input side by side: `[CLS] query [SEP]` of token type 0, and a share of the rest."""
        starts = rows.starts.cpu().numpy().astype(np.int64)
        ids, types = (each[: rows.tokens].cpu().numpy() for each in (rows.token_ids, rows.token_types))
        docs = np.add.reduceat(types, starts[:-1], dtype=np.int64) - 1
        queries = np.diff(starts) - docs - 1
        template = InputTemplate((), ((), (int(ids[-1]),)), (0, 1), 0, doc_parts=self.chunks)
        places, kept = np.stack([starts[:-1], starts[:-1] + queries], axis=1), np.stack([queries, docs], axis=1)
        inputs = cut_docs(PackedInputs(ids, places, kept, template))
        batch = lay_out(inputs, np.arange(len(inputs)), int(inputs.lengths.max()))
        is_token = np.arange(batch.token_ids.shape[1]) < batch.lengths[:, None]
        cut_ids, cut_types = (torch.from_numpy(each[is_token]) for each in (batch.token_ids, batch.token_types))
        return TokenRows(cut_ids, cut_types, batch.lengths.tolist(), rows.block, rows.varlen).to(rows.token_ids.device)

    def _pool(self, vectors: Tensor) -> Tensor:
        pooled: Tensor = self.chunk_pooling(vectors.flatten(0, 1))
        return pooled


def cut_docs(inputs: PackedInputs) -> PackedInputs:
    """Each input as `doc_parts` of its template in a row, its last segment shared out evenly among them."""
    count = inputs.template.doc_parts
    borders = inputs.kept[:, -1:] * np.arange(count + 1) // count
    starts, kept = np.repeat(inputs.starts, count, axis=0), np.repeat(inputs.kept, count, axis=0)
    starts[:, -1] += borders[:, :-1].ravel()
    kept[:, -1] = np.diff(borders).ravel()
    return PackedInputs(inputs.tokens, starts, kept, inputs.template)


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
