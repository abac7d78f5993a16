"""Every reader on changed inputs, and on those that Atheris chooses: what it takes it takes whole,
or it refuses.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.storage import digested
from benchmarks.fuzz.inputs import mutate, pick_from
from benchmarks.fuzz.targets import TARGETS
from benchmarks.fuzz.watch import attempt, prepare
from tests import ROOT
from tests.support.services.environments import atheris_packages, environ
from tests.support.tiers import slow_but


@pytest.mark.parametrize("examples", slow_but(1, [12, 100]))
@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_changed_input_is_read_whole_or_refused(target, examples, tmp_path, monkeypatch):
    # A file that was just written would be waited for.
    monkeypatch.setattr(digested, "_TICK_NANOSECONDS", 0)
    prepared = prepare(target, tmp_path / "files")
    assert all(attempt(prepared, seed) for seed in prepared.seeds)

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
    )
    @given(st.sampled_from(prepared.seeds), st.binary(min_size=96, max_size=96))
    def check(seed, drawn):
        attempt(prepared, mutate(seed, target.codec, pick_from(drawn)))

    check()


def _fuzz(module: str, *arguments: object, **variables: str) -> str:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=environ(**variables), capture_output=True, text=True, timeout=550
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout


def _read(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.mark.slow
def test_guided_inputs_are_read_whole_or_refused(tmp_path):
    paths = (tmp_path / "counts", tmp_path / "kept")
    _fuzz("benchmarks.fuzz.guided", 120, *paths, PYTHONPATH=str(atheris_packages()))
    counts = _read(paths[0])
    assert sum(each["inputs"] for each in counts.values()) > 1000
    assert {name: each["found"] for name, each in counts.items() if each["found"]} == {}


@pytest.mark.slow
def test_campaign_adds_to_its_table(tmp_path):
    arguments = (
        "--targets",
        "qrels",
        "--seconds",
        1,
        "--results",
        tmp_path / "counts",
        "--kept",
        tmp_path,
    )
    lines = [_fuzz("benchmarks.fuzz", *arguments) for _ in range(2)]
    counts = _read(tmp_path / "counts")["qrels"]
    assert counts["inputs"] == sum(int(line.split()[1].replace(",", "")) for line in lines) > 100
