"""The tasks of a training: the tensors of some groups, the loss of a model over them, and the
objectives.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from models.scoring.packing import cut_batches, padded_width
from models.training.data.groups import Group, InputEncoder, Texts
from models.training.data.pretraining import NOT_PREDICTED, Ids, Masking
from models.training.data.texts import TokenTable

Model: TypeAlias = Callable[..., Any]
"""A model of transformers, wrapped or not."""
Tensors: TypeAlias = dict[str, Any]
"""Tensors by name, in dicts and lists of them, so that transformers moves all to a device."""


def score(model: Model, encoder: InputEncoder, inputs: Sequence[Texts]) -> Tensor:
    """float32[inputs], the log-odds of a model for texts, with gradients."""
    return _scores(model, _encoded(encoder, inputs))


def _encoded(encoder: InputEncoder, inputs: Sequence[Texts]) -> Tensors:
    batches = list(encoder.batches(inputs))
    rows = torch.cat([torch.from_numpy(batch.rows) for batch in batches])
    return {"batches": [batch.tensors for batch in batches], "order": torch.argsort(rows)}


def _scores(model: Model, tensors: Tensors) -> Tensor:
    return torch.cat([log_odds(model(**batch).logits) for batch in tensors["batches"]])[
        tensors["order"]
    ]


@dataclass(frozen=True)
class MonoTask:
    """monoBERT: scores each doc of a group by itself; the loss is over the group's scores.

    A task gives the tensors of some groups, before which the training had `number` groups; how many
    items each term of the loss is a mean of; and the part of these groups in the mean loss of a
    step, from the counts of the whole step: each item counts the same in any micro-batch and
    process.
    """

    encoder: InputEncoder
    objective: Mapping[str, float]
    temperature: float = 1.0
    margin: float = 0.2

    def collate(self, groups: Sequence[Group[Any]], number: int) -> Tensors:  # noqa: ARG002
        """For g groups of n docs: `relevant` and `teacher`, float[g, n]; `labelled`, float[g]."""
        return _encoded(
            self.encoder, [(group.query, doc) for group in groups for doc in group.docs]
        ) | {
            "relevant": torch.tensor(
                [group.relevant or (False,) * len(group.docs) for group in groups]
            ).float(),
            "labelled": torch.tensor([group.relevant is not None for group in groups]).float(),
            "teacher": torch.tensor([group.teacher_scores or () for group in groups]).float(),
        }

    def counts(self, tensors: Tensors) -> Tensor:
        return torch.tensor([len(tensors["labelled"])], dtype=torch.float64)

    def loss(self, model: Model, tensors: Tensors, counts: Tensor) -> Tensor:
        scores = _scores(model, tensors)
        losses = [
            weight * self.term(name, scores, tensors) for name, weight in self.objective.items()
        ]
        return torch.stack(losses).sum() * (len(tensors["labelled"]) / counts.item())

    def term(self, name: str, scores: Tensor, tensors: Tensors) -> Tensor:
        """One objective, over the scores of the inputs."""
        labelled, teacher = tensors["labelled"], tensors["teacher"]
        scores = scores.view(len(labelled), -1)
        match name:
            case "pointwise":
                return pointwise_cross_entropy(scores, tensors["relevant"], labelled)
            case "bertlets":
                return triplet_hinge(scores, labelled, self.margin)
            case "bert_ce":
                return listwise_cross_entropy(scores, labelled)
            case "margin_mse":
                return margin_mse(scores, teacher, self.temperature)
            case _:
                return listwise_kl(scores, teacher, self.temperature)


class DuoTask(MonoTask):
    """duoBERT: scores the labelled pairs of a group's docs, in both orders."""

    def collate(self, groups: Sequence[Group[Any]], number: int) -> Tensors:  # noqa: ARG002
        """For p pairs: `relevant`, float[p], 1 where doc i is the relevant one; `teacher`, its
        score of i minus j's.
        """
        chosen = [(group, i, j) for group in groups for i, j in labelled_pairs(group)]
        taught = [(group.teacher_scores or [0.0] * len(group.docs), i, j) for group, i, j in chosen]
        return _encoded(
            self.encoder, [(group.query, group.docs[i], group.docs[j]) for group, i, j in chosen]
        ) | {
            "relevant": torch.tensor(
                [bool(group.relevant and group.relevant[i]) for group, i, _ in chosen]
            ).float(),
            "labelled": torch.ones(len(groups)),
            "teacher": torch.tensor([scores[i] - scores[j] for scores, i, j in taught]),
        }

    def term(self, name: str, scores: Tensor, tensors: Tensors) -> Tensor:
        match name:
            case "pairwise":
                return pairwise_cross_entropy(scores, tensors["relevant"])
            case "margin_mse":
                return pairwise_mse(scores, tensors["teacher"], self.temperature)
            case _:
                return pairwise_kl(scores, tensors["teacher"], self.temperature)


def labelled_pairs(group: Group[Any]) -> list[tuple[int, int]]:
    """(d+, d-) for each relevant doc and each other one, then (d-, d+); never two relevant docs,
    nor two others.
    """
    relevant = group.relevant or ()
    positives = [number for number, is_relevant in enumerate(relevant) if is_relevant]
    pairs = [(i, j) for i in positives for j, is_relevant in enumerate(relevant) if not is_relevant]
    return pairs + [(j, i) for i, j in pairs]


@dataclass(frozen=True)
class MaskedTask:
    """BERT's pre-training losses over packed passages (multi-stage paper, section 4.1).

    The means are over the hidden wordpieces and the next-sentence labels of the whole step.
    """

    masking: Masking
    tokens: TokenTable
    objective: Mapping[str, float]
    max_length: int
    token_budget: int

    def collate(self, groups: Sequence[Group[Any]], number: int) -> Tensors:
        rows = iter(self.tokens[[row for group in groups for row in group.docs]].to_pylist())
        inputs = self.masking.inputs(
            [[np.array(next(rows), np.int64) for _ in group.docs] for group in groups], number
        )
        lengths = np.array([len(passage.ids) for passage in inputs], np.int64)
        batches = []
        for rows in cut_batches(lengths, self.token_budget, self.max_length):
            width, chosen = (
                padded_width(lengths[rows], self.max_length),
                [inputs[row] for row in rows],
            )
            batches.append(
                {
                    "input_ids": _padded(
                        [passage.ids for passage in chosen], width, self.masking.pad_id
                    ),
                    "token_type_ids": _padded([passage.types for passage in chosen], width, 0),
                    "attention_mask": (
                        torch.arange(width) < torch.from_numpy(lengths[rows])[:, None]
                    ).long(),
                    "hidden": _padded([passage.hidden for passage in chosen], width, NOT_PREDICTED),
                    "next_labels": torch.tensor([passage.next_label for passage in chosen]),
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
            output = model(
                **{name: tensor for name, tensor in batch.items() if name != "next_labels"}
            )
            predictions = {
                "masked_words": (output[0], hidden[hidden != NOT_PREDICTED]),
                "next_sentence": (output[1], next_labels),
            }
            for name, losses in sums.items():
                logits, labels = predictions[name]
                losses.append(
                    F.cross_entropy(
                        logits.float(), labels, ignore_index=NOT_PREDICTED, reduction="sum"
                    )
                )
        terms = zip(self.objective.items(), counts.tolist(), strict=True)
        return torch.stack(
            [w * torch.stack(sums[name]).sum() / max(1, count) for (name, w), count in terms]
        ).sum()


Task: TypeAlias = MonoTask | MaskedTask


def _padded(rows: Sequence[Ids], width: int, filler: int) -> Tensor:
    return torch.stack(
        [F.pad(torch.from_numpy(row), (0, width - len(row)), value=filler) for row in rows]
    )


# The objectives, as functions of scores. Scores are log-odds z = logit 1 - logit 0; a group is one
# query's docs, the first of which is relevant if it is labelled. `scores` and `teacher_scores` are
# float[groups, docs]; `labelled` is float[groups], 1 where the labels of a group are known, else 0;
# `temperature` is the factor of the teacher's scores. For duoBERT, `scores` and `margins`, the
# teacher's score of doc i minus doc j's, are float[pairs].


def log_odds(logits: Tensor) -> Tensor:
    """float[..., 2] -> float[...], float32: logit 1 - logit 0; or float[..., 1], the logit
    itself.
    """
    logits = logits.float()
    return logits[..., 1] - logits[..., 0] if logits.shape[-1] == 2 else logits[..., 0]


def pointwise_cross_entropy(scores: Tensor, relevant: Tensor, labelled: Tensor) -> Tensor:
    """Equation 1 of both papers: binary cross-entropy of each doc; `relevant` is float[groups,
    docs], 0 or 1.
    """
    losses = F.binary_cross_entropy_with_logits(scores, relevant, reduction="none").mean(dim=-1)
    return _mean_over(losses, labelled)


def listwise_cross_entropy(scores: Tensor, labelled: Tensor) -> Tensor:
    """Negative log-likelihood of each labelled group's first doc in the softmax over the group.

    With one negative it is BERT[CE] of Mass et al. 2019 (section 3), -log s+ hat.
    """
    return _mean_over(-F.log_softmax(scores, dim=-1)[:, 0], labelled)


def triplet_hinge(scores: Tensor, labelled: Tensor, margin: float) -> Tensor:
    """BERTlets, equation 2 of Mass et al. 2019: max(m - (s+ hat - s- hat), 0), over the first doc
    and each other.

    s+ hat and s- hat are the softmax of the two scores, so their difference is tanh((s+ - s-) / 2).
    """
    difference = torch.tanh((scores[:, :1] - scores[:, 1:]) / 2)
    return _mean_over(F.relu(margin - difference).mean(dim=-1), labelled)


def listwise_kl(scores: Tensor, teacher_scores: Tensor, temperature: float) -> Tensor:
    """KL divergence from the teacher's softmax over each group to the student's, averaged over
    groups.
    """
    teacher = F.log_softmax(teacher_scores * temperature, dim=-1)
    return F.kl_div(F.log_softmax(scores, dim=-1), teacher, reduction="batchmean", log_target=True)


def margin_mse(scores: Tensor, teacher_scores: Tensor, temperature: float) -> Tensor:
    """Margin-MSE: squared error of the student's margins of the first doc over the others, against
    the teacher's.
    """
    margins = scores[:, :1] - scores[:, 1:]
    return F.mse_loss(margins, temperature * (teacher_scores[:, :1] - teacher_scores[:, 1:]))


def pairwise_cross_entropy(scores: Tensor, preferred: Tensor) -> Tensor:
    """Equation 2 of the multi-stage paper: cross-entropy of z_ij; `preferred` is 1 for (d+, d-), 0
    for (d-, d+).
    """
    return F.binary_cross_entropy_with_logits(scores, preferred)


def pairwise_kl(scores: Tensor, margins: Tensor, temperature: float) -> Tensor:
    """KL divergence from the teacher's preference sigma(temperature * margin) to the student's
    sigma(z_ij).
    """
    margins = margins * temperature
    student = torch.stack([F.logsigmoid(scores), F.logsigmoid(-scores)])
    teacher = torch.stack([F.logsigmoid(margins), F.logsigmoid(-margins)])
    return (teacher.exp() * (teacher - student)).sum(dim=0).mean()


def pairwise_mse(scores: Tensor, margins: Tensor, temperature: float) -> Tensor:
    """Margin-MSE for duoBERT, whose z_ij is a margin itself."""
    return F.mse_loss(scores, margins * temperature)


def _mean_over(losses: Tensor, labelled: Tensor) -> Tensor:
    """The mean over the labelled groups; 0 if there are none."""
    return (losses * labelled).sum() / labelled.sum().clamp(min=1)
