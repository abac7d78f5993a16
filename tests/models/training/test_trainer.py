"""BERT's Adam and learning rate, states on disk, and the shares of processes."""

import math
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from beamrank.errors import BeamrankError, PreflightError
from beamrank.notes import SILENT
from models.training.report_section import TrainingRecord, begin_curves, read_training
from models.training.session import join_processes
from models.training.states import StateFolder, TrainState
from models.training.trainer import BertAdam, _Trainer, learning_rate_at, micro_batches, train
from tests.support.training import make_session, save_start, write_train_config


def parameter(value: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor([value], dtype=torch.float64))


def step(optimizer: BertAdam, weight: nn.Parameter, gradient: float) -> None:
    weight.grad = torch.tensor([gradient], dtype=torch.float64)
    optimizer.step()


@pytest.mark.parametrize("restored", [False, True])
def test_bert_adam_two_steps_by_hand(restored):
    weight = parameter(2.0)
    optimizer = BertAdam([("encoder.weight", weight)], 0.1, weight_decay=0.01)
    value, first, second = 2.0, 0.0, 0.0
    for gradient, rate in ((0.5, 0.1), (-3.0, 0.05)):
        optimizer.param_groups[0]["lr"] = rate
        step(optimizer, weight, gradient)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        value -= rate * (first / (math.sqrt(second) + 1e-6) + 0.01 * value)
        assert weight.item() == pytest.approx(value, rel=1e-12)
        if restored:
            state, optimizer = (
                optimizer.state_dict(),
                BertAdam([("encoder.weight", weight)], 0.1, 0.01),
            )
            optimizer.load_state_dict(state)


@pytest.mark.parametrize("name", ["dense.bias", "output.LayerNorm.weight", "output.LayerNorm.bias"])
def test_bert_adam_does_not_decay_biases_and_layer_norm(name):
    spared, decayed, frozen = parameter(1.0), parameter(1.0), parameter(1.0)
    frozen.requires_grad = False
    optimizer = BertAdam(
        [(name, spared), ("dense.weight", decayed), ("words", frozen)], 0.1, weight_decay=0.01
    )
    spared.grad = torch.zeros(1, dtype=torch.float64)
    step(optimizer, decayed, 0.0)
    assert (spared.item(), frozen.item()) == (1.0, 1.0)
    assert decayed.item() == pytest.approx(1 - 0.1 * 0.01)


def test_learning_rate_warms_up_and_decays_as_in_bert():
    rates = [learning_rate_at(number, 3e-6, 10, 100) for number in range(100)]
    assert rates[0] == 0
    assert rates[5] == pytest.approx(1.5e-6)
    assert rates[10] == pytest.approx(3e-6 * 0.9)
    assert rates[99] == pytest.approx(3e-8)
    assert learning_rate_at(0, 1.0, 0, 10) == 1.0


@pytest.mark.parametrize("finished", [False, True])
def test_state_is_complete_with_its_document_and_the_only_one(finished, tmp_path):
    for name in ("checkpoint-2", "checkpoint-10", *(() if finished else ("checkpoint-5",))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
    (tmp_path / "training_args.bin").touch()
    states = StateFolder(tmp_path, {"seed": 1})
    assert (states.newest(), states.read()) == (None, TrainState())
    states.complete(TrainState(step=5, finished=finished))
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-5"]
    assert states.read().finished == finished
    (tmp_path / "checkpoint-5" / "optimizer.pt").touch()
    with pytest.raises(PreflightError, match=r"checkpoint-5/optimizer\.pt .*added"):
        states.read()


def test_curves_continue_an_empty_file(tmp_path: Path):
    (tmp_path / "training").mkdir()
    (tmp_path / "training/curve.csv").touch()
    begin_curves(str(tmp_path), TrainingRecord("mono", 10, 2, "RR@10"), 5)
    assert (tmp_path / "training/curve.csv").read_text() == "step,loss,learning_rate\n"
    assert read_training(str(tmp_path)).steps == []


def test_processes_share_a_step_in_equal_parts_in_order(tmp_path):
    config = write_train_config(tmp_path, save_start(tmp_path / "start"))
    options = ["optimizer.batch_size=8", "optimizer.accumulation=2"]
    session = make_session(config, "mono", options, dry_run=True)

    def batches(rank: int, count: int) -> list[torch.Tensor]:
        session.before.position = 0
        session.processes = SimpleNamespace(process_index=rank, num_processes=count)
        return [batch["batches"][0]["input_ids"] for batch in islice(micro_batches(session), 4)]

    (one, other, *_), first, second = batches(0, 1), batches(0, 2), batches(1, 2)
    assert torch.cat([*first[:2], *second[:2]]).sum() == torch.cat([one, other]).sum()
    assert not torch.equal(first[0], second[0])


def test_out_of_memory_names_the_options_that_help(tmp_path, monkeypatch):
    config = write_train_config(tmp_path, save_start(tmp_path / "start"))

    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(_Trainer, "train", fail)
    with pytest.raises(BeamrankError, match=r" cpu: .*optimizer\.accumulation .* 1, "):
        train(make_session(config, "mono"), lambda: False, SILENT, "")


def test_process_without_a_gpu_is_refused(monkeypatch):
    monkeypatch.setattr("models.training.session.resolve_device", lambda _: "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(PreflightError, match=r"process 3 .*--nproc-per-node 2"):
        join_processes("auto")
