"""Random checkpoints of every family score as in transformers."""

import pytest
import torch

from models.architectures.kernels.compiled import Kernels, load_kernels
from tests.support.models.families import CASES, Scorer, random_inputs, save_case, wanted_log_odds
from tests.support.oracle import assert_parity


def _kernels(kernel: str) -> Kernels | None:
    """The compiled kernels that take bfloat16 here; skips a test that needs them elsewhere."""
    found = load_kernels() if kernel == "compiled" else None
    if kernel == "compiled" and (found is None or not found.takes(torch.bfloat16, 12)):
        pytest.skip("this machine has no compiled kernels for bfloat16")
    return found


@pytest.mark.parametrize("name", CASES)
def test_family_scores_as_in_transformers(name, tmp_path):
    folder, inputs = save_case(tmp_path, name), random_inputs(name)
    alone, padded = wanted_log_odds(folder, *inputs)
    assert torch.tensor(alone).std() > 0.3
    for blocks in (False, True):
        found = Scorer(folder, blocks=blocks)(inputs)
        assert_parity(found, alone)
        assert_parity(found, padded)


@pytest.mark.parametrize("name", ["modernbert cls", "modernbert mean", "xlm-roberta"])
def test_family_scores_long_inputs_as_in_transformers(name, tmp_path):
    folder, inputs = save_case(tmp_path, name, max_position_embeddings=2050), random_inputs(name, [2048, 1024, 513])
    alone, _ = wanted_log_odds(folder, *inputs)
    score = Scorer(folder)
    assert_parity(score(inputs), alone)
    assert score(inputs, order=[1]) == score(inputs)[1:2]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("dtype", "kernel"), [(torch.float32, "torch"), (torch.bfloat16, "torch"), (torch.bfloat16, "compiled")], ids=str
)
@pytest.mark.parametrize("name", CASES)
def test_family_score_has_the_same_bits_beside_others(name, dtype, kernel, tmp_path):
    score, inputs = Scorer(save_case(tmp_path, name), dtype, kernels=_kernels(kernel)), random_inputs(name)
    together = score(inputs)
    order = [7, 2, 0, 10, 4]
    assert score(inputs, order=order) == [together[place] for place in order]
    assert [score(inputs, order=[place])[0] for place in order] == [together[place] for place in order]


@pytest.mark.parametrize("kernel", ["torch", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_family_in_bfloat16_stays_near(name, kernel, tmp_path):
    folder, inputs, kernels = save_case(tmp_path, name), random_inputs(name), _kernels(kernel)
    exact, scores = (
        torch.tensor(Scorer(folder, dtype, kernels=kernels)(inputs)) for dtype in (torch.float32, torch.bfloat16)
    )
    assert (scores - exact).square().mean().sqrt() < 0.15 * exact.std()
    assert len(scores.unique()) == len(exact.unique())
