import math

import pytest
import torch

from beamrank.errors import DataError
from models.training.loop.losses import (
    check_finite,
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


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softmax(values: list[float]) -> list[float]:
    exponents = [math.exp(value) for value in values]
    return [exponent / sum(exponents) for exponent in exponents]


def gradient(scores, loss):
    leaf = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    loss(leaf).backward()
    return leaf.grad


def test_log_odds_are_the_difference_of_the_logits():
    assert log_odds(torch.tensor([[1.0, 3.5], [2.0, -1.0]])).tolist() == [2.5, -3.0]
    assert log_odds(torch.tensor([[1.0], [2.0]])).tolist() == [1.0, 2.0]


def test_listwise_kl_by_hand():
    student, teacher = [0.3, -1.0, 2.0], [0.9, 0.5, 0.1]
    p, q = softmax([2 * value for value in teacher]), softmax(student)
    expected = sum(pi * math.log(pi / qi) for pi, qi in zip(p, q, strict=True))
    loss = listwise_kl(torch.tensor([student]), torch.tensor([teacher]), temperature=2)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_listwise_kl_gradient_points_to_the_teacher():
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
    scores, relevant = [[1.5, -0.5, 0.25]], torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    expected = -(math.log(sigmoid(1.5)) + math.log(sigmoid(0.5)) + math.log(sigmoid(-0.25))) / 3
    loss = pointwise_cross_entropy(torch.tensor(scores, dtype=torch.float64), relevant, torch.ones(1))
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    found = gradient(scores, lambda leaf: pointwise_cross_entropy(leaf, relevant, torch.ones(1)))
    expected_gradient = [(sigmoid(1.5) - 1) / 3, sigmoid(-0.5) / 3, sigmoid(0.25) / 3]
    assert found[0].tolist() == pytest.approx(expected_gradient, rel=1e-6)


def test_pointwise_cross_entropy_is_the_softmax_cross_entropy_of_two_logits():
    """As the code of 2019 writes equation 1."""
    logits, labels = torch.tensor([[0.3, -1.2], [2.0, 0.4]]), torch.tensor([1, 0])
    expected = torch.nn.functional.cross_entropy(logits, labels)
    found = pointwise_cross_entropy(log_odds(logits)[:, None], labels[:, None].float(), torch.ones(2))
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_triplet_hinge_is_the_bertlets_loss():
    scores, margin = [[0.3, 0.1], [2.0, -1.0], [-0.5, 0.5]], 0.2
    parts = [softmax(pair) for pair in scores]
    expected = sum(max(margin - (plus - minus), 0) for plus, minus in parts) / 3
    loss = triplet_hinge(torch.tensor(scores, dtype=torch.float64), torch.ones(3), margin)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    found = gradient(scores, lambda leaf: triplet_hinge(leaf, torch.ones(3), margin))
    slopes = [2 * plus * minus / 3 for plus, minus in parts]
    assert found[0].tolist() == pytest.approx([-slopes[0], slopes[0]], rel=1e-9)
    assert found[1].tolist() == [0, 0]
    assert found[2].tolist() == pytest.approx([-slopes[2], slopes[2]], rel=1e-9)


def test_margin_mse_by_hand():
    student, teacher = [[1.0, 0.5, -1.0]], torch.tensor([[3.0, 2.0, 1.0]], dtype=torch.float64)
    expected = ((0.5 - 0.5 * 1) ** 2 + (2.0 - 0.5 * 2) ** 2) / 2
    assert margin_mse(torch.tensor(student, dtype=torch.float64), teacher, 0.5).item() == pytest.approx(expected)
    found = gradient(student, lambda leaf: margin_mse(leaf, teacher, 0.5))
    assert found[0].tolist() == pytest.approx([1.0, 0.0, -1.0])


@pytest.mark.parametrize(
    "loss",
    [
        listwise_cross_entropy,
        lambda scores, labelled: pointwise_cross_entropy(scores, torch.tensor([[1.0, 0.0]]), labelled),
        lambda scores, labelled: triplet_hinge(scores, labelled, 0.2),
    ],
)
def test_label_losses_of_a_batch_without_labels_are_0(loss):
    assert loss(torch.tensor([[1.0, 2.0]]), torch.zeros(1)).item() == 0


def test_pairwise_kl_by_hand():
    z, margin, temperature = 0.8, -0.3, 2.0
    p, q = sigmoid(temperature * margin), sigmoid(z)
    expected = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    margins = torch.tensor([margin], dtype=torch.float64)
    assert pairwise_kl(torch.tensor([z], dtype=torch.float64), margins, temperature).item() == pytest.approx(expected)
    assert gradient([z], lambda leaf: pairwise_kl(leaf, margins, temperature)).tolist() == pytest.approx([q - p])


def test_pairwise_mse_by_hand():
    margins = torch.tensor([1.0, -1.0], dtype=torch.float64)
    found = gradient([0.5, -3.0], lambda leaf: pairwise_mse(leaf, margins, 2.0))
    assert found.tolist() == pytest.approx([-1.5, -1.0])


def test_pairwise_cross_entropy_is_equation_2():
    loss = pairwise_cross_entropy(torch.tensor([0.8, -1.2]), torch.tensor([1.0, 0.0]))
    assert loss.item() == pytest.approx(-(math.log(sigmoid(0.8)) + math.log(1 - sigmoid(-1.2))) / 2, rel=1e-5)
    labels = torch.tensor([1.0, 0.0], dtype=torch.float64)
    found = gradient([0.8, -1.2], lambda scores: pairwise_cross_entropy(scores, labels))
    assert found.tolist() == pytest.approx([(sigmoid(0.8) - 1) / 2, sigmoid(-1.2) / 2], rel=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_check_finite_refuses_nan_and_infinity(value):
    with pytest.raises(DataError, match=f"the gradient is {value} at step 7"):
        check_finite("gradient", value, 7)
