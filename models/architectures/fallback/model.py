"""A model of transformers that scores packed inputs."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
from transformers.utils.logging import disable_progress_bar

from models.kernels.token_rows import Group, TokenRows

_NO_ID = -1


def read_config(config: Mapping[str, Any]) -> PreTrainedConfig:
    """The configuration of transformers. Its errors are of any type."""
    return AutoConfig.for_model(**config)


def make_model(config: PreTrainedConfig) -> Any:
    """A sequence classifier without weights."""
    return _model_class(config)._from_config(config, attn_implementation="eager")


class TransformersScorer(nn.Module):
    """Log-odds by a sequence classifier of transformers, which gets inputs without padding."""

    def __init__(
        self, config: Mapping[str, Any], classifier: str, weights: Mapping[str, Tensor], dtype: torch.dtype
    ) -> None:
        """Takes config.json, the name of the linear map to the logits, float32 weights, and the dtype of the layers."""
        super().__init__()
        disable_progress_bar()  # type: ignore[no-untyped-call]
        described = read_config(config)
        self._model = _model_class(described).from_pretrained(
            None, config=described, state_dict=dict(weights), dtype=dtype, attn_implementation="eager"
        )
        head = self._model.get_submodule(classifier)
        head.float().load_state_dict({name: weights[f"{classifier}.{name}"] for name in head.state_dict()})
        head.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))
        # Decoders look for padding after the last token; there is none.
        if self._model.config.pad_token_id is None:
            self._model.config.pad_token_id = _NO_ID
        self._typed = "token_type_ids" in signature(self._model.forward).parameters

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
        typed = {"token_type_ids": types} if self._typed else {}
        logits: Tensor = self._model(input_ids=ids, attention_mask=torch.ones_like(ids), **typed).logits
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]


def _model_class(config: PreTrainedConfig) -> Any:
    return MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
