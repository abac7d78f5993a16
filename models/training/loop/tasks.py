"""What a step minimises: the scores of a model for some groups, and the weighted sum of objectives over them."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor
from transformers import BertForSequenceClassification, PreTrainedModel

from models.training.data.encoding import InputEncoder, Texts, both_orders, pair_inputs
from models.training.data.examples import Group
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
    """What is known of g groups of n docs: float[g, n] relevant, float[g] labelled, float[g, n] teacher or None."""

    relevant: Tensor
    labelled: Tensor
    teacher: Tensor | None

    def taught(self) -> Tensor:
        """The teacher's scores."""
        assert self.teacher is not None
        return self.teacher


class PairTargets(NamedTuple):
    """What is known of p ordered pairs i, j.

    Attributes:
        preferred: float[p], 1 where doc i is relevant and doc j is not, 0 where it is the other way round.
        labelled: float[p], 1 where one of these is known to be so, else 0.
        margins: float[p], the teacher's score of doc i less that of doc j, or None.
    """

    preferred: Tensor
    labelled: Tensor
    margins: Tensor | None

    def taught(self) -> Tensor:
        """The teacher's margins."""
        assert self.margins is not None
        return self.margins


GroupLoss: TypeAlias = Callable[[Tensor, Targets], Tensor]
PairLoss: TypeAlias = Callable[[Tensor, PairTargets], Tensor]
Pairs: TypeAlias = list[tuple[int, int]]


class Task(Protocol):
    """A model and its loss over some groups."""

    @property
    def model(self) -> PreTrainedModel:
        """What is trained."""

    def loss(self, groups: Sequence[Group], number: int, /) -> Tensor:
        """The mean loss; `number` counts the groups of the training before these."""


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
    """monoBERT: each doc of a group by itself, the loss over their scores."""

    def __init__(self, score: Scorer, loss: GroupLoss) -> None:
        self.model = score.model
        self._score = score
        self._loss = loss

    def loss(self, groups: Sequence[Group], _number: int) -> Tensor:
        """See `Task`."""
        scores = self._score([(group.query, doc) for group in groups for doc in group.docs]).view(len(groups), -1)
        labels = [group.relevant or (False,) * len(group.docs) for group in groups]
        targets = Targets(
            relevant=scores.new_tensor(labels),
            labelled=scores.new_tensor([group.relevant is not None for group in groups]),
            teacher=None if groups[0].teacher_scores is None else scores.new_tensor([g.teacher_scores for g in groups]),
        )
        return self._loss(scores, targets)


class DuoTask:
    """duoBERT: pairs of a group's docs."""

    def __init__(
        self,
        score: Scorer,
        loss: PairLoss,
        pairs_of: Callable[[Group, int], Pairs] | None = None,
    ) -> None:
        """Takes `pairs_of` a group, by its number in the training; by default its labelled pairs."""
        self.model = score.model
        self._score = score
        self._loss = loss
        self._pairs_of = pairs_of or (lambda group, _: labelled_pairs(group))

    def loss(self, groups: Sequence[Group], number: int) -> Tensor:
        """See `Task`."""
        chosen = [(group, self._pairs_of(group, number + place)) for place, group in enumerate(groups)]
        scores = self._score(
            [texts for group, pairs in chosen for texts in pair_inputs(group.query, group.docs, pairs)]
        )
        known = [(_relevance(group, i), _relevance(group, j)) for group, pairs in chosen for i, j in pairs]
        taught = groups[0].teacher_scores is not None
        margins = [_margin(group, i, j) for group, pairs in chosen for i, j in pairs] if taught else None
        targets = PairTargets(
            preferred=scores.new_tensor([first > second for first, second in known]),
            labelled=scores.new_tensor([first != second for first, second in known]),
            margins=None if margins is None else scores.new_tensor(margins),
        )
        return self._loss(scores, targets)


def labelled_pairs(group: Group) -> Pairs:
    """(d+, d-) for each relevant doc and each other one, then (d-, d+); never two relevant docs, nor two others."""
    relevant = group.relevant or ()
    positives = [number for number, each in enumerate(relevant) if each]
    negatives = [number for number, each in enumerate(relevant) if not each]
    return both_orders([(i, j) for i in positives for j in negatives])


def group_loss(weights: Mapping[str, float], temperature: float, margin: float) -> GroupLoss:
    """The weighted sum of monoBERT's objectives, by name."""
    terms: dict[str, GroupLoss] = {
        "pointwise": lambda scores, known: pointwise_cross_entropy(scores, known.relevant, known.labelled),
        "bertlets": lambda scores, known: triplet_hinge(scores, known.labelled, margin),
        "bert_ce": lambda scores, known: listwise_cross_entropy(scores, known.labelled),
        "margin_mse": lambda scores, known: margin_mse(scores, known.taught(), temperature),
        "listwise_kl": lambda scores, known: listwise_kl(scores, known.taught(), temperature),
    }
    return lambda scores, known: torch.stack([w * terms[name](scores, known) for name, w in weights.items()]).sum()


def pair_loss(weights: Mapping[str, float], temperature: float) -> PairLoss:
    """The weighted sum of duoBERT's objectives, by name."""
    terms: dict[str, PairLoss] = {
        "pairwise": lambda scores, known: pairwise_cross_entropy(scores, known.preferred),
        "margin_mse": lambda scores, known: pairwise_mse(scores, known.taught(), temperature),
        "pairwise_kl": lambda scores, known: pairwise_kl(scores, known.taught(), temperature),
    }
    return lambda scores, known: torch.stack([w * terms[name](scores, known) for name, w in weights.items()]).sum()


def _relevance(group: Group, doc: int) -> bool:
    return group.relevant is not None and group.relevant[doc]


def _margin(group: Group, i: int, j: int) -> float:
    assert group.teacher_scores is not None
    return group.teacher_scores[i] - group.teacher_scores[j]
