"""The backend that runs a model with torch, on a CPU or a CUDA device."""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from queue import SimpleQueue
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from beamrank.errors import ConfigError, PreflightError
from beamrank.machine import DEVICE_NAMES, DEVICE_PATTERN, is_cuda
from beamrank.ranking.input_layout import Lengths, PaddedBatch
from models.architectures.encoder.family import EncoderClassifier
from models.architectures.kernels.compiled import VERSION, load_kernels, why_torch
from models.architectures.protocol import Architecture
from models.checkpoints.checkpoint import Checkpoint, load_weights
from models.scoring.backends.protocol import Device, OutOfMemory
from models.scoring.batching import Rows, even_budget, fill_batches, fill_blocks

if TYPE_CHECKING:
    import torch

    from models.architectures.kernels.compiled import Kernels
    from models.architectures.kernels.token_rows import TokenRows

_Forward: TypeAlias = Callable[["TokenRows"], npt.NDArray[np.float32]]
TORCH, _COMPILED = "torch", f"compiled {VERSION}"
DTYPES = ("float32", "bfloat16", "float16")

_GPU_TOKEN_BUDGET = 1 << 16
# Of models that do not take blocks of rows.
_CPU_TOKEN_BUDGET = 4096
# One thread prepares a batch while another waits for its scores.
_STREAMS_OF_A_GPU = 2
# cuBLAS takes its own memory as it is initialized. std::bad_alloc comes from libraries in C++.
_OUT_OF_MEMORY = re.compile(
    "can't alloc|not enough memory|out of memory|ALLOC(ATION)?_FAILED|CUBLAS_STATUS_NOT_INITIALIZED|bad_alloc"
)


class TorchBackend:
    """A `Backend` over torch. On CUDA devices, each has a copy of the model and takes batches in turn."""

    digest_keys: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def resolve(cls, device: str, dtype: str) -> Device:
        resolved = resolve_device(device)
        return Device(resolved, resolve_dtype(dtype, resolved), default_token_budget(resolved))

    @classmethod
    def load(cls, checkpoint: Checkpoint, device: str, dtype: str, threads: int, kernel: str) -> Self:
        import torch

        found = cls.resolve(device, dtype)
        kernels = None if kernel == TORCH else planned_kernels(kernel)
        kind = getattr(torch, found.dtype)
        model = checkpoint.architecture.build(load_weights(checkpoint), kind).eval()
        return cls(model, found.device, kind, threads, kernels)

    def __init__(
        self, model: "torch.nn.Module", device: str, dtype: "torch.dtype", threads: int, kernels: "Kernels | None"
    ) -> None:
        from models.architectures.kernels.token_rows import Layout
        from models.scoring.backends.cuda import CudaModel, devices_here

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
            on_gpus = [CudaModel(*each, dtype) for each in zip(copies, devices, strict=True)]
            self._layout = Layout(varlen=all(each.varlen for each in on_gpus))
            models = [each.forward for each in on_gpus]
        self._free: SimpleQueue[_Forward] = SimpleQueue()
        for place in range(self.streams):
            self._free.put(models[place % len(models)])

    def start_thread(self) -> None:
        """Gives a batch one thread of torch: threads that share a batch wait for each other at every operation."""
        import torch

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
        import torch

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

    def _rows(self, batch: PaddedBatch) -> "TokenRows":
        import torch

        from models.architectures.kernels.token_rows import TokenRows

        is_token = np.arange(batch.token_ids.shape[1]) < batch.lengths[:, None]
        ids, types = (torch.from_numpy(each[is_token]) for each in (batch.token_ids, batch.token_types))
        return TokenRows(ids, types, batch.lengths.tolist(), self._layout)


def choose_kernel(requested: str, architecture: Architecture, backend: str, device: Device) -> str:
    """What computes attention: `torch`, or `compiled N`, the version of the compiled kernels, whose bits differ.

    Args:
        requested: as configured; `auto` is compiled where this installation has kernels that are faster for the model.
        architecture: the model's.
        backend: its backend.
        device: its device and dtype.
    """
    if requested == TORCH or (backend, device.device) != (TORCH, "cpu"):
        return TORCH
    if not isinstance(architecture, EncoderClassifier):
        return TORCH
    if requested == "compiled":
        return _COMPILED
    import torch

    shape, kernels = architecture.shape, load_kernels()
    takes = kernels is not None and kernels.takes(getattr(torch, device.dtype), shape.hidden // shape.heads)
    return _COMPILED if takes else TORCH


def planned_kernels(kernel: str) -> "Kernels":
    """The compiled kernels of this machine.

    Raises:
        PreflightError: there are none, or not those of the plan.
    """
    kernels = load_kernels()
    if kernel != _COMPILED or kernels is None:
        reason = why_torch() or f"this installation has those of version {VERSION}"
        raise PreflightError(
            f"the plan has the kernel {kernel!r}, and {reason}. Or set kernel to torch, which gives scores with other "
            "last digits, and run again"
        )
    return kernels


def resolve_device(requested: str) -> str:
    """`cpu`, `cuda` or `cuda:N`; `auto` is CUDA where there is a device.

    Raises:
        ConfigError: it is none of these.
        PreflightError: this machine has no such CUDA device.
    """
    import torch

    if not re.fullmatch(DEVICE_PATTERN, requested):
        raise ConfigError(f"device must be {DEVICE_NAMES}, not {requested!r}")
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if requested != "cpu" and not torch.cuda.is_available():
        raise PreflightError(
            f"device is {requested}, and torch finds no CUDA device on this machine: set device to auto or cpu"
        )
    _, _, number = requested.partition(":")
    count = torch.cuda.device_count()
    if number and int(number) >= count:
        raise PreflightError(f"device is {requested}, and this machine has {count} CUDA devices, numbered from 0")
    return requested


def resolve_dtype(requested: str, device: str) -> str:
    """The dtype of the encoder; `auto` is the one that the device is fast at.

    On a CPU that is bfloat16 with AMX tiles, and on an AMD with AVX-512's bfloat16. Elsewhere float32 was faster, also
    on an Intel that has these instructions without AMX.

    Raises:
        PreflightError: the device does not compute in the requested dtype.
    """
    import torch

    if requested == "auto":
        if is_cuda(device):
            return "float16"
        has = torch.cpu.get_capabilities()
        on_amd = has.get("avx512_bf16", False) and has["cpu_name"].startswith("AMD")
        return "bfloat16" if on_amd or torch.cpu._is_amx_tile_supported() else "float32"
    if requested not in DTYPES:
        raise ConfigError(f"dtype must be auto or one of {', '.join(DTYPES)}, not {requested!r}")
    if requested == "bfloat16" and is_cuda(device) and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise PreflightError("dtype is bfloat16, and this GPU does not compute in it: set dtype to float16 or float32")
    return requested


def default_token_budget(device: str) -> int:
    """The default number of tokens of a batch."""
    return _GPU_TOKEN_BUDGET if is_cuda(device) else _CPU_TOKEN_BUDGET


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of torch, CUDA, cuBLAS, cuDNN or the CPU's allocators means that memory ran out."""
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or _OUT_OF_MEMORY.search(str(error)) is not None
