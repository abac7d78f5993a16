"""The inference backends: their protocol, their names, and which one and which kernel compute a
model.
"""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from beamrank.errors import ConfigError
from beamrank.machine import is_cuda
from beamrank.plugins import Registry
from beamrank.ranking.input_layout import Lengths, PaddedBatch
from models.architectures.encoder.family import EncoderClassifier
from models.architectures.kernels.compiled import VERSION, load_kernels
from models.architectures.protocol import Architecture
from models.checkpoints.checkpoint import Checkpoint
from models.scoring.packing import Rows

AUTO, TORCH, COMPILED = "auto", "torch", f"compiled {VERSION}"
_GPU_TOKEN_BUDGET = 1 << 16
# Of models that do not take blocks of rows.
_CPU_TOKEN_BUDGET = 4096


class Device(NamedTuple):
    """The device and dtype of a model, and the default number of tokens of a batch there; what a
    user should know about the choice.
    """

    device: str
    dtype: str
    token_budget: int
    warning: str | None = None


class OutOfMemory(Exception):
    """A batch does not fit in memory; the engine cuts it in two."""


class Backend(Protocol):
    """A model that is loaded on a device of this process.

    Attributes:
        digest_keys: other settings that decide a score; they enter its digest beside the name,
            device and dtype.
        streams: how many batches are worked on at a time, a thread each.
    """

    digest_keys: ClassVar[Mapping[str, str]]
    streams: int

    @classmethod
    def resolve(cls, device: str, dtype: str) -> Device:
        """The device and dtype that `auto` means on this machine; ConfigError or PreflightError for
        one it lacks.
        """

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, device: str, dtype: str, threads: int, kernel: str
    ) -> Self:
        """Loads a checkpoint on a device, its layers in the dtype; a CPU backend may use so many
        cores.

        `kernel` is `torch`; for the backend torch also what `choose_kernel` found. Raises
        PreflightError where this machine cannot honour the device or the dtype.
        """

    def start_thread(self) -> None:
        """Prepares a thread that is going to call `forward`."""

    def batches(self, lengths: Lengths, token_budget: int) -> list[Rows]:
        """Cuts inputs into batches of so many tokens for `forward`; `models.scoring.packing` has
        ways to do so.

        `lengths` are int64[n, m], tokens of the m parts of each input, of which all but chunked
        models have one. Every input is in one of the batches.
        """

    def computed_tokens(self, lengths: Lengths) -> int:
        """How many tokens `forward` computes for a batch of inputs of these lengths, padding
        included.
        """

    def forward(self, batch: PaddedBatch) -> npt.NDArray[np.float32]:
        """Log-odds, float32[b], of b inputs whose parts stand side by side. The bits must not
        depend on other threads.

        Raises OutOfMemory where the batch does not fit.
        """


BACKENDS: Registry[type[Backend]] = Registry(
    "backend", "beamrank.backends", {TORCH: "models.scoring.backends.torch:TorchBackend"}
)


def find_backend(name: str) -> type[Backend]:
    """The backend of a name, which can be `auto`."""
    backend = resolve_backend(name)
    if backend not in BACKENDS:
        raise ConfigError(
            f"backend must be one of {', '.join(sorted((AUTO, *BACKENDS)))}, not {name!r}"
        )
    return BACKENDS[backend]


def resolve_backend(name: str) -> str:
    """The name of a configured backend: `auto` is torch, which was the faster one wherever both
    were measured.
    """
    return TORCH if name == AUTO else name


def default_token_budget(device: str) -> int:
    """The default number of tokens of a batch of torch's."""
    return _GPU_TOKEN_BUDGET if is_cuda(device) else _CPU_TOKEN_BUDGET


def choose_kernel(requested: str, architecture: Architecture, backend: str, device: Device) -> str:
    """The kernel of attention: `torch`, or `compiled N`, the version of the compiled kernels, whose
    bits differ.

    `auto` is compiled where this installation has kernels that are faster for the model.
    """
    if requested == TORCH or (backend, device.device) != (TORCH, "cpu"):
        return TORCH
    if not isinstance(architecture, EncoderClassifier):
        return TORCH
    if requested == "compiled":
        return COMPILED
    shape, kernels = architecture.shape, load_kernels()
    takes = kernels is not None and kernels.takes(device.dtype, shape.hidden // shape.heads)
    return COMPILED if takes else TORCH
