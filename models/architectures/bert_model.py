"""BERT as a module of torch: the function of transformers' BertForSequenceClassification with less work.

Nothing is approximated: one product makes query, key and value; there is no padding and no mask; the last layer is
computed for the [CLS] row alone, because the head reads nothing else. The head (pooler and classifier) stays in
float32 for any dtype of the encoder: bfloat16 log-odds would tie.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.architectures.bert_shape import CLASSIFIER, TOKEN_TYPES, BertShape
from models.architectures.chunk_pooling import ChunkPooling
from models.architectures.chunk_sizes import POOLING
from models.kernels.attention import attend, attend_first
from models.kernels.linear import Linear
from models.kernels.norm import LayerNorm, frozen
from models.kernels.token_rows import TokenRows


class _Layer(nn.Module):
    """A transformer layer, without the projections to query, key and value."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, shape: BertShape) -> None:
        super().__init__()
        attention, eps = f"{name}.attention", shape.layer_norm_eps
        self.head = (shape.heads, shape.hidden // shape.heads)
        self.attended = Linear(weights, f"{attention}.output.dense")
        self.attended_norm = LayerNorm(weights, f"{attention}.output.LayerNorm", eps)
        gelu = "gelu_tanh" if shape.tanh_gelu else "gelu"
        self.widen = Linear(weights, f"{name}.intermediate.dense", activation=gelu)
        self.narrow = Linear(weights, f"{name}.output.dense")
        self.norm = LayerNorm(weights, f"{name}.output.LayerNorm", eps)

    def finish(self, hidden: Tensor, context: Tensor) -> Tensor:
        """What follows the attention: float[r, d] twice -> float[r, d]."""
        hidden = self.attended_norm(self.attended(context, hidden))
        output: Tensor = self.norm(self.narrow(self.widen(hidden), hidden))
        return output


class _FullLayer(_Layer):
    """A transformer layer for all tokens."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, shape: BertShape) -> None:
        super().__init__(weights, name, shape)
        self.qkv = Linear(weights, *(f"{name}.attention.self.{part}" for part in ("query", "key", "value")))

    def forward(self, hidden: Tensor, rows: TokenRows) -> Tensor:
        """float[t, d] -> float[t, d]."""
        query, key, value = rows.by_blocks(self.qkv, hidden).view(len(hidden), 3, *self.head).unbind(1)
        return rows.by_blocks(self.finish, hidden, attend(query, key, value, rows))


class _FirstRowsLayer(_Layer):
    """A transformer layer that computes each input's first token alone."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, shape: BertShape) -> None:
        super().__init__(weights, name, shape)
        self.query = Linear(weights, f"{name}.attention.self.query")
        self.key_value = Linear(weights, *(f"{name}.attention.self.{part}" for part in ("key", "value")))

    def forward(self, hidden: Tensor, rows: TokenRows) -> Tensor:
        """float[t, d] -> float[b, d]."""
        first = hidden[rows.first]
        query = rows.by_blocks(self.query, first).view(len(first), *self.head)
        key, value = rows.by_blocks(self.key_value, hidden).view(len(hidden), 2, *self.head).unbind(1)
        return rows.by_blocks(self.finish, first, attend_first(query, key, value, rows))


class BertScorer(nn.Module):
    """Log-odds of a batch of inputs."""

    def __init__(self, shape: BertShape, weights: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        """Builds the model.

        Args:
            shape: the sizes.
            weights: a state dict with the names of BertForSequenceClassification.
            dtype: of the layers; embeddings and head are float32.
        """
        super().__init__()
        self.dtype = dtype
        self.chunks = shape.chunks
        self.words = frozen(weights["bert.embeddings.word_embeddings.weight"])
        self.positions = frozen(weights["bert.embeddings.position_embeddings.weight"])
        self.types = frozen(weights[TOKEN_TYPES])
        self.norm = LayerNorm(weights, "bert.embeddings.LayerNorm", shape.layer_norm_eps)
        *lower, last = (f"bert.encoder.layer.{index}" for index in range(shape.layers))
        self.lower_layers = nn.ModuleList(_FullLayer(weights, name, shape) for name in lower).to(dtype)
        self.last_layer = _FirstRowsLayer(weights, last, shape).to(dtype)
        self.pooler = Linear(weights, "bert.pooler.dense")
        self.chunk_pooling = ChunkPooling(shape.chunks, shape.hidden, shape.attention_size).requires_grad_(False)
        self.chunk_pooling.load_state_dict(
            {name: weights[f"{POOLING}.{name}"] for name in self.chunk_pooling.state_dict()}
        )
        self.classifier = Linear(weights, CLASSIFIER)

    def forward(self, rows: TokenRows) -> Tensor:
        """Log-odds, float32[b / chunks]; the chunks of a passage are inputs that follow each other."""
        hidden = rows.by_blocks(self._embed, rows.token_ids, rows.positions, rows.token_types)
        for layer in self.lower_layers:
            hidden = layer(hidden, rows)
        pooled = rows.by_blocks(self._pool, self.last_layer(hidden, rows))
        passages = rows.by_blocks(self._pool_chunks, pooled.view(-1, self.chunks, pooled.shape[1]))
        logits = rows.by_blocks(self.classifier, passages)
        return logits[:, -1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]

    def _embed(self, token_ids: Tensor, positions: Tensor, token_types: Tensor) -> Tensor:
        hidden = F.embedding(token_ids, self.words)
        hidden += F.embedding(positions, self.positions)
        hidden += F.embedding(token_types, self.types)
        normed: Tensor = self.norm(hidden)
        return normed.to(self.dtype)

    def _pool_chunks(self, vectors: Tensor) -> Tensor:
        pooled: Tensor = self.chunk_pooling(vectors.flatten(0, 1))
        return pooled

    def _pool(self, first: Tensor) -> Tensor:
        return torch.tanh(self.pooler(first.float()))
