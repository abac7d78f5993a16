"""The loss of a step: a weighted sum of objectives over the scores of a model for some groups."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor
from transformers import BertForSequenceClassification, PreTrainedModel

from models.training.data.groups import Group, InputEncoder, Texts
from models.training.loop.losses import (
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


class Targets(NamedTuple):
    """The labels of g groups of n docs.

    Attributes:
        relevant: float[g, n], 1 where a doc is relevant.
        labelled: float[g], 1 where a group has labels.
        teacher: float[g, n], the teacher's scores; float[g, 0] without a teacher.
    """

    relevant: Tensor
    labelled: Tensor
    teacher: Tensor


class PairTargets(NamedTuple):
    """The labels of p ordered pairs i, j.

    Attributes:
        preferred: float[p], 1 where doc i is the relevant one, 0 where doc j is.
        margins: float[p], the teacher's score of doc i minus that of doc j; 0 without a teacher.
    """

    preferred: Tensor
    margins: Tensor


GroupLoss: TypeAlias = Callable[[Tensor, Targets], Tensor]
PairLoss: TypeAlias = Callable[[Tensor, PairTargets], Tensor]


class Task(Protocol):
    """A model and its loss over some groups."""

    @property
    def model(self) -> PreTrainedModel:
        """The model to train."""

    def counts(self, groups: Sequence[Group[Any]], number: int, /) -> Tensor:
        """float64[terms]: how many items each term of the loss is a mean of; arguments as in `loss`."""

    def loss(self, groups: Sequence[Group[Any]], number: int, counts: Tensor | None = None, /) -> Tensor:
        """The mean loss, or the part of these groups in that of a step.

        Args:
            groups: some groups.
            number: how many groups the training had before these.
            counts: `counts` of the whole step, over its micro-batches and processes; None if these groups are the step.
        """


class Scorer:
    """The log-odds of a model for texts, with gradients."""

    def __init__(
        self, model: BertForSequenceClassification, encoder: InputEncoder, device: str, dtype: torch.dtype
    ) -> None:
        """Takes a model on `device`; its layers compute in `dtype`, its weights stay float32."""
        self.model = model
        self._encoder = encoder
        self._device = device
        self._dtype = dtype

    def __call__(self, inputs: Sequence[Texts]) -> Tensor:
        """float32[inputs]."""
        rows, scores = [], []
        for batch in self._encoder.batches(inputs):
            tensors = {name: tensor.to(self._device) for name, tensor in batch.tensors.items()}
            with torch.autocast(self._device, self._dtype, enabled=self._dtype != torch.float32):
                logits = self.model(**tensors).logits
            rows.append(torch.from_numpy(batch.rows))
            scores.append(log_odds(logits))
        return torch.cat(scores)[torch.argsort(torch.cat(rows)).to(self._device)]


class MonoTask:
    """monoBERT: scores each doc of a group by itself; the loss is over the group's scores."""

    def __init__(self, score: Scorer, loss: GroupLoss) -> None:
        self.model = score.model
        self._score = score
        self._loss = loss

    def counts(self, groups: Sequence[Group[Any]], _number: int) -> Tensor:
        return torch.tensor([len(groups)], dtype=torch.float64)

    def loss(self, groups: Sequence[Group[Any]], _number: int, counts: Tensor | None = None) -> Tensor:
        scores = self._score([(group.query, doc) for group in groups for doc in group.docs]).view(len(groups), -1)
        targets = Targets(
            relevant=scores.new_tensor([group.relevant or (False,) * len(group.docs) for group in groups]),
            labelled=scores.new_tensor([group.relevant is not None for group in groups]),
            teacher=scores.new_tensor([group.teacher_scores or () for group in groups]),
        )
        return self._loss(scores, targets) * _share(groups, counts)


class DuoTask:
    """duoBERT: scores the labelled pairs of a group's docs, in both orders."""

    def __init__(self, score: Scorer, loss: PairLoss) -> None:
        self.model = score.model
        self._score = score
        self._loss = loss

    def counts(self, groups: Sequence[Group[Any]], _number: int) -> Tensor:
        return torch.tensor([len(groups)], dtype=torch.float64)

    def loss(self, groups: Sequence[Group[Any]], _number: int, counts: Tensor | None = None) -> Tensor:
        chosen = [(group, labelled_pairs(group)) for group in groups]
        scores = self._score([(group.query, group.docs[i], group.docs[j]) for group, pairs in chosen for i, j in pairs])
        targets = PairTargets(
            preferred=scores.new_tensor(
                [bool(group.relevant and group.relevant[i]) for group, p in chosen for i, _ in p]
            ),
            margins=scores.new_tensor([_margin(group, i, j) for group, pairs in chosen for i, j in pairs]),
        )
        return self._loss(scores, targets) * _share(groups, counts)


def labelled_pairs(group: Group[Any]) -> list[tuple[int, int]]:
    """(d+, d-) for each relevant doc and each other one, then (d-, d+); never two relevant docs, nor two others."""
    relevant = group.relevant or ()
    positives = [number for number, each in enumerate(relevant) if each]
    negatives = [number for number, each in enumerate(relevant) if not each]
    pairs = [(i, j) for i in positives for j in negatives]
    return pairs + [(j, i) for i, j in pairs]


def group_loss(weights: Mapping[str, float], temperature: float, margin: float) -> GroupLoss:
    """The weighted sum of monoBERT's objectives, by name."""
    terms: dict[str, GroupLoss] = {
        "pointwise": lambda scores, known: pointwise_cross_entropy(scores, known.relevant, known.labelled),
        "bertlets": lambda scores, known: triplet_hinge(scores, known.labelled, margin),
        "bert_ce": lambda scores, known: listwise_cross_entropy(scores, known.labelled),
        "margin_mse": lambda scores, known: margin_mse(scores, known.teacher, temperature),
        "listwise_kl": lambda scores, known: listwise_kl(scores, known.teacher, temperature),
    }
    return lambda scores, known: torch.stack([w * terms[name](scores, known) for name, w in weights.items()]).sum()


def pair_loss(weights: Mapping[str, float], temperature: float) -> PairLoss:
    """The weighted sum of duoBERT's objectives, by name."""
    terms: dict[str, PairLoss] = {
        "pairwise": lambda scores, known: pairwise_cross_entropy(scores, known.preferred),
        "margin_mse": lambda scores, known: pairwise_mse(scores, known.margins, temperature),
        "pairwise_kl": lambda scores, known: pairwise_kl(scores, known.margins, temperature),
    }
    return lambda scores, known: torch.stack([w * terms[name](scores, known) for name, w in weights.items()]).sum()


def _share(groups: Sequence[Group[Any]], counts: Tensor | None) -> float:
    """The share of some groups in a step. All groups of a training have the same number of labelled docs and pairs."""
    return 1.0 if counts is None else len(groups) / counts.item()


def _margin(group: Group[Any], i: int, j: int) -> float:
    return group.teacher_scores[i] - group.teacher_scores[j] if group.teacher_scores else 0.0
