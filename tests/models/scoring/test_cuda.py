"""What scoring does on GPUs, on a machine without one: its steps, its errors and its choice of
devices.
"""

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beamrank.errors import BeamrankError, ConfigError, PreflightError
from beamrank.machine import WORKER_NUMBER, describe_machine, number_worker
from models.architectures.kernels.attention import TokenRows
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from models.scoring.backends.torch import (
    CudaModel,
    TorchBackend,
    devices_here,
    resolve_device,
    resolve_dtype,
    why_not_used,
)
from models.scoring.engine import ScoringEngine
from tests.models.scoring.test_engine import stretches
from tests.support.models.varlen import varlen_attn
from tests.support.processes import beamrank_here
from tests.support.small_collection import SmallCollection


class _Stream:
    """A stream or an event of a device that does everything at once, as a CPU does."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def wait_stream(self, other: "_Stream") -> None:
        pass

    def record(self, stream: "_Stream") -> None:
        pass

    def synchronize(self) -> None:
        pass


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of a GPU on the CPU, twice: streams that wait for nothing, and memory that is not
    pinned.
    """
    empty = torch.empty
    for name in ("Stream", "Event", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, _Stream)
    for name in ("device", "stream"):
        monkeypatch.setattr(torch.cuda, name, lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch, "empty", lambda *shape, pin_memory=False, **options: empty(*shape, **options)
    )
    monkeypatch.setattr(TokenRows, "pin", lambda rows: rows)
    monkeypatch.setattr(TokenRows, "record_stream", lambda rows, stream: None)
    monkeypatch.setattr("models.scoring.backends.torch.devices_here", lambda device: ["cpu", "cpu"])


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("varlen", [False, True], ids=["groups", "varlen"])
@pytest.mark.parametrize("kind", ["mono", "duo"])
def test_scores_of_two_gpus_are_those_of_the_cpu(request, monkeypatch, text, kind, varlen):
    monkeypatch.setattr(
        "models.scoring.backends.torch.supports_varlen", lambda device, dtype: varlen
    )
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
    inputs = stretches(text, 60, segments={"mono": 2, "duo": 3}[kind])
    wanted = request.getfixturevalue(f"{kind}_engine").score(inputs)
    checkpoint = resolve_checkpoint(request.getfixturevalue(f"{kind}_checkpoint"), kind)
    used: set[int] = set()
    forward = CudaModel.forward

    def watch(model: CudaModel, rows: TokenRows) -> Any:
        used.add(id(model))
        return forward(model, rows)

    monkeypatch.setattr(CudaModel, "forward", watch)
    engine = ScoringEngine(checkpoint, "cuda", "float32", 1, 512)
    assert engine._backend.streams == 4
    found = engine.score(inputs)
    np.testing.assert_allclose(found.log_odds, wanted.log_odds, rtol=0, atol=1e-4)
    assert (found.padded_tokens, found.halvings) == (found.tokens, 0)
    assert len(used) == 2


class _Small:
    """A model whose device has memory for so many tokens."""

    def __init__(self, forward: Any, tokens: int, error: Exception) -> None:
        self._forward, self._tokens, self._error = forward, tokens, error
        self.failures = 0

    def forward(self, rows: TokenRows) -> Any:
        if sum(group.count * group.length for group in rows.groups) > self._tokens:
            self.failures += 1
            raise self._error
        return self._forward(rows)


def _shrink(engine: ScoringEngine, tokens: int, error: Exception) -> _Small:
    backend = engine._backend
    assert isinstance(backend, TorchBackend)
    small = _Small(backend._free.get(), tokens, error)
    backend._free.put(small.forward)
    return small


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 22 GiB"
        ),
        RuntimeError(
            "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"
        ),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate "
            "memory"
        ),
        RuntimeError("std::bad_alloc"),
        MemoryError(),
    ],
    ids=lambda error: (str(error) or type(error).__name__)[:50],
)
def test_engine_remembers_an_out_of_memory(mono_checkpoint, mono_engine, text, error):
    inputs = stretches(text, 60)
    engine = ScoringEngine(resolve_checkpoint(mono_checkpoint, "mono"), "cpu", "float32", 1, 2048)
    small = _shrink(engine, 700, error)
    first = engine.score(inputs)
    failures, small.failures = small.failures, 0
    second = engine.score(inputs)
    # The first block; the others are above the limit that it sets.
    assert failures == 1
    assert small.failures == 0
    assert min(first.halvings, second.halvings) > failures
    for scores in (first, second):
        assert scores.log_odds.tobytes() == mono_engine.score(inputs).log_odds.tobytes()


def test_single_input_that_does_not_fit_is_an_error(mono_checkpoint, text):
    engine = ScoringEngine(resolve_checkpoint(mono_checkpoint, "mono"), "cpu", "float32", 1, 2048)
    _shrink(engine, 5, MemoryError("too large"))
    with pytest.raises(BeamrankError, match="194 tokens") as caught:
        engine.score(stretches(text, 60))
    assert str(caught.value.__cause__) == "too large"


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
        torch.AcceleratorError(
            "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously "
            "reported at some other API call, so the stacktrace below might be incorrect."
        ),
        # Of the next product after an error that ended the use of the GPU, or where another process
        # has it to itself.
        RuntimeError(
            "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
        ),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`"),
    ],
    ids=lambda error: str(error)[12:40],
)
def test_other_errors_of_a_gpu_end_the_shard(mono_checkpoint, text, error):
    engine = ScoringEngine(resolve_checkpoint(mono_checkpoint, "mono"), "cpu", "float32", 1, 2048)
    small = _shrink(engine, 5, error)
    with pytest.raises(RuntimeError) as caught:
        engine.score(stretches(text, 3))
    assert caught.value is error
    assert small.failures == 1


@pytest.mark.parametrize(
    ("requested", "count", "worker", "devices"),
    [
        ("cuda", 1, None, ["cuda:0"]),
        ("cuda", 4, None, ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("cuda", 4, "2", ["cuda:2"]),
        ("cuda", 4, "7", ["cuda:3"]),
        ("cuda", 1, "7", ["cuda:0"]),
        ("cuda:2", 4, None, ["cuda:2"]),
        ("cuda:2", 4, "1", ["cuda:2"]),
    ],
)
def test_process_computes_on_its_devices(monkeypatch, requested, count, worker, devices):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setenv(WORKER_NUMBER, "")
    monkeypatch.delenv(WORKER_NUMBER)
    if worker is not None:
        number_worker(f"worker_{worker}")
    assert devices_here(requested) == devices


def test_numbered_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [resolve_device(name) for name in ("cuda", "cuda:1")] == ["cuda", "cuda:1"]
    assert TorchBackend.resolve("cuda:1", "float16").token_budget == 65536
    with pytest.raises(PreflightError, match=r"cuda:2, .*2 CUDA devices"):
        resolve_device("cuda:2")
    for name in ("gpu", "cuda:", "cuda:-1", "cuda:x", "mps"):
        with pytest.raises(ConfigError, match="cuda:N"):
            resolve_device(name)


@pytest.mark.parametrize(
    ("device", "worker", "capabilities", "dtype"),
    [
        ("cuda", None, [(8, 0), (9, 0)], "bfloat16"),
        ("cuda", None, [(8, 9), (7, 5)], "float16"),
        ("cuda:0", None, [(8, 9), (7, 5)], "bfloat16"),
        ("cuda:1", None, [(8, 9), (7, 5)], "float16"),
        ("cuda", "1", [(8, 9), (7, 5)], "float16"),
    ],
)
def test_dtype_auto_is_bfloat16_where_all_gpus_compute_in_it(
    monkeypatch, device, worker, capabilities, dtype
):
    def capability(gpu: str) -> tuple[int, int]:
        return capabilities[int(gpu.partition(":")[2])]

    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    monkeypatch.delenv(WORKER_NUMBER, raising=False)
    if worker is not None:
        monkeypatch.setenv(WORKER_NUMBER, worker)
    assert resolve_dtype("auto", device) == dtype
    if dtype == "float16":
        with pytest.raises(PreflightError, match="bfloat16"):
            resolve_dtype("bfloat16", device)


_TOO_OLD = (
    "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU "
    "driver by downloading and installing a new version from the URL: "
    "http://www.nvidia.com/Download/index.aspx"
)


@pytest.fixture
def unusable_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose driver is older than the CUDA of torch: torch finds none, and tells why as it
    is initialized.
    """

    def refuse() -> None:
        raise RuntimeError(_TOO_OLD)

    machine = replace(describe_machine(), gpus=("NVIDIA H100 80GB HBM3",))
    monkeypatch.setattr("models.scoring.backends.torch.describe_machine", lambda: machine)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", refuse)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def succeed_here(*arguments: str | Path) -> str:
    """What a command says."""
    done = beamrank_here(*arguments)
    assert done.returncode == 0, done.stderr
    return " ".join(f"{done.stdout} {done.stderr}".split())


@pytest.mark.usefixtures("unusable_gpu")
def test_driver_that_is_too_old_is_named(tmp_path, caplog):
    found = TorchBackend.resolve("auto", "float32")
    assert found.device == "cpu"
    assert "H100" in (found.warning or "")
    assert _TOO_OLD in (found.warning or "")
    collection = SmallCollection(tmp_path).given_run().with_models()
    del collection.keys["device"]
    assert "found version 12040" in succeed_here("plan", collection.path)
    run = succeed_here("run", collection.path, "--only", "0/1")
    assert "found version 12040" in run
    Reranker(str(tmp_path / "mono"))
    assert any(_TOO_OLD in record.getMessage() for record in caplog.records)
    with pytest.raises(PreflightError, match=r"too old.*found version 12040"):
        resolve_device("cuda:0")


@pytest.mark.usefixtures("unusable_gpu")
def test_gpus_that_the_user_leaves_out_are_not_missed(monkeypatch):
    assert TorchBackend.resolve("cpu", "float32").warning is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = TorchBackend.resolve("auto", "float32")
    assert (found.device, found.warning) == ("cpu", None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_installed_torch_tells_why_it_uses_no_gpu(monkeypatch):
    assert why_not_used() is None
    machine = replace(describe_machine(), gpus=("NVIDIA L4",))
    monkeypatch.setattr("models.scoring.backends.torch.describe_machine", lambda: machine)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # The second is a build without CUDA.
    assert re.search("NVIDIA driver|not compiled with CUDA", why_not_used() or "")
