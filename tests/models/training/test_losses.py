import math

import pytest
import torch

from models.training.tasks import (
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


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def softmax(values):
    exponents = [math.exp(value) for value in values]
    return [exponent / sum(exponents) for exponent in exponents]


def kl(p, q):
    return sum(pi * math.log(pi / qi) for pi, qi in zip(p, q, strict=True))


def tensor(*rows):
    return torch.tensor(rows, dtype=torch.float64)


GROUP, TAUGHT = [0.3, -1.0, 2.0], [0.9, 0.5, 0.1]
PARTLY = [[1.0, 0.0], [5.0, 9.0], [0.5, 2.0]]
TRIPLETS = [[0.3, 0.1], [2.0, -1.0], [-0.5, 0.5]]
ONE, SOME = torch.ones(1), tensor(1.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("loss", "scores", "value"),
    [
        (
            lambda scores: listwise_kl(scores, tensor(TAUGHT), 2),
            [GROUP],
            kl(softmax([2 * each for each in TAUGHT]), softmax(GROUP)),
        ),
        (
            lambda scores: listwise_cross_entropy(scores, SOME),
            PARTLY,
            -(math.log(softmax(PARTLY[0])[0]) + math.log(softmax(PARTLY[2])[0])) / 2,
        ),
        (
            lambda scores: pointwise_cross_entropy(scores, tensor([1.0, 0.0, 0.0]), ONE),
            [[1.5, -0.5, 0.25]],
            -(math.log(sigmoid(1.5)) + math.log(sigmoid(0.5)) + math.log(sigmoid(-0.25))) / 3,
        ),
        (
            lambda scores: triplet_hinge(scores, torch.ones(3), 0.2),
            TRIPLETS,
            sum(max(0.2 - (plus - minus), 0) for plus, minus in map(softmax, TRIPLETS)) / 3,
        ),
        (
            lambda scores: margin_mse(scores, tensor([3.0, 2.0, 1.0]), 0.5),
            [[1.0, 0.5, -1.0]],
            ((0.5 - 0.5 * 1) ** 2 + (2.0 - 0.5 * 2) ** 2) / 2,
        ),
        (
            lambda scores: pairwise_kl(scores, tensor(-0.3), 2.0),
            [0.8],
            kl([sigmoid(-0.6), 1 - sigmoid(-0.6)], [sigmoid(0.8), 1 - sigmoid(0.8)]),
        ),
        (
            lambda scores: pairwise_mse(scores, tensor(1.0, -1.0), 2.0),
            [0.5, -3.0],
            (1.5**2 + 1.0**2) / 2,
        ),
        (
            lambda scores: pairwise_cross_entropy(scores, tensor(1.0, 0.0)),
            [0.8, -1.2],
            -(math.log(sigmoid(0.8)) + math.log(1 - sigmoid(-1.2))) / 2,
        ),
    ],
)
def test_loss_is_that_by_hand_and_its_gradient_is_its_slope(loss, scores, value):
    leaf = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    assert loss(leaf).item() == pytest.approx(value, rel=1e-6)
    assert torch.autograd.gradcheck(loss, leaf)


def test_log_odds_are_the_difference_of_the_logits():
    assert log_odds(torch.tensor([[1.0, 3.5], [2.0, -1.0]])).tolist() == [2.5, -3.0]
    assert log_odds(torch.tensor([[1.0], [2.0]])).tolist() == [1.0, 2.0]


def test_pointwise_loss_equals_the_code_of_2019():
    logits, labels = torch.tensor([[0.3, -1.2], [2.0, 0.4]]), torch.tensor([1, 0])
    expected = torch.nn.functional.cross_entropy(logits, labels)
    found = pointwise_cross_entropy(
        log_odds(logits)[:, None], labels[:, None].float(), torch.ones(2)
    )
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        listwise_cross_entropy,
        lambda scores, labelled: pointwise_cross_entropy(
            scores, torch.tensor([[1.0, 0.0]]), labelled
        ),
        lambda scores, labelled: triplet_hinge(scores, labelled, 0.2),
    ],
)
def test_label_losses_of_a_batch_without_labels_are_0(loss):
    assert loss(torch.tensor([[1.0, 2.0]]), torch.zeros(1)).item() == 0
