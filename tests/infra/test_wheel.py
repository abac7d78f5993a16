import json
import os
import platform
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from beamrank.version import __version__
from tests import ROOT
from tests.support.services.environments import environ


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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that `python -m build` makes, by way of the source distribution."""
    folder = tmp_path_factory.mktemp("build")
    # A build writes into its source, where its metadata would hide what is installed.
    source = folder / "source"
    for name in ("beamrank", "models", "transforms", "pipelines", "contrib"):
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (found,) = folder.glob("*.whl")
    assert found.name.startswith(f"beamrank-{__version__}-")
    return found


@pytest.mark.slow
def test_every_entry_point_loads_from_the_wheel(wheel, tmp_path):
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
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environ,
        cwd=tmp_path,
        timeout=300,
        check=True,
    )
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = (declared["scripts"], *declared["entry-points"].values())
    assert sorted(done.stdout.split()) == sorted(
        target for group in groups for target in group.values()
    )


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The programs of an environment with the wheel, the package of examples/plugin and pytest."""
    folder = tmp_path_factory.mktemp("installed")
    lock = f"python{sys.version_info.major}.{sys.version_info.minor}.txt"
    example = folder / "plugin"
    # A build writes into its source.
    shutil.copytree(ROOT / "examples/plugin", example)

    def uv(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [Path(sys.executable).parent / "uv", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=environ(), check=False
        )

    uv("venv", "--python", sys.executable, "empty").check_returncode()
    locked = ("--constraint", ROOT / "requirements" / lock)
    install = ("pip", "install", "--python", "empty", *locked, wheel, f"{example}[test]")
    done = uv(*install)
    if done.returncode:
        done = uv(*install, "--offline")
    if "network was disabled" in done.stderr:
        pytest.skip(f"no index answers, and uv's cache has not all: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr
    return folder / "empty/bin"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_example_of_a_package_passes_its_tests_beside_the_wheel(installed, tmp_path):
    shutil.copytree(ROOT / "examples/plugin/tests", tmp_path / "tests")
    done = subprocess.run(
        [installed / "python", "-m", "pytest", "-q", "tests"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environ(),
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.timeout(1800)
def test_wheel_runs_the_demo_in_an_environment_of_its_own(installed, tmp_path):
    demo = [installed / "beamrank", "demo", "--json", "--quiet"]
    made = subprocess.run(
        demo, capture_output=True, text=True, cwd=tmp_path, env=environ(), check=False
    )
    assert made.returncode == 0, made.stderr
    measured = {
        each["stage"]: round(each["RR@10"], 4) for each in json.loads(made.stdout)["stages"]
    }
    # The last digits depend on the processor: bfloat16 without AMX gives 0.6155.
    assert measured == {"bm25": 0.3353, "mono": pytest.approx(0.6157, abs=0.005)}
    assert (tmp_path / "beamrank-demo/report/report.html").is_file()
