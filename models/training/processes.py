"""The processes of one training: a single one, or several started by torchrun, each with its share of a step."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

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

    def any(self, *flags: bool) -> list[bool]:
        """Whether each flag is set in any process."""
        if self.count == 1:
            return list(flags)
        found = torch.tensor(flags, dtype=torch.int32, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return [bool(each) for each in found.tolist()]

    def wait(self) -> None:
        """Waits for all processes."""
        if self.count > 1:
            dist.barrier()


@contextlib.contextmanager
def joined_processes(requested_device: str) -> Iterator[Processes]:
    """The processes that torchrun started, or only this one; left when the block ends.

    Raises:
        PreflightError: there is no CUDA device, or none for this process.
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
