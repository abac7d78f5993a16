"""A model on a CUDA device, and the devices of a process."""

import os
from collections.abc import Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from beamrank.machine import WORKER_NUMBER
from models.architectures.kernels.attention import supports_varlen
from models.architectures.kernels.token_rows import TokenRows


def cuda_devices(requested: str, count: int, worker: str | None) -> list[str]:
    """The devices of one process.

    Args:
        requested: `cuda`, or `cuda:N` for one of them.
        count: how many the process sees.
        worker: its number among the worker processes of this machine; None if it is the only one.

    Returns:
        One device for each of several processes, in turn; all of them for a process that is alone.
    """
    if requested != "cuda":
        return [requested]
    if worker is None:
        return [f"cuda:{number}" for number in range(count)]
    return [f"cuda:{int(worker) % count}"]


def devices_here(requested: str) -> Sequence[str]:
    """The devices of this process."""
    return cuda_devices(requested, torch.cuda.device_count(), os.environ.get(WORKER_NUMBER))


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
