"""The comparison of engines: its pairs, and one shape with one engine."""

import numpy as np
import pytest
import torch

from beamrank.errors import PreflightError
from benchmarks.engine import ENGINES, Place, _count_tokens, _rankings, compare, even_pairs, main, save_random


def test_even_pairs_have_so_many_tokens():
    pairs = even_pairs(7, 32)
    assert len(set(pairs)) == 7
    assert _count_tokens(pairs) == 7 * 32


def test_ranking_starts_with_the_best_score():
    assert _rankings(np.array([0.5, 2, -1], np.float32)) == {"0": ["1", "0", "2"]}


@pytest.mark.slow
def test_comparison_is_a_line_for_each_engine(tmp_path):
    folder = save_random(tmp_path / "model", "MiniLM-L6")
    header, _, line = compare(folder, even_pairs(4, 32), ["beamrank float32"], Place("cpu", 1), 1).splitlines()
    assert header.startswith("| engine | pairs/s | share of the matmul peak |")
    assert line.startswith("| beamrank float32 | ")
    assert line.endswith(" | 1.0000 | 1.000 |")


def test_gpu_is_compared_with_the_engines_that_run_there():
    on_gpu = [name for name, engine in ENGINES.items() if "cuda" in engine.devices]
    assert on_gpu[0] == "beamrank float32"
    assert {"beamrank float16", "sentence-transformers float16"} < set(on_gpu)
    assert not any("onnx" in name or "openvino" in name for name in on_gpu)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_comparison_on_a_missing_gpu_is_refused():
    with pytest.raises(PreflightError, match="torch finds no CUDA device"):
        main(["--device", "cuda"])
