"""The processes of one training: a single one, or several started by torchrun, each with its share of a step."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from beamrank.errors import PreflightError
from models.scoring.backends.torch import resolve_device

# The other processes wait while the first measures the dev run.
_TIMEOUT = timedelta(hours=6)


@dataclass(frozen=True)
class Processes:
    """This process among all: its number from 0, how many there are, and the device of its model."""

    rank: int = 0
    count: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self.rank == 0

    def share(self, groups: int) -> slice:
        """This process's equal part of a step's groups, in the order of a single process."""
        part = groups // self.count
        return slice(self.rank * part, (self.rank + 1) * part)

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replaces each process's gradients by the sum over all."""
        if self.count == 1:
            return
        gradients = [each.grad for each in parameters if each.grad is not None]
        together = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(together)
        sums = torch.split(together, [each.numel() for each in gradients])
        for gradient, total in zip(gradients, sums, strict=True):
            gradient.copy_(total.view_as(gradient))

    def sum(self, values: Tensor) -> Tensor:
        """The sum of a small tensor over all processes."""
        if self.count > 1:
            values = values.to(self.device)
            dist.all_reduce(values)
        return values.cpu()

    def wait(self) -> None:
        """Waits for all processes."""
        if self.count > 1:
            dist.barrier()


@contextlib.contextmanager
def joined_processes(requested_device: str) -> Iterator[Processes]:
    """Joins the processes of torchrun, by its environment variables; without these, this is the only process.

    Raises:
        PreflightError: this machine has no CUDA device, or fewer devices than processes.
    """
    device = resolve_device(requested_device)
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes(device=device)
        return
    if device == "cuda":
        torch.cuda.set_device(own_gpu(int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()))
    dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=_TIMEOUT)
    yield Processes(dist.get_rank(), count, device)
    # Not after an error: other processes may be waiting for this one, and torchrun ends them.
    dist.destroy_process_group()


def own_gpu(local_rank: int, gpus: int) -> int:
    """The GPU of this machine's process number `local_rank`, from 0; PreflightError if there is none."""
    if local_rank >= gpus:
        raise PreflightError(
            f"process {local_rank + 1} of this machine has no GPU, because there are {gpus}: give torchrun "
            f"--nproc-per-node {gpus}"
        )
    return local_rank
