"""Target corpus pre-training: masked language modelling on the corpus to be ranked (multi-stage paper, section 4.1).

A model first learns to predict masked words in the corpus's own passages; then it is fine-tuned to rank.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BertForPreTraining

from beamrank.errors import PreflightError
from models.scoring.batching import cut_batches, padded_width
from models.tokenizers.vocabulary import read_vocabulary
from models.training.data.groups import Group
from models.training.data.pretraining import NOT_PREDICTED, Ids, MaskedInput, Masking


class MaskedTask:
    """BERT's pre-training losses over packed passages."""

    def __init__(
        self,
        model: BertForPreTraining,
        masking: Masking,
        objective: Mapping[str, float],
        max_length: int,
        token_budget: int,
        device: str,
        dtype: torch.dtype,
    ) -> None:
        """Takes a model on `device`; `objective` weights `masked_words` and `next_sentence`."""
        self.model = model
        self._masking, self._objective = masking, objective
        self._max_length, self._token_budget = max_length, token_budget
        self._device, self._dtype = device, dtype

    def counts(self, groups: Sequence[Group], number: int) -> Tensor:
        """float64[objectives]: hidden wordpieces, and next-sentence labels."""
        return self._counts(self._masking.inputs([group.docs for group in groups], number))

    def loss(self, groups: Sequence[Group], number: int, counts: Tensor | None = None) -> Tensor:
        """The weighted sum of the mean cross-entropies of hidden wordpieces and of next-sentence labels.

        The means are over the whole step, so that each wordpiece counts the same in any micro-batch and process.
        """
        inputs = self._masking.inputs([group.docs for group in groups], number)
        lengths = np.array([len(each.ids) for each in inputs], np.int64)
        sums: dict[str, list[Tensor]] = {name: [] for name in self._objective}
        for rows in cut_batches(lengths, self._token_budget, self._max_length):
            chosen = [inputs[row] for row in rows]
            losses = self._losses(chosen, padded_width(lengths[rows], self._max_length))
            for name, values in sums.items():
                values.append(losses[name])
        means = zip(self._objective.items(), (self._counts(inputs) if counts is None else counts).tolist(), strict=True)
        return torch.stack([w * torch.stack(sums[name]).sum() / max(1, count) for (name, w), count in means]).sum()

    def _counts(self, inputs: Sequence[MaskedInput]) -> Tensor:
        counts = {
            "masked_words": sum(int((each.hidden != NOT_PREDICTED).sum()) for each in inputs),
            "next_sentence": sum(each.next_label != NOT_PREDICTED for each in inputs),
        }
        return torch.tensor([counts[name] for name in self._objective], dtype=torch.float64)

    def _losses(self, inputs: Sequence[MaskedInput], width: int) -> dict[str, Tensor]:
        """The sum of each loss over some inputs."""
        lengths = torch.tensor([len(each.ids) for each in inputs])
        hidden = _padded([each.hidden for each in inputs], width, NOT_PREDICTED).to(self._device)
        tensors = {
            "input_ids": _padded([each.ids for each in inputs], width, self._masking.pad_id),
            "token_type_ids": _padded([each.types for each in inputs], width, 0),
            "attention_mask": (torch.arange(width) < lengths[:, None]).long(),
        }
        with torch.autocast(self._device, self._dtype, enabled=self._dtype != torch.float32):
            vectors, pooled = self.model.bert(**{name: each.to(self._device) for name, each in tensors.items()})[:2]
            # The vocabulary is the widest layer: only hidden wordpieces go through it.
            words = self.model.cls.predictions(vectors[hidden != NOT_PREDICTED])
            next_logits = self.model.cls.seq_relationship(pooled)
        labels = torch.tensor([each.next_label for each in inputs], device=self._device)
        return {
            "masked_words": F.cross_entropy(words.float(), hidden[hidden != NOT_PREDICTED], reduction="sum"),
            "next_sentence": F.cross_entropy(next_logits.float(), labels, ignore_index=NOT_PREDICTED, reduction="sum"),
        }


def mask_id(folder: str) -> int:
    """The id of [MASK].

    Raises:
        PreflightError: the vocabulary has none.
    """
    found = read_vocabulary(folder).token_ids.get("[MASK]")
    if found is None:
        raise PreflightError(f"the vocabulary in {folder} has no [MASK], so words of the corpus cannot be masked")
    return found


def _padded(rows: Sequence[Ids], width: int, filler: int) -> Tensor:
    table = np.full((len(rows), width), filler, np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return torch.from_numpy(table)
