"""BERT as a module of torch: the function of transformers' BertForSequenceClassification with less work.

Nothing is approximated: one product makes query, key and value; a batch without padding has no mask; the last layer is
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


class _Norm(nn.Module):
    """Layer normalisation."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, eps: float) -> None:
        super().__init__()
        self.weight, self.bias = _frozen(weights[f"{name}.weight"]), _frozen(weights[f"{name}.bias"])
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        return F.layer_norm(hidden, self.weight.shape, self.weight, self.bias, self.eps)


class _Linear(nn.Module):
    """A linear map; several maps of one input are concatenated to one."""

    def __init__(self, weights: Mapping[str, Tensor], *names: str) -> None:
        super().__init__()
        self.weight = _frozen(torch.cat([weights[f"{name}.weight"] for name in names]))
        self.bias = _frozen(torch.cat([weights[f"{name}.bias"] for name in names]))

    def forward(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.weight, self.bias)


class _Layer(nn.Module):
    """A transformer layer."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, shape: BertShape) -> None:
        super().__init__()
        attention = f"{name}.attention"
        self.heads = shape.heads
        self.approximate = "tanh" if shape.tanh_gelu else "none"
        self.qkv = _Linear(weights, *(f"{attention}.self.{part}" for part in ("query", "key", "value")))
        self.attended = _Linear(weights, f"{attention}.output.dense")
        self.attended_norm = _Norm(weights, f"{attention}.output.LayerNorm", shape.layer_norm_eps)
        self.widen = _Linear(weights, f"{name}.intermediate.dense")
        self.narrow = _Linear(weights, f"{name}.output.dense")
        self.norm = _Norm(weights, f"{name}.output.LayerNorm", shape.layer_norm_eps)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """float[b, n, d] -> float[b, n, d]; `mask` is bool[b, 1, 1, n], True on tokens."""
        batch, length, width = hidden.shape
        qkv = self.qkv(hidden).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self._finish(hidden, context.transpose(1, 2).reshape(batch, length, width))

    def first_row(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """The layer's output for the first token alone: float[b, n, d] -> float[b, 1, d]."""
        batch, length, width = hidden.shape
        split = (self.heads, width // self.heads)
        first = hidden[:, :1]
        query = F.linear(first, self.qkv.weight[:width], self.qkv.bias[:width]).view(batch, 1, *split).transpose(1, 2)
        key_value = F.linear(hidden, self.qkv.weight[width:], self.qkv.bias[width:])
        key, value = key_value.view(batch, length, 2, *split).permute(2, 0, 3, 1, 4).unbind(0)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self._finish(first, context.transpose(1, 2).reshape(batch, 1, width))

    def _finish(self, hidden: Tensor, context: Tensor) -> Tensor:
        hidden = self.attended_norm(self.attended(context).add_(hidden))
        inner = F.gelu(self.widen(hidden), approximate=self.approximate)
        output: Tensor = self.norm(self.narrow(inner).add_(hidden))
        return output


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
        self.words = _frozen(weights["bert.embeddings.word_embeddings.weight"])
        self.positions = _frozen(weights["bert.embeddings.position_embeddings.weight"])
        self.types = _frozen(weights[TOKEN_TYPES])
        self.norm = _Norm(weights, "bert.embeddings.LayerNorm", shape.layer_norm_eps)
        *lower, last = (_Layer(weights, f"bert.encoder.layer.{index}", shape) for index in range(shape.layers))
        self.lower_layers = nn.ModuleList(lower).to(dtype)
        self.last_layer = last.to(dtype)
        self.pooler = _Linear(weights, "bert.pooler.dense")
        self.chunk_pooling = ChunkPooling(shape.chunks, shape.hidden, shape.attention_size).requires_grad_(False)
        self.chunk_pooling.load_state_dict(
            {name: weights[f"{POOLING}.{name}"] for name in self.chunk_pooling.state_dict()}
        )
        self.classifier = _Linear(weights, CLASSIFIER)

    def forward(self, token_ids: Tensor, token_types: Tensor, mask: Tensor | None) -> Tensor:
        """Scores inputs.

        Args:
            token_ids: int[b, n]; the chunks of a passage follow each other.
            token_types: int[b, n].
            mask: bool[b, n], True on tokens; None if no row has padding.

        Returns:
            float32[b / chunks], log-odds: logit 1 - logit 0, or the logit itself where the head has one.
        """
        hidden = F.embedding(token_ids, self.words)
        hidden += self.positions[: token_ids.shape[1]]
        hidden += F.embedding(token_types, self.types)
        hidden = self.norm(hidden).to(self.dtype)
        keys = None if mask is None else mask[:, None, None, :]
        for layer in self.lower_layers:
            hidden = layer(hidden, keys)
        first: Tensor = self.last_layer.first_row(hidden, keys)
        pooled = torch.tanh(self.pooler(first[:, 0].float()))
        logits: Tensor = self.classifier(self.chunk_pooling(pooled))
        return logits[:, -1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.contiguous(), requires_grad=False)
