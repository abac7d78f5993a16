"""The core without its plugins: a copy of the project without contrib/."""

import os
import shutil
import subprocess
import sys

import pytest

from tests import ROOT

_ROOTS = ("beamrank", "models", "transforms", "pipelines", "benchmarks", "configs", "tests")
_CASCADE = (
    "tests/pipelines/runs/test_cascade.py",
    "tests/pipelines/runs/test_given_run.py",
    "tests/transforms",
)


@pytest.mark.slow
@pytest.mark.jvm
def test_cascade_runs_without_plugins(tmp_path):
    for name in _ROOTS:
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "contrib")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    # What an installation of the whole project would bring is hidden.
    (tmp_path / "contrib.py").write_text("raise ImportError('the core imports a plugin')\n")
    options = ["-q", "-p", "no:cacheprovider", "-m", "not slow"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *_CASCADE],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
