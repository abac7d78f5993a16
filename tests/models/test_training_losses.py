import math

import pytest
import torch

from beamrank.errors import DataError
from models.training.losses import (
    check_finite,
    listwise_cross_entropy,
    listwise_kl,
    log_odds,
    pairwise_cross_entropy,
    pointwise_cross_entropy,
)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softmax(values: list[float]) -> list[float]:
    exponents = [math.exp(value) for value in values]
    return [exponent / sum(exponents) for exponent in exponents]


def gradient(scores: list, loss) -> torch.Tensor:
    leaf = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    loss(leaf).backward()
    return leaf.grad


def test_log_odds_are_the_difference_of_the_logits():
    assert log_odds(torch.tensor([[1.0, 3.5], [2.0, -1.0]])).tolist() == [2.5, -3.0]


def test_listwise_kl_by_hand():
    student, teacher = [0.3, -1.0, 2.0], [0.9, 0.5, 0.1]
    p, q = softmax([2 * value for value in teacher]), softmax(student)
    expected = sum(pi * math.log(pi / qi) for pi, qi in zip(p, q, strict=True))
    loss = listwise_kl(torch.tensor([student]), torch.tensor([teacher]), temperature=2)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_listwise_kl_pulls_the_student_towards_the_teacher():
    student, teacher = [0.3, -1.0, 2.0], [0.9, 0.5, 0.1]
    targets = torch.tensor([teacher], dtype=torch.float64)
    found = gradient([student], lambda scores: listwise_kl(scores, targets, 2))
    expected = [q - p for p, q in zip(softmax([2 * t for t in teacher]), softmax(student), strict=True)]
    assert found[0].tolist() == pytest.approx(expected, rel=1e-6)


def test_listwise_cross_entropy_reads_labelled_groups_alone():
    scores = [[1.0, 0.0], [5.0, 9.0], [0.5, 2.0]]
    labelled = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    expected = -(math.log(softmax(scores[0])[0]) + math.log(softmax(scores[2])[0])) / 2
    assert listwise_cross_entropy(torch.tensor(scores), labelled).item() == pytest.approx(expected, rel=1e-5)
    found = gradient(scores, lambda leaf: listwise_cross_entropy(leaf, labelled))
    assert found[1].tolist() == [0.0, 0.0]
    assert found[0].tolist() == pytest.approx([(softmax(scores[0])[0] - 1) / 2, softmax(scores[0])[1] / 2])


def test_pointwise_cross_entropy_is_equation_1():
    scores = [[1.5, -0.5, 0.25]]
    expected = -(math.log(sigmoid(1.5)) + math.log(sigmoid(0.5)) + math.log(sigmoid(-0.25))) / 3
    assert pointwise_cross_entropy(torch.tensor(scores), torch.ones(1)).item() == pytest.approx(expected, rel=1e-5)
    found = gradient(scores, lambda leaf: pointwise_cross_entropy(leaf, torch.ones(1)))
    expected_gradient = [(sigmoid(1.5) - 1) / 3, sigmoid(-0.5) / 3, sigmoid(0.25) / 3]
    assert found[0].tolist() == pytest.approx(expected_gradient, rel=1e-6)


@pytest.mark.parametrize("loss", [listwise_cross_entropy, pointwise_cross_entropy])
def test_a_batch_without_labels_has_no_label_loss(loss):
    assert loss(torch.tensor([[1.0, 2.0]]), torch.zeros(1)).item() == 0


def test_pairwise_cross_entropy_is_equation_2():
    loss = pairwise_cross_entropy(torch.tensor([0.8, -1.2]), torch.tensor([1.0, 0.0]))
    assert loss.item() == pytest.approx(-(math.log(sigmoid(0.8)) + math.log(1 - sigmoid(-1.2))) / 2, rel=1e-5)


def test_pairwise_cross_entropy_with_a_soft_label_is_least_where_the_teacher_is():
    probability = torch.tensor([0.7], dtype=torch.float64)
    found = gradient([math.log(0.7 / 0.3)], lambda scores: pairwise_cross_entropy(scores, probability))
    assert found.tolist() == pytest.approx([0.0], abs=1e-12)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_the_training(value):
    with pytest.raises(DataError, match="at step 7"):
        check_finite(torch.tensor(value), 7)
