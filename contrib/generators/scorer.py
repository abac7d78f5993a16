"""The module of a language model that answers with a word."""

from typing import Any

import torch
from torch import Tensor, nn

from models.architectures.transformers_scorer import TransformersScorer


class WordScorer(TransformersScorer):
    """The logits of two words after a prompt."""

    def __init__(self, model: Any, rows: Tensor, decodes: bool) -> None:
        """Replaces the map to all words by one to the two that count, in float32.

        Args:
            model: of transformers.
            rows: float32[2, d], those of the map to words.
            decodes: whether the model has a decoder beside the encoder.
        """
        head = nn.Linear(rows.shape[1], 2, bias=False)
        head.load_state_dict({"weight": rows})
        model.set_output_embeddings(head)
        super().__init__(model, head)
        self._decodes = decodes

    def logits(self, ids: Tensor, types: Tensor) -> Tensor:  # noqa: ARG002
        given: dict[str, Any] = {"logits_to_keep": 1}
        if self._decodes:
            given = {"decoder_input_ids": ids.new_full((len(ids), 1), self.model.config.decoder_start_token_id)}
        logits: Tensor = self.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **given).logits
        return logits[:, -1]
