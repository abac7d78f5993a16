"""The protocol of an inference backend."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from beamrank.ranking.input_layout import Lengths, PaddedBatch
from models.checkpoints.checkpoint import Checkpoint
from models.scoring.batching import Rows


class Device(NamedTuple):
    """The device and dtype of a model, and the default number of tokens of a batch there."""

    device: str
    dtype: str
    token_budget: int


class OutOfMemory(Exception):
    """A batch does not fit in memory; the engine cuts it in two."""


class Backend(Protocol):
    """A model that is loaded on a device of this process.

    Attributes:
        digest_keys: other settings that decide a score; they enter its digest beside the name, device and dtype.
        streams: how many batches are worked on at a time, a thread each.
    """

    digest_keys: ClassVar[Mapping[str, str]]
    streams: int

    @classmethod
    def resolve(cls, device: str, dtype: str) -> Device:
        """The device and dtype that `auto` means on this machine.

        Raises:
            ConfigError: the device or dtype is unknown.
            PreflightError: this machine does not have it.
        """

    @classmethod
    def load(cls, checkpoint: Checkpoint, device: str, dtype: str, threads: int, kernel: str) -> Self:
        """Loads a checkpoint.

        Args:
            checkpoint: the model.
            device: where it runs.
            dtype: of its layers.
            threads: how many cores a CPU backend may use.
            kernel: `torch`; for the backend torch also what `choose_kernel` found.

        Raises:
            PreflightError: this machine cannot honour the device or the dtype.
        """

    def start_thread(self) -> None:
        """Prepares a thread that is going to call `forward`."""

    def batches(self, lengths: Lengths, token_budget: int) -> list[Rows]:
        """Cuts inputs into batches for `forward`; `models.scoring.batching` has ways to do so.

        Args:
            lengths: int64[n, m], tokens of the m parts of each input, of which all but chunked models have one.
            token_budget: how many tokens a batch may have.

        Returns:
            The inputs of each batch; every input is in one of them.
        """

    def computed_tokens(self, lengths: Lengths) -> int:
        """How many tokens `forward` computes for a batch of inputs of these lengths, padding included."""

    def forward(self, batch: PaddedBatch) -> npt.NDArray[np.float32]:
        """Log-odds, float32[b], of b inputs whose parts stand side by side. The bits must not depend on other threads.

        Raises:
            OutOfMemory: the batch does not fit.
        """
