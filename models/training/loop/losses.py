"""The objectives, as functions of scores. Scores are log-odds z = logit 1 - logit 0; a group is one query's docs.

The first doc of a group is its relevant one, where the group is labelled, and the others are not relevant.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from beamrank.errors import DataError


def log_odds(logits: Tensor) -> Tensor:
    """float[..., 2] -> float[...], float32: logit 1 - logit 0; or float[..., 1], the logit itself."""
    logits = logits.float()
    return logits[..., 1] - logits[..., 0] if logits.shape[-1] == 2 else logits[..., 0]


def pointwise_cross_entropy(scores: Tensor, relevant: Tensor, labelled: Tensor) -> Tensor:
    """Equation 1 of both papers: binary cross-entropy of each doc of the labelled groups.

    Args:
        scores: float[groups, docs].
        relevant: float[groups, docs], 1 where the doc is relevant, else 0.
        labelled: float[groups], 1 where the group's labels are known, else 0.
    """
    losses = F.binary_cross_entropy_with_logits(scores, relevant, reduction="none").mean(dim=-1)
    return _mean_over(losses, labelled)


def listwise_cross_entropy(scores: Tensor, labelled: Tensor) -> Tensor:
    """Negative log-likelihood of each labelled group's first doc in the softmax over the group.

    With one negative it is BERT[CE] of Mass et al. 2019 (section 3), -log s+ hat.

    Args:
        scores: float[groups, docs].
        labelled: float[groups], 1 where the first doc is known to be relevant, else 0.
    """
    return _mean_over(-F.log_softmax(scores, dim=-1)[:, 0], labelled)


def triplet_hinge(scores: Tensor, labelled: Tensor, margin: float) -> Tensor:
    """BERTlets, equation 2 of Mass et al. 2019: max(m - (s+ hat - s- hat), 0), over the first doc and each other.

    s+ hat and s- hat are the softmax of the two scores, so that their difference is tanh((s+ - s-) / 2).

    Args:
        scores: float[groups, docs].
        labelled: float[groups], 1 where the first doc is known to be relevant, else 0.
        margin: m, 0.2 in the paper.
    """
    difference = torch.tanh((scores[:, :1] - scores[:, 1:]) / 2)
    return _mean_over(F.relu(margin - difference).mean(dim=-1), labelled)


def listwise_kl(scores: Tensor, teacher_scores: Tensor, temperature: float) -> Tensor:
    """KL divergence from the teacher's softmax over each group to the student's, averaged over groups.

    Args:
        scores: float[groups, docs].
        teacher_scores: float[groups, docs].
        temperature: what the teacher's scores are multiplied by.
    """
    teacher = F.log_softmax(teacher_scores * temperature, dim=-1)
    return F.kl_div(F.log_softmax(scores, dim=-1), teacher, reduction="batchmean", log_target=True)


def margin_mse(scores: Tensor, teacher_scores: Tensor, temperature: float) -> Tensor:
    """Margin-MSE: the squared difference between the student's and the teacher's margin of the first doc over others.

    Args:
        scores: float[groups, docs].
        teacher_scores: float[groups, docs].
        temperature: what the teacher's scores are multiplied by.
    """
    margins = scores[:, :1] - scores[:, 1:]
    return F.mse_loss(margins, temperature * (teacher_scores[:, :1] - teacher_scores[:, 1:]))


def pairwise_cross_entropy(scores: Tensor, probabilities: Tensor) -> Tensor:
    """Equation 2 of the multi-stage paper, with soft labels too: the cross-entropy of z_ij.

    Args:
        scores: float[pairs].
        probabilities: float[pairs], that doc i is more relevant than doc j; 1 and 0 are the hard labels of (d+, d-)
            and (d-, d+).
    """
    return F.binary_cross_entropy_with_logits(scores, probabilities)


def pairwise_kl(scores: Tensor, margins: Tensor, temperature: float) -> Tensor:
    """KL divergence from the teacher's preference sigma(temperature * margin) to the student's sigma(z_ij).

    Args:
        scores: float[pairs].
        margins: float[pairs], the teacher's score of doc i less that of doc j.
        temperature: what the teacher's scores are multiplied by.
    """
    wanted = margins * temperature
    preferred = torch.sigmoid(wanted)
    found = torch.stack([F.logsigmoid(scores), F.logsigmoid(-scores)])
    teacher = torch.stack([F.logsigmoid(wanted), F.logsigmoid(-wanted)])
    weights = torch.stack([preferred, 1 - preferred])
    return (weights * (teacher - found)).sum(dim=0).mean()


def pairwise_mse(scores: Tensor, margins: Tensor, temperature: float) -> Tensor:
    """Margin-MSE for duoBERT, whose z_ij is a margin itself. Arguments as for `pairwise_kl`."""
    return F.mse_loss(scores, margins * temperature)


def check_finite(what: str, value: float, step: int) -> None:
    """Ends a training that has diverged.

    Args:
        what: `loss` or `gradient`.
        value: the loss, or the norm of the gradients.
        step: the step in which it was found, from 1.

    Raises:
        DataError: the value is NaN or infinite.
    """
    if not math.isfinite(value):
        raise DataError(
            f"the {what} is {value} at step {step}: the weights are of no use from here on. Start again with a lower "
            "optimizer.learning_rate, a longer warm-up, or dtype float32"
        )


def _mean_over(losses: Tensor, labelled: Tensor) -> Tensor:
    """The mean over the labelled groups; 0 where none is."""
    return (losses * labelled).sum() / labelled.sum().clamp(min=1)
