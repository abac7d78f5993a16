import math

import pytest
import torch
from torch import nn

from models.training.loop.optimizer import BertAdam, clip_gradients, learning_rate_at, without_denormals


def parameter(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def test_bert_adam_two_steps_by_hand():
    weight = parameter(2.0)
    optimizer = BertAdam([("encoder.weight", weight)], weight_decay=0.01)
    value, first, second = 2.0, 0.0, 0.0
    for gradient, rate in ((0.5, 0.1), (-3.0, 0.05)):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step(rate)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        value -= rate * (first / (math.sqrt(second) + 1e-6) + 0.01 * value)
        assert weight.item() == pytest.approx(value, rel=1e-12)
    assert weight.grad is None


def test_bert_adam_has_no_bias_correction():
    """Adam with it would move by the learning rate; BERT's moves by .1 / sqrt(.001) of it."""
    weight = parameter(1.0)
    optimizer = BertAdam([("w", weight)], weight_decay=0.0)
    weight.grad = torch.tensor([4.0], dtype=torch.float64)
    optimizer.step(0.01)
    assert weight.item() == pytest.approx(1 - 0.01 * 0.1 / math.sqrt(0.001), rel=1e-5)


@pytest.mark.parametrize("name", ["dense.bias", "output.LayerNorm.weight", "output.LayerNorm.bias"])
def test_bert_adam_does_not_decay_biases_and_layer_norm(name):
    spared, decayed = parameter(1.0), parameter(1.0)
    optimizer = BertAdam([(name, spared), ("dense.weight", decayed)], weight_decay=0.01)
    optimizer.step(0.1)
    assert spared.item() == 1.0
    assert decayed.item() == pytest.approx(1 - 0.1 * 0.01)


def test_bert_adam_skips_frozen_parameters():
    frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    optimizer = BertAdam([("words", frozen), ("dense", parameter(1.0))], weight_decay=0.01)
    optimizer.step(1.0)
    assert frozen.tolist() == [1, 1]
    assert optimizer.state().keys() == {"dense.first", "dense.second"}


def test_bert_adam_restores_its_moments():
    one, other = parameter(1.0, 2.0), parameter(1.0, 2.0)
    before = BertAdam([("w", one)], 0.01)
    one.grad = torch.tensor([0.3, -0.2], dtype=torch.float64)
    before.step(0.1)
    after = BertAdam([("w", other)], 0.01)
    after.restore(before.state())
    other.data = one.data.clone()
    for weight, optimizer in ((one, before), (other, after)):
        weight.grad = torch.tensor([1.0, 1.0], dtype=torch.float64)
        optimizer.step(0.1)
    assert torch.equal(one, other)


def test_learning_rate_warms_up_and_decays_as_in_bert():
    rates = [learning_rate_at(step, 3e-6, 10, 100) for step in range(100)]
    assert rates[0] == 0
    assert rates[5] == pytest.approx(1.5e-6)
    assert rates[10] == pytest.approx(3e-6 * 0.9)
    assert rates[99] == pytest.approx(3e-8)
    assert learning_rate_at(0, 1.0, 0, 10) == 1.0


def test_clip_gradients_uses_the_common_norm():
    one, other = parameter(0.0), parameter(0.0)
    one.grad, other.grad = (torch.tensor([value], dtype=torch.float64) for value in (3.0, 4.0))
    assert clip_gradients([one, other], 1.0) == pytest.approx(5.0)
    assert (one.grad.item(), other.grad.item()) == pytest.approx((0.6, 0.8), rel=1e-5)


def test_optimizer_flushes_denormals_to_0():
    tiny = torch.full((1000,), 1e-30)
    with without_denormals():
        assert not (tiny * 1e-10).any()
    assert (tiny * 1e-10).all()
