"""The embedded pair's objectives: a teacher's ranking of each group, and the labels where there are any."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from transformers import BertForSequenceClassification

from models.tokenizer.bert import BertTokenizer, load_tokenizer
from models.training.data.encoding import InputEncoder, both_orders
from models.training.data.examples import Group
from models.training.loop.losses import pairwise_cross_entropy
from models.training.loop.tasks import GroupLoss, Pairs, PairTargets, Scorer, group_loss

TEMPERATURE = 20.0
_PAIRS = 4


def mono_loss(label_weight: float) -> GroupLoss:
    """The teacher's distribution over a group at temperature 20, and the labels, listwise and a little pointwise."""
    return group_loss({"listwise_kl": 1.0, "bert_ce": label_weight, "pointwise": 0.1}, TEMPERATURE, margin=0.0)


def duo_loss(scores: Tensor, known: PairTargets) -> Tensor:
    """Soft labels by the mono, whose scores are log-odds; where a label is known, it counts half, the mono half."""
    taught = torch.sigmoid(known.taught())
    mixed = (taught + known.preferred) / 2
    return pairwise_cross_entropy(scores, torch.where(known.labelled > 0, mixed, taught))


def load_mono(folder: str) -> BertForSequenceClassification:
    """A mono, ready to score."""
    model: BertForSequenceClassification = BertForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    model.train(False)
    return model


def taught_by(mono: str, groups: Sequence[Group], encoder: Callable[[BertTokenizer], InputEncoder]) -> list[Group]:
    """The groups with the log-odds of a mono, a folder, as the teacher's scores."""
    score = Scorer(load_mono(mono), encoder(load_tokenizer(mono)), "cpu", torch.float32)
    taught = []
    for group in groups:
        with torch.inference_mode():
            scores = score([(group.query, doc) for doc in group.docs])
        taught.append(replace(group, teacher_scores=tuple(scores.tolist())))
    return taught


def random_pairs(group: Group, number: int, seed: int) -> Pairs:
    """Both orders of four pairs of a group, others for each number."""
    pairs = list(itertools.combinations(range(len(group.docs)), 2))
    chosen = np.random.default_rng([seed, number]).choice(len(pairs), _PAIRS, replace=False)
    return both_orders([pairs[each] for each in chosen])
