"""The objectives, as functions of scores. Scores are log-odds z = logit 1 - logit 0; a group is one query's docs.

The first doc of a labelled group is relevant, the others are not. Arguments: `scores` and `teacher_scores` are
float[groups, docs]; `labelled` is float[groups], 1 where the labels of a group are known, else 0; `temperature` is the
factor of the teacher's scores. For duoBERT, `scores` and `margins`, the teacher's score of doc i minus that of doc j,
are float[pairs].
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def log_odds(logits: Tensor) -> Tensor:
    """float[..., 2] -> float[...], float32: logit 1 - logit 0; or float[..., 1], the logit itself."""
    logits = logits.float()
    return logits[..., 1] - logits[..., 0] if logits.shape[-1] == 2 else logits[..., 0]


def pointwise_cross_entropy(scores: Tensor, relevant: Tensor, labelled: Tensor) -> Tensor:
    """Equation 1 of both papers: binary cross-entropy of each doc; `relevant` is float[groups, docs], 0 or 1."""
    losses = F.binary_cross_entropy_with_logits(scores, relevant, reduction="none").mean(dim=-1)
    return _mean_over(losses, labelled)


def listwise_cross_entropy(scores: Tensor, labelled: Tensor) -> Tensor:
    """Negative log-likelihood of each labelled group's first doc in the softmax over the group.

    With one negative it is BERT[CE] of Mass et al. 2019 (section 3), -log s+ hat.
    """
    return _mean_over(-F.log_softmax(scores, dim=-1)[:, 0], labelled)


def triplet_hinge(scores: Tensor, labelled: Tensor, margin: float) -> Tensor:
    """BERTlets, equation 2 of Mass et al. 2019: max(m - (s+ hat - s- hat), 0), over the first doc and each other.

    s+ hat and s- hat are the softmax of the two scores, so their difference is tanh((s+ - s-) / 2).
    """
    difference = torch.tanh((scores[:, :1] - scores[:, 1:]) / 2)
    return _mean_over(F.relu(margin - difference).mean(dim=-1), labelled)


def listwise_kl(scores: Tensor, teacher_scores: Tensor, temperature: float) -> Tensor:
    """KL divergence from the teacher's softmax over each group to the student's, averaged over groups."""
    teacher = F.log_softmax(teacher_scores * temperature, dim=-1)
    return F.kl_div(F.log_softmax(scores, dim=-1), teacher, reduction="batchmean", log_target=True)


def margin_mse(scores: Tensor, teacher_scores: Tensor, temperature: float) -> Tensor:
    """Margin-MSE: squared error of the student's margins of the first doc over the others, against the teacher's."""
    margins = scores[:, :1] - scores[:, 1:]
    return F.mse_loss(margins, temperature * (teacher_scores[:, :1] - teacher_scores[:, 1:]))


def pairwise_cross_entropy(scores: Tensor, preferred: Tensor) -> Tensor:
    """Equation 2 of the multi-stage paper: cross-entropy of z_ij; `preferred` is 1 for (d+, d-), 0 for (d-, d+)."""
    return F.binary_cross_entropy_with_logits(scores, preferred)


def pairwise_kl(scores: Tensor, margins: Tensor, temperature: float) -> Tensor:
    """KL divergence from the teacher's preference sigma(temperature * margin) to the student's sigma(z_ij)."""
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
