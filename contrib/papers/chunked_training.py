"""The model that learns to read a passage in chunks, as transformers' classes."""

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput

from models.training.config import CHUNKED, ChunksConfig


class ChunkPooling(nn.Module):
    """Attention over the chunks of a passage, or the maximum of each dimension.

    The attention is as in Yang et al. 2016 (equations 5 to 7), with chunks for words: u_i = tanh(W
    h_i + b), alpha is the softmax of u_i . u over the chunks, and the passage's vector is the sum
    of alpha_i h_i. Without attention (`attention_size` 0, the size of u), it is the maximum.
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


class ChunkedBertConfig(BertConfig):  # type: ignore[no-untyped-call]
    """BERT's configuration with an entry `chunks`; transformers does not know its model_type and
    refuses to load it.
    """

    model_type = CHUNKED


class ChunkedBert(BertForSequenceClassification):  # type: ignore[no-untyped-call]
    """BertForSequenceClassification that combines the [CLS] vectors of a passage's chunks before
    the head.
    """

    config_class = ChunkedBertConfig

    def __init__(self, config: ChunkedBertConfig) -> None:
        super().__init__(config)
        chunks = ChunksConfig.model_validate(config.chunks)
        self.chunk_pooling = ChunkPooling(chunks.count, config.hidden_size, chunks.attention)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> SequenceClassifierOutput:
        """int64[b * chunks, n] each, the chunks of a passage one after the other -> float[b,
        labels] logits.
        """
        vectors = self.bert(
            input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).pooler_output
        return SequenceClassifierOutput(
            logits=self.classifier(self.dropout(self.chunk_pooling(vectors)))
        )


def chunked_model(
    config: BertConfig, chunks: ChunksConfig
) -> tuple[type[ChunkedBert], ChunkedBertConfig]:
    """The class and the configuration of a BERT that reads passages in chunks."""
    unused = set() if chunks.attention else {"attention_size"}
    values = {**config.to_dict(), "chunks": chunks.model_dump(exclude=unused)}
    values.pop("model_type")
    return ChunkedBert, ChunkedBertConfig.from_dict(values)
