"""Names of backends, and the kernel that a model gets."""

import pytest
import torch

from beamrank.errors import ConfigError, PreflightError
from models.architectures.kernels import compiled
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from models.scoring.backends import registry
from models.scoring.backends import torch as backend
from models.scoring.backends.registry import (
    BACKENDS,
    Device,
    choose_kernel,
    find_backend,
)
from models.scoring.engine import ScoringEngine
from tests.support.checkpoints import save_tiny


def test_auto_is_torch(tmp_path):
    assert find_backend("auto") is find_backend("torch")
    reranker = Reranker(
        save_tiny(tmp_path, vocabulary=None), dtype="float32", device="cpu", backend="auto"
    )
    assert type(reranker.engine._backend) is BACKENDS["torch"]


def test_backend_that_is_unknown_is_refused():
    with pytest.raises(ConfigError, match="auto, openvino, torch, not 'tpu'"):
        find_backend("tpu")


_PLANNED = f"compiled {compiled.VERSION}"


@pytest.mark.parametrize(
    ("requested", "name", "device", "dtype", "chosen"),
    [
        ("torch", "torch", "cpu", "bfloat16", "torch"),
        ("auto", "torch", "cpu", "float16", "torch"),
        ("auto", "openvino", "cpu", "bfloat16", "torch"),
        ("compiled", "torch", "cuda", "bfloat16", "torch"),
        ("compiled", "torch", "cpu", "bfloat16", _PLANNED),
    ],
)
def test_kernel_is_planned_for_what_it_computes(requested, name, device, dtype, chosen):
    architecture = resolve_checkpoint("embedded:mono", "mono").architecture
    assert choose_kernel(requested, architecture, name, Device(device, dtype, 1)) == chosen


def test_auto_is_compiled_only_where_it_gains(monkeypatch):
    architecture, found = (
        resolve_checkpoint("embedded:mono", "mono").architecture,
        compiled.load_kernels(),
    )
    gains = found is not None and found.takes(torch.bfloat16, 34)
    device = Device("cpu", "bfloat16", 1)
    assert choose_kernel("auto", architecture, "torch", device) == (_PLANNED if gains else "torch")
    monkeypatch.setattr(registry, "load_kernels", lambda: None)
    assert choose_kernel("auto", architecture, "torch", device) == "torch"


@pytest.mark.parametrize(("planned", "installed"), [(_PLANNED, False), ("compiled 0", True)])
def test_worker_without_the_planned_kernel_fails_and_names_the_remedy(
    monkeypatch, planned, installed
):
    if not installed:
        monkeypatch.setattr(backend, "load_kernels", lambda: None)
        monkeypatch.setattr(backend, "why_torch", lambda: "it was installed without a compiler")
    with pytest.raises(PreflightError, match=rf"'{planned}', .*kernel .*torch"):
        ScoringEngine(
            resolve_checkpoint("embedded:mono", "mono"), "cpu", "bfloat16", 1, 64, kernel=planned
        )
