"""The core without its plugins: a copy of the project without contrib/ and its entry points."""

import os
import shutil
import subprocess
import sys
import tomllib

import pytest

from tests import ROOT

_ROOTS = ("beamrank", "models", "transforms", "pipelines", "benchmarks", "configs", "tests")
_CASCADE = (
    "tests/pipelines/runs/test_cascade.py",
    "tests/pipelines/runs/test_given_run.py",
    "tests/transforms",
)
_COMMANDS = """
import sys
from importlib.metadata import entry_points
from pathlib import Path

from tests.support.processes import beamrank_here
from tests.support.small_collection import small_cascade

assert not entry_points(group="beamrank.commands")
folder = Path.cwd() / "collection"
folder.mkdir()
collection = small_cascade(folder)
output, qrels = collection.output, collection.folder / "qrels.txt"
runs = [output / "runs" / f"{name}.trec" for name in ("mono", "duo-sum")]
for command in (
    ["run", collection.path],
    ["status", output],
    ["verify", output],
    ["gc", output, "--yes"],
    ["report", output, "--trials", "1"],
    ["eval", runs[0], "--qrels", qrels],
    ["compare", *runs, "--qrels", qrels],
    ["aggregate", output, "--aggregation", "min"],
    ["plan", collection.path],
):
    done = beamrank_here(*command)
    assert done.returncode == 0, (command, done.stderr)
    assert "contrib" not in done.stderr, done.stderr
assert not [name for name in sys.modules if name.partition(".")[0] == "contrib"]
for name in ("runs/duo-min.trec", "report/report.html", "runs/measures.json"):
    assert (output / name).stat().st_size
print("done")
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("core")
    for name in _ROOTS:
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "contrib")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    # What an installation of the whole project would bring is hidden.
    (folder / "contrib.py").write_text("raise ImportError('the core imports a plugin')\n")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = []
    for group, entries in groups.items():
        own = (each for each in entries.items() if not each[1].startswith("contrib."))
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in own)]
    info = folder / "beamrank-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: beamrank\nVersion: 0\n")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def _run(folder, *command):
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        timeout=500,
    )


@pytest.mark.slow
def test_commands_run_without_plugins(copied):
    done = _run(copied, "-c", _COMMANDS)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.jvm
def test_cascade_runs_without_plugins(copied):
    done = _run(copied, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *_CASCADE)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
