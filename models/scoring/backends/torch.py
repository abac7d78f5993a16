"""The backend that runs a model with torch, on a CPU or a CUDA device."""

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import numpy.typing as npt

from beamrank.errors import ConfigError, PreflightError
from beamrank.ranking.input_layout import Lengths, PaddedBatch
from models.checkpoints.check import Checkpoint, load_weights
from models.scoring.backends.protocol import Device, OutOfMemory

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("float32", "bfloat16", "float16")

_GPU_TOKEN_BUDGET = 1 << 16
# Products go by blocks of rows, so larger batches only need more memory; smaller ones have more rows of padding.
_CPU_TOKEN_BUDGET = 4096
_GPU_STREAMS = 2


class TorchBackend:
    """A `Backend` over torch."""

    digest_keys: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def resolve(cls, device: str, dtype: str) -> Device:
        resolved = resolve_device(device)
        return Device(resolved, resolve_dtype(dtype, resolved), default_token_budget(resolved))

    @classmethod
    def load(cls, checkpoint: Checkpoint, device: str, dtype: str, threads: int) -> Self:
        import torch

        found = cls.resolve(device, dtype)
        model = checkpoint.architecture.build(load_weights(checkpoint), getattr(torch, found.dtype))
        return cls(model, found.device, threads)

    def __init__(self, model: "torch.nn.Module", device: str, threads: int) -> None:
        from models.kernels.linear import pack_linears

        self._device = device
        self._model = model.to(device).eval()
        self._turn = Lock()
        self._block = pack_linears(model) if device == "cpu" else 0
        # On a GPU, one thread prepares a batch while the other waits for the scores of the one before.
        self.streams = threads if device == "cpu" else _GPU_STREAMS

    def start_thread(self) -> None:
        """Gives a batch one thread of torch: threads that share a batch wait for each other at every operation."""
        import torch

        # torch keeps the number of its own threads for each thread that calls it.
        torch.set_num_threads(1)

    def computed_tokens(self, lengths: Lengths) -> int:
        tokens = int(lengths.sum())
        return tokens + (-tokens % self._block if self._block else 0)

    def forward(self, batch: PaddedBatch) -> npt.NDArray[np.float32]:
        import torch

        try:
            if self._device == "cpu":
                return self._launch(batch).numpy()
            # Only one batch's activations are in the GPU's memory.
            with self._turn:
                log_odds = self._launch(batch)
            return log_odds.cpu().numpy()
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
        torch.cuda.empty_cache()
        raise OutOfMemory

    def _launch(self, batch: PaddedBatch) -> "torch.Tensor":
        import torch

        from models.kernels.token_rows import TokenRows

        is_token = np.arange(batch.token_ids.shape[1]) < batch.lengths[:, None]
        ids, types = (torch.from_numpy(each[is_token]) for each in (batch.token_ids, batch.token_types))
        with torch.inference_mode():
            rows = TokenRows(ids.to(self._device), types.to(self._device), batch.lengths.tolist(), self._block)
            log_odds: torch.Tensor = self._model(rows)
        return log_odds


def resolve_device(requested: str) -> str:
    """`cuda` or `cpu`; `auto` is CUDA where there is a device.

    Raises:
        ConfigError: it is not one of the three.
        PreflightError: this machine has no CUDA device.
    """
    import torch

    if requested not in DEVICES:
        raise ConfigError(f"device must be one of {', '.join(DEVICES)}, not {requested!r}")
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if requested == "cuda" and not torch.cuda.is_available():
        raise PreflightError(
            "device is cuda, and torch finds no CUDA device on this machine: set device to auto or cpu"
        )
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
        if device == "cuda":
            return "float16"
        has = torch.cpu.get_capabilities()
        on_amd = has.get("avx512_bf16", False) and has["cpu_name"].startswith("AMD")
        return "bfloat16" if on_amd or torch.cpu._is_amx_tile_supported() else "float32"
    if requested not in DTYPES:
        raise ConfigError(f"dtype must be auto or one of {', '.join(DTYPES)}, not {requested!r}")
    if requested == "bfloat16" and device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise PreflightError("dtype is bfloat16, and this GPU does not compute in it: set dtype to float16 or float32")
    return requested


def default_token_budget(device: str) -> int:
    """The default number of tokens of a batch."""
    return _GPU_TOKEN_BUDGET if device == "cuda" else _CPU_TOKEN_BUDGET


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
