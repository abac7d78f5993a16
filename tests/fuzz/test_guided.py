"""Every reader on inputs that Atheris chooses by coverage, and the campaign of one target."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.services.environments import atheris_packages, environ

pytestmark = pytest.mark.slow


def _fuzz(module: str, *arguments: object, **variables: str) -> str:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environ(**variables), capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout


def _read(path: Path) -> dict:
    return json.loads(path.read_text())


def test_guided_inputs_are_read_whole_or_refused(tmp_path):
    paths = (tmp_path / "counts", tmp_path / "kept")
    _fuzz("benchmarks.fuzz.guided", 120, *paths, PYTHONPATH=str(atheris_packages()))
    counts = _read(paths[0])
    assert sum(each["inputs"] for each in counts.values()) > 1000
    assert {name: each["found"] for name, each in counts.items() if each["found"]} == {}


def test_campaign_adds_to_its_table(tmp_path):
    arguments = ("--targets", "qrels", "--seconds", 1, "--results", tmp_path / "counts", "--kept", tmp_path)
    lines = [_fuzz("benchmarks.fuzz", *arguments) for _ in range(2)]
    counts = _read(tmp_path / "counts")["qrels"]
    assert counts["inputs"] == sum(int(line.split()[1].replace(",", "")) for line in lines) > 100
