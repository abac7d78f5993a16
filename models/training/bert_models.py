"""transformers' BERTs with the forward passes of trainings: a passage in chunks, and hidden wordpieces."""

from typing import Any

import transformers
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.bert.modeling_bert import BertForPreTrainingOutput

from models.architectures.chunk_pooling import ChunkPooling
from models.architectures.chunked_bert import CHUNKED_BERT, CHUNKS, chunk_entry, chunk_sizes
from models.training.config import ChunksConfig
from models.training.data.pretraining import NOT_PREDICTED


class ChunkedBertConfig(BertConfig):  # type: ignore[no-untyped-call]
    """BERT's configuration with an entry `chunks`; transformers does not know its model_type and refuses to load it."""

    model_type = CHUNKED_BERT


class ChunkedBert(BertForSequenceClassification):  # type: ignore[no-untyped-call]
    """BertForSequenceClassification that combines the [CLS] vectors of a passage's chunks before the head."""

    config_class = ChunkedBertConfig

    def __init__(self, config: ChunkedBertConfig) -> None:
        super().__init__(config)
        chunks, attention_size = chunk_sizes(config.to_dict())
        self.chunk_pooling = ChunkPooling(chunks, config.hidden_size, attention_size)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> SequenceClassifierOutput:
        """int64[b * chunks, n] each, the chunks of a passage one after the other -> float[b, labels] logits."""
        vectors = self.bert(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).pooler_output
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(self.chunk_pooling(vectors))))


def chunked_config(config: BertConfig, chunks: ChunksConfig) -> ChunkedBertConfig:
    """A BERT's configuration with the chunks' entry."""
    size = chunks.attention_size if chunks.pooling == "attention" else 0
    values: dict[str, Any] = config.to_dict() | {CHUNKS: chunk_entry(chunks.count, size)}
    values.pop("model_type")
    found: ChunkedBertConfig = ChunkedBertConfig.from_dict(values)
    return found


class BertForPreTraining(transformers.BertForPreTraining):  # type: ignore[no-untyped-call]
    """Has the name that is written to config.json."""

    def forward(self, hidden: Tensor | None = None, **inputs: Tensor) -> BertForPreTrainingOutput:
        """Predicts the wordpieces that `hidden`, int64[b, n], holds: the vocabulary is the widest layer."""
        vectors, pooled = self.bert(**inputs)[:2]
        chosen = vectors if hidden is None else vectors[hidden != NOT_PREDICTED]
        words, next_sentence = self.cls.predictions(chosen), self.cls.seq_relationship(pooled)
        return BertForPreTrainingOutput(prediction_logits=words, seq_relationship_logits=next_sentence)
