"""Scoring on a real GPU. `pytest -m gpu tests/models/scoring/test_gpu.py` takes a few minutes
there.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest
import torch

from models.architectures.kernels.attention import Layout, TokenRows, supports_varlen
from models.checkpoints.checkpoint import load_weights, resolve_checkpoint
from models.scoring.engine import ScoringEngine
from tests.models.scoring.test_engine import stretches
from tests.support.models.families import CASES, LENGTHS, Scorer, random_inputs, save_case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_family_scores_on_a_gpu_as_on_the_cpu(name, dtype, tmp_path):
    folder, inputs = save_case(tmp_path, name), random_inputs(name)
    checkpoint = resolve_checkpoint(folder, "mono")
    model = checkpoint.architecture.build(load_weights(checkpoint), dtype).to("cuda")
    ids, types = (torch.tensor([*chain.from_iterable(each)]) for each in inputs)
    wanted = torch.tensor(Scorer(folder)(inputs))
    for varlen in {False, supports_varlen(torch.device("cuda"), dtype)}:
        with torch.inference_mode():
            found = model(
                TokenRows(ids, types, LENGTHS, Layout(varlen=varlen)).pin().to("cuda")
            ).cpu()
        tolerance = {torch.float32: 1e-3, torch.float16: 0.04, torch.bfloat16: 0.15}[dtype]
        assert (found - wanted).square().mean().sqrt() < tolerance * wanted.std()


@pytest.mark.parametrize("kind", ["mono", "duo"])
def test_float16_on_a_gpu_stays_near_float32(kind, text):
    checkpoint = resolve_checkpoint(f"embedded:{kind}", kind)
    inputs = stretches(
        [token % checkpoint.architecture.vocab_size for token in text],
        400,
        segments=2 + (kind == "duo"),
    )
    exact, scores = (
        ScoringEngine(checkpoint, device, dtype, 2, 4096).score(inputs).log_odds
        for device, dtype in (("cpu", "float32"), ("cuda", "float16"))
    )
    # On a CPU, the largest difference of float16 is 0.009 of the spread.
    assert np.sqrt(np.square(scores - exact).mean()) < 1e-2 * exact.std()
    assert np.abs(scores - exact).max() < 2e-2 * exact.std()
    assert len(np.unique(scores)) >= len(np.unique(exact))


def test_same_shard_gives_the_same_bits_on_a_gpu(mono_checkpoint, text):
    engine = ScoringEngine(resolve_checkpoint(mono_checkpoint, "mono"), "cuda", "float16", 1, 4096)
    first, second = (engine.score(stretches(text, 400)) for _ in range(2))
    assert first.log_odds.tobytes() == second.log_odds.tobytes()


@pytest.fixture
def little_memory() -> Iterator[None]:
    """The process may allocate 128 MiB of the GPU's memory."""
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(
        2**27 / torch.cuda.get_device_properties(0).total_memory
    )
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.usefixtures("little_memory")
def test_batches_are_halved_where_a_gpu_runs_out_of_memory(mono_checkpoint, mono_engine, text):
    # A batch has half of the shard's 400,000 tokens.
    inputs = stretches(text * 20, 4000)
    engine = ScoringEngine(
        resolve_checkpoint(mono_checkpoint, "mono"), "cuda:0", "float32", 1, 1 << 20
    )
    scores = engine.score(inputs)
    assert scores.halvings > 0
    np.testing.assert_allclose(
        scores.log_odds, mono_engine.score(inputs).log_odds, rtol=0, atol=1e-3
    )


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="this machine has one CUDA device")
def test_every_gpu_gives_the_same_scores(mono_checkpoint, text):
    inputs, checkpoint = stretches(text, 400), resolve_checkpoint(mono_checkpoint, "mono")
    devices = ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    scores = [
        ScoringEngine(checkpoint, device, "float16", 1, 1024).score(inputs).log_odds
        for device in devices
    ]
    for each in scores:
        np.testing.assert_allclose(each, scores[0], rtol=0, atol=1e-2)
