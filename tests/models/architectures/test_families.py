"""Random checkpoints of every family score as in transformers."""

from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from models.architectures.kernels.attention import TokenRows
from models.architectures.kernels.compiled import Kernels, load_kernels
from models.checkpoints.checkpoint import load_weights, resolve_checkpoint
from tests.support.checkpoints import save_tiny
from tests.support.models.families import CASES, Scorer, random_inputs, save_case, wanted_log_odds
from tests.support.oracle import assert_parity
from tests.support.tiers import slow_but


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
    folder, inputs = (
        save_case(tmp_path, name, max_position_embeddings=2050),
        random_inputs(name, [2048, 1024, 513]),
    )
    alone, _ = wanted_log_odds(folder, *inputs)
    score = Scorer(folder)
    assert_parity(score(inputs), alone)
    assert score(inputs, order=[1]) == score(inputs)[1:2]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("dtype", "kernel"),
    slow_but(
        2,
        [(torch.float32, "torch"), (torch.bfloat16, "compiled"), (torch.bfloat16, "torch")],
    ),
    ids=str,
)
@pytest.mark.parametrize("name", CASES)
def test_family_score_has_the_same_bits_beside_others(name, dtype, kernel, tmp_path):
    score, inputs = (
        Scorer(save_case(tmp_path, name), dtype, kernels=_kernels(kernel)),
        random_inputs(name),
    )
    together = score(inputs)
    order = [7, 2, 0, 10, 4]
    assert score(inputs, order=order) == [together[place] for place in order]
    assert [score(inputs, order=[place])[0] for place in order] == [
        together[place] for place in order
    ]


@pytest.mark.parametrize("kernel", slow_but(1, ["compiled", "torch"]))
@pytest.mark.parametrize("name", CASES)
def test_family_in_bfloat16_stays_near(name, kernel, tmp_path):
    folder, inputs, kernels = save_case(tmp_path, name), random_inputs(name), _kernels(kernel)
    exact, scores = (
        torch.tensor(Scorer(folder, dtype, kernels=kernels)(inputs))
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert (scores - exact).square().mean().sqrt() < 0.15 * exact.std()
    assert len(scores.unique()) == len(exact.unique())


def _scorer(folder: str, kind: str = "mono", dtype: torch.dtype = torch.float32) -> Any:
    checkpoint = resolve_checkpoint(folder, kind)
    return checkpoint.architecture.build(load_weights(checkpoint), dtype)


def test_head_is_float32_for_any_dtype(tmp_path):
    folder = save_tiny(tmp_path)
    ids = torch.randint(0, 1000, (64, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        rows = TokenRows(ids.flatten(), torch.zeros(64 * 20, dtype=torch.long), [20] * 64)
        exact = _scorer(folder)(rows)
        scores = _scorer(folder, dtype=torch.bfloat16)(rows)
    assert scores.dtype == torch.float32
    assert (scores != scores.bfloat16().float()).sum() > 50
    torch.testing.assert_close(scores, exact, rtol=0, atol=0.2 * exact.std().item())


@pytest.mark.parametrize("token_types", [2, 3])
def test_missing_third_segment_is_a_row_of_zeros(tmp_path, token_types):
    scorer = _scorer(save_tiny(tmp_path, type_vocab_size=token_types), "duo")
    saved = load_file(tmp_path / "model.safetensors")[
        "bert.embeddings.token_type_embeddings.weight"
    ]
    assert torch.equal(scorer.types, torch.cat([saved, torch.zeros(3 - token_types, 32)]))
