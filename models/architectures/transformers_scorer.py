"""Models of transformers that score packed inputs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from models.architectures.kernels.token_rows import Group, TokenRows

_NO_ID = -1


class TransformersScorer(nn.Module, ABC):
    """Log-odds by a model of transformers, which gets inputs without padding.

    A subclass says how the model is called: `logits`. The head is computed in float32.
    """

    def __init__(self, model: Any, head: nn.Module) -> None:
        super().__init__()
        self.model = model
        head.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))

    @abstractmethod
    def logits(self, ids: Tensor, types: Tensor) -> Tensor:
        """int64[b, n] ids and token types -> float32[b, 1 or 2]."""

    def forward(self, rows: TokenRows) -> Tensor:
        """Scores the inputs of a batch: float32[b]."""
        return torch.cat([self._score(group, rows) for group in rows.groups])

    def _score(self, group: Group, rows: TokenRows) -> Tensor:
        """Log-odds of inputs of one length; on a CPU one at a time, because a sum may round by its place in a batch."""
        ids, types = (group.split(each).long() for each in (rows.token_ids, rows.token_types))
        size = 1 if rows.token_ids.device.type == "cpu" else group.count
        some = zip(torch.split(ids, size), torch.split(types, size), strict=True)
        logits = torch.cat([self.logits(*each) for each in some])
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]


class ClassifierScorer(TransformersScorer):
    """A sequence classifier."""

    def __init__(self, model: Any, classifier: str, weights: Mapping[str, Tensor], typed: bool) -> None:
        """Gives the classifier its weights in float32.

        Args:
            model: of transformers.
            classifier: the classifier's tensor of weights.
            weights: float32.
            typed: whether the model gets token types: some add an embedding for a type that they are not trained on.
        """
        name = classifier.removesuffix(".weight")
        head: nn.Module = model.get_submodule(name).float()
        head.load_state_dict({part: weights[f"{name}.{part}"] for part in head.state_dict()})
        super().__init__(model, head)
        self._typed = typed
        # Decoders look for padding after the last token; there is none.
        if model.config.pad_token_id is None:
            model.config.pad_token_id = _NO_ID

    def logits(self, ids: Tensor, types: Tensor) -> Tensor:
        given = {"token_type_ids": types} if self._typed else {}
        logits: Tensor = self.model(input_ids=ids, attention_mask=torch.ones_like(ids), **given).logits
        return logits
