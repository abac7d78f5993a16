"""The objectives. Scores are log-odds z = logit1 - logit0; a group is one query's candidates."""

import torch
import torch.nn.functional as F
from torch import Tensor

from beamrank.errors import DataError


def log_odds(logits: Tensor) -> Tensor:
    """float[..., 2] -> float[...]."""
    return logits[..., 1] - logits[..., 0]


def listwise_kl(scores: Tensor, teacher_scores: Tensor, temperature: float) -> Tensor:
    """KL divergence from the teacher's softmax over each group to the student's, averaged over groups.

    Args:
        scores: the student's log-odds, float[groups, candidates].
        teacher_scores: the teacher's similarities, float[groups, candidates].
        temperature: what the teacher's scores are multiplied by.
    """
    teacher = F.log_softmax(teacher_scores * temperature, dim=-1)
    return F.kl_div(F.log_softmax(scores, dim=-1), teacher, reduction="batchmean", log_target=True)


def listwise_cross_entropy(scores: Tensor, labelled: Tensor) -> Tensor:
    """Cross-entropy of each labelled group's softmax, whose first candidate is the relevant one.

    Args:
        scores: float[groups, candidates].
        labelled: bool[groups], whether the first candidate is known to be relevant. 0 where none is.
    """
    losses = -F.log_softmax(scores, dim=-1)[:, 0] * labelled
    return losses.sum() / labelled.sum().clamp(min=1)


def pointwise_cross_entropy(scores: Tensor, labelled: Tensor) -> Tensor:
    """Equation 1 of both papers: binary cross-entropy of each candidate of the labelled groups, the first relevant."""
    targets = torch.zeros_like(scores)
    targets[:, 0] = 1
    losses = F.binary_cross_entropy_with_logits(scores, targets, reduction="none").mean(dim=-1) * labelled
    return losses.sum() / labelled.sum().clamp(min=1)


def pairwise_cross_entropy(scores: Tensor, probabilities: Tensor) -> Tensor:
    """Equation 2 with soft labels: cross-entropy of z_ij against the probability that doc i is the more relevant one.

    Args:
        scores: float[pairs].
        probabilities: float[pairs]; 1 and 0 are the hard labels of (d+, d-) and (d-, d+).
    """
    return F.binary_cross_entropy_with_logits(scores, probabilities)


def check_finite(loss: Tensor, step: int) -> None:
    """Ends a training that has diverged.

    Raises:
        DataError: the loss is NaN or infinite.
    """
    if not torch.isfinite(loss):
        raise DataError(
            f"the loss is {loss.item()} at step {step}: the weights are of no use from here on. Start again with a "
            "lower learning rate"
        )
