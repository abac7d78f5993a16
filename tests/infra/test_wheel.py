import os
import platform
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

from tests import ROOT


def test_wheel_ships_no_experiments_benchmarks_or_tests(monkeypatch):
    given: dict[str, list[str]] = {}
    monkeypatch.setattr("setuptools.setup", given.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    assert {package.split(".")[0] for package in given["packages"]} == {
        "beamrank",
        "models",
        "transforms",
        "pipelines",
        "contrib",
    }


@pytest.mark.slow
def test_every_entry_point_loads_from_the_wheel(tmp_path):
    # A build writes into its source, where its metadata would hide what is installed.
    source = tmp_path / "source"
    for name in ("beamrank", "models", "transforms", "pipelines", "contrib"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    if shutil.which("g++") and platform.machine() == "x86_64":
        assert list(tmp_path.glob("installed/models/architectures/kernels/_attention.*.so"))
    code = (
        "from importlib.metadata import distribution\n"
        "for each in distribution('beamrank').entry_points:\n"
        "    assert each.load() is not None\n"
        "    print(each.value)"
    )
    environ = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environ, cwd=tmp_path, timeout=120, check=True
    )
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = (declared["scripts"], *declared["entry-points"].values())
    assert sorted(done.stdout.split()) == sorted(target for group in groups for target in group.values())
