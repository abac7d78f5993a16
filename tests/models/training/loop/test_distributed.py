import pytest

from beamrank.errors import PreflightError
from models.training.loop.distributed import Processes, own_gpu


def test_processes_share_a_step_in_equal_parts_in_order():
    groups = list(range(12))
    parts = [groups[Processes(rank, 4).share(len(groups))] for rank in range(4)]
    assert parts == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_process_without_a_gpu_is_refused():
    assert own_gpu(1, 2) == 1
    with pytest.raises(PreflightError, match=r"process 3 of this machine has no GPU, .* --nproc-per-node 2"):
        own_gpu(2, 2)
