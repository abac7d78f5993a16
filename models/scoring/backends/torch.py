"""The backend that runs a model with torch, on a CPU or on CUDA devices."""

import os
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from queue import SimpleQueue
from threading import Lock
from typing import ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from beamrank.errors import ConfigError, PreflightError
from beamrank.machine import (
    DEVICE_NAMES,
    DEVICE_PATTERN,
    WORKER_NUMBER,
    describe_machine,
    is_cuda,
)
from beamrank.ranking.input_layout import Lengths, PaddedBatch
from models.architectures.kernels.attention import Layout, TokenRows, supports_varlen
from models.architectures.kernels.compiled import VERSION, Kernels, load_kernels, why_torch
from models.checkpoints.checkpoint import Checkpoint, load_weights
from models.scoring.backends.registry import (
    COMPILED,
    TORCH,
    Device,
    OutOfMemory,
    default_token_budget,
)
from models.scoring.packing import Rows, even_budget, fill_batches, fill_blocks

_Forward: TypeAlias = Callable[[TokenRows], npt.NDArray[np.float32]]
DTYPES = ("float32", "bfloat16", "float16")

# One thread prepares a batch while another waits for its scores.
_STREAMS_OF_A_GPU = 2
# std::bad_alloc comes from libraries in C++. Not CUBLAS_STATUS_NOT_INITIALIZED, which also follows
# any error that ended the use of a GPU by this process.
_OUT_OF_MEMORY = re.compile(
    "can't alloc|not enough memory|out of memory|ALLOC(ATION)?_FAILED|bad_alloc"
)


class TorchBackend:
    """A `Backend` over torch. On CUDA devices, each has a copy of the model and takes batches in
    turn.
    """

    digest_keys: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def resolve(cls, device: str, dtype: str) -> Device:
        resolved = resolve_device(device)
        dtype, budget = resolve_dtype(dtype, resolved), default_token_budget(resolved)
        return Device(resolved, dtype, budget, cpu_warning(device, resolved))

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, device: str, dtype: str, threads: int, kernel: str
    ) -> Self:
        resolved = cls.resolve(device, dtype)
        kernels = None if kernel == TORCH else planned_kernels(kernel)
        kind = getattr(torch, resolved.dtype)
        model = checkpoint.architecture.build(load_weights(checkpoint), kind).eval()
        return cls(model, resolved.device, kind, threads, kernels)

    def __init__(
        self,
        model: nn.Module,
        device: str,
        dtype: torch.dtype,
        threads: int,
        kernels: Kernels | None,
    ) -> None:
        self._layout = Layout()
        models: list[_Forward] = [lambda rows: model(rows).numpy()]
        if device == "cpu":
            self.streams = threads
            if pack := getattr(model, "pack", None):
                self._layout = pack(kernels)
        else:
            devices = devices_here(device)
            self.streams = _STREAMS_OF_A_GPU * len(devices)
            copies = [model, *(deepcopy(model) for _ in devices[1:])]
            on_gpus = [CudaModel(*copy, dtype) for copy in zip(copies, devices, strict=True)]
            self._layout = Layout(varlen=all(model.varlen for model in on_gpus))
            models = [model.forward for model in on_gpus]
        self._free: SimpleQueue[_Forward] = SimpleQueue()
        for place in range(self.streams):
            self._free.put(models[place % len(models)])

    def start_thread(self) -> None:
        """Gives a batch one thread of torch: threads that share a batch wait for each other at
        every operation.
        """
        # torch keeps the number of its own threads for each thread that calls it.
        torch.set_num_threads(1)

    def batches(self, lengths: Lengths, token_budget: int) -> list[Rows]:
        rows = self._layout.rows_of(lengths).sum(axis=1)
        if self._layout.block:
            return fill_blocks(rows, self._layout.block)
        return fill_batches(rows, even_budget(rows, token_budget, self.streams))

    def computed_tokens(self, lengths: Lengths) -> int:
        return max(int(self._layout.rows_of(lengths).sum()), self._layout.block)

    def forward(self, batch: PaddedBatch) -> npt.NDArray[np.float32]:
        forward = self._free.get()
        try:
            with torch.inference_mode():
                return forward(self._rows(batch))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error)
        finally:
            self._free.put(forward)
        torch.cuda.empty_cache()
        raise OutOfMemory(reason)

    def _rows(self, batch: PaddedBatch) -> TokenRows:
        is_token = np.arange(batch.token_ids.shape[1]) < batch.lengths[:, None]
        ids, types = (
            torch.from_numpy(array[is_token]) for array in (batch.token_ids, batch.token_types)
        )
        return TokenRows(ids, types, batch.lengths.tolist(), self._layout, batch.prefix)


class CudaModel:
    """A model on one device. Batches are copied there while it computes another, of any thread."""

    def __init__(self, model: nn.Module, device: str, dtype: torch.dtype) -> None:
        """Moves the model, whose layers have the dtype."""
        self._device = torch.device(device)
        self._model = model.to(self._device)
        self._copies = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._turn = Lock()
        self.varlen = supports_varlen(self._device, dtype)

    def forward(self, rows: TokenRows) -> npt.NDArray[np.float32]:
        """Log-odds of a batch. Only one batch's activations are in the device's memory."""
        with torch.cuda.device(self._device):
            with torch.cuda.stream(self._copies):
                moved = rows.pin().to(self._device)
            with self._turn:
                compute = torch.cuda.current_stream()
                compute.wait_stream(self._copies)
                moved.record_stream(compute)
                log_odds = self._model(moved)
                copied = torch.empty(log_odds.shape, dtype=log_odds.dtype, pin_memory=True)
                copied.copy_(log_odds, non_blocking=True)
                # Waiting for the stream would be waiting for the next batch too.
                done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
                done.record(compute)
            done.synchronize()
        # Pinned memory is slow to allocate, and is used again.
        result: npt.NDArray[np.float32] = copied.numpy().copy()
        return result


def devices_here(requested: str) -> list[str]:
    """The CUDA devices of this process: of several worker processes of this machine, each has one
    in turn.
    """
    if requested != "cuda":
        return [requested]
    count, worker = torch.cuda.device_count(), os.environ.get(WORKER_NUMBER)
    return [
        f"cuda:{number}" for number in (range(count) if worker is None else [int(worker) % count])
    ]


def planned_kernels(kernel: str) -> Kernels:
    """The compiled kernels of this machine; raises PreflightError where there are none, or others
    than the plan has.
    """
    kernels = load_kernels()
    if kernel != COMPILED or kernels is None:
        reason = why_torch() or f"this installation has version {VERSION}"
        raise PreflightError(
            f"the plan has the kernel {kernel!r}, and {reason}. Or set kernel to torch, which "
            "gives scores with other last digits, and run again"
        )
    return kernels


def resolve_device(requested: str) -> str:
    """`cpu`, `cuda` or `cuda:N`; `auto` is CUDA where there is a device."""
    if not re.fullmatch(DEVICE_PATTERN, requested):
        raise ConfigError(f"device must be {DEVICE_NAMES}, not {requested!r}")
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if requested != "cpu" and not torch.cuda.is_available():
        reason = why_not_used() or "torch finds no CUDA device on this machine"
        raise PreflightError(f"device is {requested}: {reason}; set device to auto or cpu")
    _, _, number = requested.partition(":")
    count = torch.cuda.device_count()
    if number and int(number) >= count:
        raise PreflightError(
            f"device is {requested}, and this machine has {count} CUDA devices, numbered from 0"
        )
    return requested


def why_not_used() -> str | None:
    """Why torch does not use the GPUs that NVIDIA's driver lists; None where it does, there are
    none, or the user hides them.
    """
    gpus = describe_machine().gpus
    if gpus and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1"):
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
        # A build of torch without CUDA fails an assertion.
        except (AssertionError, RuntimeError) as error:
            built = f"torch {torch.__version__} (CUDA {torch.version.cuda})"
            return f"{built} cannot use {', '.join(gpus)} of this machine: {error}"
    return None


def cpu_warning(requested: str, resolved: str) -> str | None:
    """What the user of `auto` is told where it is the CPU of a machine with GPUs."""
    reason = why_not_used() if (requested, resolved) == ("auto", "cpu") else None
    return reason and f"device auto is the CPU, which is many times slower: {reason}"


def resolve_dtype(requested: str, device: str) -> str:
    """The dtype of the encoder; `auto` is the one that the device is fast at.

    On GPUs that is bfloat16, which does not overflow as float16 does, where all compute in it. On
    a CPU it is bfloat16 with AMX tiles, and on an AMD with AVX-512's bfloat16. Elsewhere float32
    was faster, also on an Intel that has these instructions without AMX.
    """
    if requested == "auto":
        if is_cuda(device):
            return "bfloat16" if _compute_bfloat16(device) else "float16"
        has = torch.cpu.get_capabilities()
        on_amd = has.get("avx512_bf16", False) and has["cpu_name"].startswith("AMD")
        return "bfloat16" if on_amd or torch.cpu._is_amx_tile_supported() else "float32"
    if requested not in DTYPES:
        raise ConfigError(f"dtype must be auto or one of {', '.join(DTYPES)}, not {requested!r}")
    if requested == "bfloat16" and is_cuda(device) and not _compute_bfloat16(device):
        raise PreflightError(
            "dtype is bfloat16, and this GPU does not compute in it: set dtype to float16 or "
            "float32"
        )
    return requested


def _compute_bfloat16(device: str) -> bool:
    """Whether all these GPUs do, from Ampere on; others emulate it slowly."""
    return all(torch.cuda.get_device_capability(gpu) >= (8, 0) for gpu in devices_here(device))


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of torch, CUDA, cuBLAS, cuDNN or the CPU's allocators means that memory ran
    out.
    """
    return (
        isinstance(error, torch.OutOfMemoryError | MemoryError)
        or _OUT_OF_MEMORY.search(str(error)) is not None
    )
