"""What a step learns: the tensors of some groups, and the loss of a model over them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from models.scoring.batching import cut_batches, padded_width
from models.training.data.groups import Group, InputEncoder, Texts
from models.training.data.pretraining import NOT_PREDICTED, Ids, Masking
from models.training.losses import (
    listwise_cross_entropy,
    listwise_kl,
    log_odds,
    margin_mse,
    pairwise_cross_entropy,
    pairwise_kl,
    pairwise_mse,
    pointwise_cross_entropy,
    triplet_hinge,
)

Model: TypeAlias = Callable[..., Any]
"""A model of transformers, wrapped or not."""
Tensors: TypeAlias = dict[str, Any]
"""Tensors by name, in dicts and lists of them, so that transformers moves all to a device."""


class Task(Protocol):
    """What a model learns from groups."""

    def collate(self, groups: Sequence[Group[Any]], number: int) -> Tensors:
        """The tensors of some groups, before which the training had `number` groups."""

    def counts(self, tensors: Tensors) -> Tensor:
        """float64[terms]: how many items each term of the loss is a mean of."""

    def loss(self, model: Model, tensors: Tensors, counts: Tensor) -> Tensor:
        """The part of these groups in the mean loss of a step, given the `counts` of the whole step.

        So each item counts the same in any micro-batch and process.
        """


class Labels(NamedTuple):
    """The labels of g groups of n docs, or of p ordered pairs i, j.

    Attributes:
        relevant: float[g, n], 1 where a doc is relevant; or float[p], 1 where doc i is the relevant one, 0 where doc j.
        labelled: float[g], 1 where a group has labels.
        teacher: float[g, n], the teacher's scores; or float[p], its score of doc i minus that of doc j.
    """

    relevant: Tensor
    labelled: Tensor
    teacher: Tensor


def score(model: Model, encoder: InputEncoder, inputs: Sequence[Texts]) -> Tensor:
    """float32[inputs], the log-odds of a model for texts, with gradients."""
    return _scores(model, _encoded(encoder, inputs))


def _encoded(encoder: InputEncoder, inputs: Sequence[Texts]) -> Tensors:
    batches = list(encoder.batches(inputs))
    rows = torch.cat([torch.from_numpy(batch.rows) for batch in batches])
    return {"batches": [batch.tensors for batch in batches], "order": torch.argsort(rows)}


def _scores(model: Model, tensors: Tensors) -> Tensor:
    return torch.cat([log_odds(model(**batch).logits) for batch in tensors["batches"]])[tensors["order"]]


@dataclass(frozen=True)
class MonoTask:
    """monoBERT: scores each doc of a group by itself; the loss is over the group's scores."""

    encoder: InputEncoder
    objective: Mapping[str, float]
    temperature: float = 1.0
    margin: float = 0.2

    def collate(self, groups: Sequence[Group[Any]], number: int) -> Tensors:  # noqa: ARG002
        return _encoded(self.encoder, [(group.query, doc) for group in groups for doc in group.docs]) | {
            "relevant": torch.tensor([group.relevant or (False,) * len(group.docs) for group in groups]).float(),
            "labelled": torch.tensor([group.relevant is not None for group in groups]).float(),
            "teacher": torch.tensor([group.teacher_scores or () for group in groups]).float(),
        }

    def counts(self, tensors: Tensors) -> Tensor:
        return torch.tensor([len(tensors["labelled"])], dtype=torch.float64)

    def loss(self, model: Model, tensors: Tensors, counts: Tensor) -> Tensor:
        labels = Labels(*(tensors[name] for name in Labels._fields))
        scores = self._shaped(_scores(model, tensors), len(labels.labelled))
        losses = [weight * self._term(name, scores, labels) for name, weight in self.objective.items()]
        return torch.stack(losses).sum() * (len(labels.labelled) / counts.item())

    def _shaped(self, scores: Tensor, groups: int) -> Tensor:
        return scores.view(groups, -1)

    def _term(self, name: str, scores: Tensor, labels: Labels) -> Tensor:
        match name:
            case "pointwise":
                return pointwise_cross_entropy(scores, labels.relevant, labels.labelled)
            case "bertlets":
                return triplet_hinge(scores, labels.labelled, self.margin)
            case "bert_ce":
                return listwise_cross_entropy(scores, labels.labelled)
            case "margin_mse":
                return margin_mse(scores, labels.teacher, self.temperature)
            case _:
                return listwise_kl(scores, labels.teacher, self.temperature)


class DuoTask(MonoTask):
    """duoBERT: scores the labelled pairs of a group's docs, in both orders."""

    def collate(self, groups: Sequence[Group[Any]], number: int) -> Tensors:  # noqa: ARG002
        chosen = [(group, i, j) for group in groups for i, j in labelled_pairs(group)]
        taught = [(group.teacher_scores or [0.0] * len(group.docs), i, j) for group, i, j in chosen]
        return _encoded(self.encoder, [(group.query, group.docs[i], group.docs[j]) for group, i, j in chosen]) | {
            "relevant": torch.tensor([bool(group.relevant and group.relevant[i]) for group, i, _ in chosen]).float(),
            "labelled": torch.ones(len(groups)),
            "teacher": torch.tensor([scores[i] - scores[j] for scores, i, j in taught]),
        }

    def _shaped(self, scores: Tensor, groups: int) -> Tensor:  # noqa: ARG002
        return scores

    def _term(self, name: str, scores: Tensor, labels: Labels) -> Tensor:
        match name:
            case "pairwise":
                return pairwise_cross_entropy(scores, labels.relevant)
            case "margin_mse":
                return pairwise_mse(scores, labels.teacher, self.temperature)
            case _:
                return pairwise_kl(scores, labels.teacher, self.temperature)


def labelled_pairs(group: Group[Any]) -> list[tuple[int, int]]:
    """(d+, d-) for each relevant doc and each other one, then (d-, d+); never two relevant docs, nor two others."""
    relevant = group.relevant or ()
    positives = [number for number, each in enumerate(relevant) if each]
    pairs = [(i, j) for i in positives for j, each in enumerate(relevant) if not each]
    return pairs + [(j, i) for i, j in pairs]


@dataclass(frozen=True)
class MaskedTask:
    """BERT's pre-training losses over packed passages (multi-stage paper, section 4.1).

    The means are over the hidden wordpieces and the next-sentence labels of the whole step.
    """

    masking: Masking
    objective: Mapping[str, float]
    max_length: int
    token_budget: int

    def collate(self, groups: Sequence[Group[Any]], number: int) -> Tensors:
        inputs = self.masking.inputs([group.docs for group in groups], number)
        lengths = np.array([len(each.ids) for each in inputs], np.int64)
        batches = []
        for rows in cut_batches(lengths, self.token_budget, self.max_length):
            width, chosen = padded_width(lengths[rows], self.max_length), [inputs[row] for row in rows]
            batches.append(
                {
                    "input_ids": _padded([each.ids for each in chosen], width, self.masking.pad_id),
                    "token_type_ids": _padded([each.types for each in chosen], width, 0),
                    "attention_mask": (torch.arange(width) < torch.from_numpy(lengths[rows])[:, None]).long(),
                    "hidden": _padded([each.hidden for each in chosen], width, NOT_PREDICTED),
                    "next_labels": torch.tensor([each.next_label for each in chosen]),
                }
            )
        return {"batches": batches}

    def counts(self, tensors: Tensors) -> Tensor:
        labels = {"masked_words": "hidden", "next_sentence": "next_labels"}
        predicted = [
            sum(int((batch[labels[name]] != NOT_PREDICTED).sum()) for batch in tensors["batches"])
            for name in self.objective
        ]
        return torch.tensor(predicted, dtype=torch.float64)

    def loss(self, model: Model, tensors: Tensors, counts: Tensor) -> Tensor:
        sums: dict[str, list[Tensor]] = {name: [] for name in self.objective}
        for batch in tensors["batches"]:
            hidden, next_labels = batch["hidden"], batch["next_labels"]
            output = model(**{name: each for name, each in batch.items() if name != "next_labels"})
            found = {
                "masked_words": (output[0], hidden[hidden != NOT_PREDICTED]),
                "next_sentence": (output[1], next_labels),
            }
            for name, losses in sums.items():
                logits, labels = found[name]
                losses.append(F.cross_entropy(logits.float(), labels, ignore_index=NOT_PREDICTED, reduction="sum"))
        terms = zip(self.objective.items(), counts.tolist(), strict=True)
        return torch.stack([w * torch.stack(sums[name]).sum() / max(1, count) for (name, w), count in terms]).sum()


def _padded(rows: Sequence[Ids], width: int, filler: int) -> Tensor:
    table = np.full((len(rows), width), filler, np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return torch.from_numpy(table)
