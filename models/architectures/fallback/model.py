"""A model of transformers that scores packed inputs."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
)
from transformers.utils.logging import disable_progress_bar

from models.architectures.fallback.tasks import Readout, Task
from models.architectures.kernels.token_rows import Group, TokenRows

_NO_ID = -1
_CLASSES: dict[Task, Any] = {
    "classifier": MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    "seq2seq": MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    "causal": MODEL_FOR_CAUSAL_LM_MAPPING,
}


def read_config(config: Mapping[str, Any]) -> PreTrainedConfig:
    """The configuration of transformers. Its errors are of any type."""
    return AutoConfig.for_model(**config)


def make_model(config: PreTrainedConfig, task: Task) -> Any:
    """A model without weights."""
    return _CLASSES[task][type(config)]._from_config(config, attn_implementation="eager")


class TransformersScorer(nn.Module):
    """Log-odds by a model of transformers, which gets inputs without padding."""

    def __init__(
        self,
        config: Mapping[str, Any],
        readout: Readout,
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        typed: bool,
    ) -> None:
        """Builds the model.

        Args:
            config: config.json.
            readout: where the logits come from.
            weights: float32.
            dtype: of the layers.
            typed: whether the model gets token types: some add an embedding for a type that they are not trained on.
        """
        super().__init__()
        disable_progress_bar()  # type: ignore[no-untyped-call]
        described = read_config(config)
        self._model = _CLASSES[readout.task][type(described)].from_pretrained(
            None, config=described, state_dict=dict(weights), dtype=dtype, attn_implementation="eager"
        )
        self._given: dict[str, Any] = {}
        head = (
            self._use_words(weights[readout.name], readout)
            if readout.tokens
            else self._use_classifier(weights, readout)
        )
        head.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
        self._typed = typed
        self._decodes = readout.task == "seq2seq"

    def _use_classifier(self, weights: Mapping[str, Tensor], readout: Readout) -> nn.Module:
        """Gives the classifier its weights in float32."""
        name = readout.name.removesuffix(".weight")
        head: nn.Module = self._model.get_submodule(name).float()
        head.load_state_dict({part: weights[f"{name}.{part}"] for part in head.state_dict()})
        # Decoders look for padding after the last token; there is none.
        if self._model.config.pad_token_id is None:
            self._model.config.pad_token_id = _NO_ID
        return head

    def _use_words(self, rows: Tensor, readout: Readout) -> nn.Module:
        """Replaces the map to all words by one to the two that count, in float32."""
        head = nn.Linear(rows.shape[1], 2, bias=False)
        head.load_state_dict({"weight": rows[list(readout.tokens or ())]})
        self._model.set_output_embeddings(head)
        self._given = {"use_cache": False, **({"logits_to_keep": 1} if readout.task == "causal" else {})}
        return head

    def forward(self, rows: TokenRows) -> Tensor:
        """Scores the inputs of a batch: float32[b]."""
        return torch.cat([self._score(group, rows) for group in rows.groups])

    def _score(self, group: Group, rows: TokenRows) -> Tensor:
        """Log-odds of inputs of one length; on a CPU one at a time, because a sum may round by its place in a batch."""
        ids, types = (group.split(each).long() for each in (rows.token_ids, rows.token_types))
        size = 1 if rows.block else group.count
        return torch.cat(
            [self._log_odds(*some) for some in zip(torch.split(ids, size), torch.split(types, size), strict=True)]
        )

    def _log_odds(self, ids: Tensor, types: Tensor) -> Tensor:
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **self._given}
        if self._typed:
            given["token_type_ids"] = types
        if self._decodes:
            given["decoder_input_ids"] = ids.new_full((len(ids), 1), self._model.config.decoder_start_token_id)
        logits: Tensor = self._model(**given).logits
        logits = logits[:, -1] if logits.dim() == 3 else logits
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]
