"""`beamrank doctor`: the table of this machine's checks; a checkpoint's findings as text and as
JSON.
"""

import json
import re

import pytest
import torch

from beamrank.errors import PreflightError
from beamrank.version import __version__
from contrib.doctor import command
from models.lucene.index import LUCENE
from tests.support.checkpoints import save_tiny
from tests.support.processes import beamrank_here, refused, succeed


def test_doctor_fits_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "12")
    monkeypatch.setattr(
        command, "CHECKS", {"embedded checkpoints": lambda: "12,345.6 of 23,456.7 GiB are free"}
    )
    command.doctor()
    shown = capsys.readouterr().out
    assert "embedded checkpoints" in shown
    assert "12,345.6 of 23,456.7 GiB are free" in shown


@pytest.mark.jvm
def test_checks_of_the_machine_are_json(monkeypatch):
    names = ("beamrank", "libraries", "Java 21 or later", "Lucene")
    monkeypatch.setattr(command, "CHECKS", {name: command.CHECKS[name] for name in names})
    checks = {
        check["check"]: check for check in json.loads(succeed("doctor", "--json").stdout)["checks"]
    }
    assert [check["state"] for check in checks.values()] == ["ok"] * 4
    assert checks["beamrank"]["found"] == __version__
    assert f"torch {torch.__version__.partition('+')[0]}" in checks["libraries"]["found"]
    assert re.fullmatch(
        rf"{LUCENE}\.\d+\.\d+ in anserini-.+-fatjar\.jar", checks["Lucene"]["found"]
    )


def test_check_of_the_machine_that_fails_is_named(monkeypatch):
    def fail() -> str:
        raise PreflightError("no Java")

    monkeypatch.setattr(command, "CHECKS", {"beamrank": lambda: "1", "Java": fail})
    done = beamrank_here("doctor", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["checks"][1] == {
        "check": "Java",
        "state": "MISSING",
        "found": "no Java",
    }
    assert "check failed: Java" in done.stderr


def test_gpu_that_torch_cannot_use_is_a_failed_check(monkeypatch):
    reason = "torch cannot use NVIDIA L4: the driver is too old (found version 12040)"
    monkeypatch.setattr(command, "CHECKS", {"GPUs": command.CHECKS["GPUs"]})
    assert json.loads(succeed("doctor", "--json").stdout)["checks"][0]["state"] == "ok"
    monkeypatch.setattr("models.scoring.backends.torch.why_not_used", lambda: reason)
    done = beamrank_here("doctor")
    assert done.returncode == 3
    assert "found version 12040" in " ".join(done.stdout.split())


def test_checkpoint_that_was_never_trained_to_rank_ends_with_exit_code_1(tmp_path):
    folder = save_tiny(tmp_path / "random", None, num_labels=1)
    done = beamrank_here("doctor", "--checkpoint", folder, "--json")
    assert done.returncode == 1
    assert f"{folder} does not rank" in done.stderr
    result = json.loads(done.stdout)
    assert (result["checkpoint"], result["kind"]) == (folder, "mono")
    checks = {check["check"]: check for check in result["checks"]}
    assert "its head was never trained to rank" in checks["answers"]["found"]
    assert [name for name, check in checks.items() if check["state"] == "WRONG"] == ["answers"]
    assert checks["transformers"]["largest_difference"] < 1e-3
    assert checks["special tokens"]["input"] == "[CLS] query [SEP] doc [SEP]"
    assert checks["neighbours"]["changed"] == 0
    assert {"bfloat16", "float16"} < checks.keys()


def test_doctor_refuses_what_cannot_be_checked(tmp_path):
    assert "--kind" in refused("doctor", "--kind", "duo", code=2)
    assert "--kind 'both'" in refused("doctor", "--kind", "both", code=2)
    refused("doctor", "--checkpoint", tmp_path / "missing", code=3)
