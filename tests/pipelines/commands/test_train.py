"""`beamrank train` as a user runs it."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from beamrank.errors import BeamrankError, ConfigError, PreflightError
from beamrank.evaluation.evaluate import evaluate
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from models.checkpoints.checkpoint import resolve_checkpoint
from models.training.config import FoldsConfig
from pipelines.cli import app
from tests.support.processes import BEAMRANK
from tests.support.training import save_start, write_train_config


@pytest.fixture
def config(tmp_path):
    return write_train_config(
        tmp_path, save_start(tmp_path / "start"), card={"licence": "cc-by-4.0", "data": ["Ours"]}
    )


def curve(output):
    return (output / "training/curve.csv").read_text()


def train(*arguments):
    """The command in this process; an error of ours is raised."""
    return CliRunner().invoke(
        app, ["train", *map(str, arguments)], catch_exceptions=False, env={"COLUMNS": "120"}
    )


def test_train_dry_run_prints_the_plan_and_writes_nothing(config):
    plan = json.loads(
        train("duo", config, "--dry-run", "--json", "--set", "optimizer.batch_size=8").stdout
    )
    assert (plan["kind"], plan["groups"], plan["steps"], plan["batch_size"]) == ("duo", 10, 40, 8)
    assert plan["seconds"] > 0
    assert "pointwise x 1" in train("mono", config, "--dry-run").stdout
    assert not (config.parent / "out").exists()


def test_train_names_the_extra_that_it_needs(config, monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(PreflightError, match=r"'\.\[train\]'"):
        train("mono", config)


def test_train_writes_a_checkpoint_with_a_card(config):
    done = train("mono", config)
    assert (done.exit_code, done.stdout) == (0, "")
    output = config.parent / "out"
    assert resolve_checkpoint(str(output), "mono").architecture.num_labels == 2
    card = (output / "README.md").read_text()
    assert "license: cc-by-4.0" in card
    assert "- Ours\n" in card
    assert "| steps | 40 of 4 inputs |" in card
    assert "(40 steps)" in train("mono", config).stderr
    (output / "README.md").unlink()
    assert "(40 steps)" in train("mono", config).stderr
    assert "| steps | 40 of 4 inputs |" in (output / "README.md").read_text()


def interrupt(command, number, output, rows):
    """Runs a training until its curve has more than so many rows, and interrupts it."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 100
        while not (output / "training/curve.csv").exists() or curve(output).count("\n") <= rows:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 128 + number
    assert "run the same command again to resume" in errors
    assert not (output / "model.safetensors").exists()


@pytest.mark.parametrize(
    "signals",
    [[signal.SIGTERM], pytest.param([signal.SIGINT, signal.SIGTERM], marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_train_resumes_to_the_same_weights(config, tmp_path, signals):
    long = ["--set", "optimizer.steps=300"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    command = [BEAMRANK, "train", "mono", str(config), *long, "--output", str(parts)]
    rows = 5
    for number in signals:
        interrupt(command, number, parts, rows)
        rows = curve(parts).count("\n") + 5
    for output in (parts, whole):
        assert train("mono", config, *long, "--output", output).exit_code == 0
    assert curve(parts) == curve(whole)
    assert (parts / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_train_with_two_processes_gives_the_same_weights(config, tmp_path):
    """Without dropout the mean of two halves' gradients is the whole's."""
    plain = ["--set", "optimizer.dropout=0", "--set", "optimizer.steps=8"]
    one, two = tmp_path / "one", tmp_path / "two"
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--no-python",
        BEAMRANK,
    ]
    command = [*torchrun, "train", "mono", str(config), *plain, "--output", str(two)]
    together = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert together.returncode == 0, together.stderr
    assert together.stderr.count(f"wrote {two}") == 1
    train("mono", config, *plain, "--output", one)
    weights = load_file(one / "model.safetensors")
    for name, weight in load_file(two / "model.safetensors").items():
        assert (weight - weights[name]).abs().max() < 2e-5, name
    with pytest.raises(ConfigError, match=r"processes: 2 .* 1 "):
        train("mono", config, *plain, "--output", two)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--json",), 2, "--dry-run"),
        (("--set", "optimizer.stepps=3"), 2, r"optimizer\.stepps: .* steps\?"),
        (("--set", "start=nowhere"), 3, "nowhere"),
        (("--set", "data.min_relevance=3"), 3, "positives: 10 of 10"),
        (("--set", "optimizer.learning_rate=1e38"), 2, r"optimizer\.learning_rate: .* 1 "),
    ],
)
def test_train_errors_have_their_exit_codes(arguments, code, message, config):
    with pytest.raises(BeamrankError, match=message) as error:
        train("mono", config, *arguments)
    assert error.value.exit_code == code


def test_train_fails_where_the_loss_is_not_finite(config, tmp_path):
    path = f"{save_start(tmp_path / 'broken')}/model.safetensors"
    weights = load_file(path)
    save_file(
        {name: weight.fill_(float("inf")) for name, weight in weights.items()},
        path,
        {"format": "pt"},
    )
    with pytest.raises(BeamrankError, match=r"loss .* nan .* 1") as error:
        train("mono", config, "--set", f"start={tmp_path / 'broken'}")
    assert error.value.exit_code == 1


@pytest.mark.slow
def test_train_folds_measures_every_topic_with_a_model_that_did_not_see_it(config):
    keys = yaml.safe_load(config.read_text())
    dev = {name: keys["data"][name] for name in ("topics", "qrels", "run")}
    keys |= {
        "dev": {**dev, "k": 3, "measure": "RR@10", "every_steps": 1},
        "optimizer": keys["optimizer"] | {"steps": 3},
    }
    config.write_text(yaml.safe_dump(keys))
    done = train("mono", config, "--folds", "3")
    assert done.exit_code == 0
    output = config.parent / "out"
    header, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert header == ["topics", "count", "RR@10", "P@1", "AP", "RR"]
    assert [row[0] for row in rows] == [
        f"{name}, {kind}"
        for name in ("fold 0", "fold 1", "fold 2", "all")
        for kind in ("reranked", "given")
    ]
    relevance = read_qrels(str(config.parent / keys["data"]["qrels"])).relevance
    pooled = read_run(str(output / "pooled.trec"))
    assert pooled.order.keys() == relevance.keys()
    for kind, place in (("reranked", 0), ("given", 1)):
        counts, values = zip(*((int(row[1]), float(row[2])) for row in rows[place::2]), strict=True)
        assert sum(counts[:3]) == counts[3] == len(relevance)
        mean = (
            sum(count * value for count, value in zip(counts[:3], values[:3], strict=True))
            / counts[3]
        )
        assert values[3] == pytest.approx(mean), kind
    by_hand = evaluate(
        pooled.order.items(), read_qrels(str(config.parent / keys["data"]["qrels"])), ["RR@10"]
    )
    assert float(rows[6][2]) == pytest.approx(by_hand.means["RR@10"])
    for number in range(3):
        folds = FoldsConfig(count=3, held_out=number)
        held_out = read_run(str(output / f"fold-{number}/held-out.trec"))
        assert held_out.order.keys() == {each for each in relevance if folds.holds_out(each)}
        # The fold is measured once, after the last step.
        assert (output / f"fold-{number}/training/dev.csv").read_text().count("\n") == 3

    before = (
        (output / "pooled.trec").read_bytes(),
        (output / "fold-0/model.safetensors").stat().st_mtime_ns,
    )
    shutil.rmtree(output / "fold-2")
    again = train("mono", config, "--folds", "3")
    assert again.stdout == done.stdout
    assert again.stderr.count("is already trained (3 steps)") == 2
    after = (
        (output / "pooled.trec").read_bytes(),
        (output / "fold-0/model.safetensors").stat().st_mtime_ns,
    )
    assert after == before
    with pytest.raises(ConfigError, match="folds"):
        train("mono", config, "--folds", "2")
    plan = json.loads(train("mono", config, "--folds", "3", "--dry-run", "--json").stdout)
    assert plan["steps"] == 3
