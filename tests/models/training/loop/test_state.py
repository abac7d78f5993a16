from pathlib import Path

import pytest
import torch

from models.training.curves import Curves
from models.training.loop.distributed import Processes
from models.training.loop.optimizer import BertAdam
from models.training.loop.state import StateFolder, TrainState


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


def test_state_of_a_cpu_resumes_on_a_gpu(model, tmp_path):
    """As far as a machine without one can tell: there is nothing to restore of a GPU's random numbers."""
    optimizer = BertAdam(model.named_parameters(), 0.01)
    StateFolder(str(tmp_path), {}, Processes()).save(model, optimizer, TrainState(step=5))
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    with torch.no_grad():
        model.weight.zero_()
    StateFolder(str(tmp_path), {}, Processes(device="cuda")).restore(model, optimizer)
    assert all(torch.equal(weight, weights[name]) for name, weight in model.named_parameters())


@pytest.mark.parametrize("finished", [False, True])
def test_state_removes_leftovers_of_killed_processes(finished, model, tmp_path):
    for name in (".state-00000003.tmp", ".state-00000002.old", "state-00000002"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights.safetensors").touch()
    states = StateFolder(str(tmp_path), {}, Processes())
    if finished:
        states.finish(TrainState(step=5, finished=True))
    else:
        states.save(model, BertAdam(model.named_parameters(), 0.01), TrainState(step=5))
    assert [path.name for path in tmp_path.iterdir()] == ["state-00000005"]
    assert states.read().finished == finished


def test_curves_continue_an_empty_file(tmp_path: Path):
    (tmp_path / "curve.csv").touch()
    assert Curves(str(tmp_path), "RR@10", 5).steps == []
    assert (tmp_path / "curve.csv").read_text() == "step,loss,learning_rate\n"
