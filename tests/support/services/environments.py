"""Programs and Python environments for tests of the second tier; each is made once, in the cache of
this machine.

Where one cannot be made, because its tool or the network is missing, the tests that need it are
skipped, and say why.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from beamrank.storage.disk_cache import cache_folder, exclusive
from tests import ROOT

# Tests point BEAMRANK_CACHE elsewhere; the environments stay where they were made.
_KEPT = cache_folder("test-environments")
_INSTALL_SECONDS = 580
_START_SECONDS = 300.0


def tensorflow_python() -> Path:
    """A Python with the TensorFlow that wrote tests/support/data/tensorflow1."""
    return _python("tensorflow", ["tensorflow-cpu==2.21.0"])


def airflow_python() -> Path:
    """A Python with the packages that the DAG needs; they and beamrank's pin different versions."""
    return _python("airflow", ["--requirement", str(ROOT / "infra/airflow/requirements.txt")])


def sbom_python(requirement: str) -> Path:
    """A Python that lists the packages of another one, as the images do."""
    return _python("sbom", [requirement])


def atheris_packages() -> Path:
    """A folder for PYTHONPATH with Atheris, which fuzzes by coverage."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "atheris==3.0.0",
        "--target",
    ]
    return _made("atheris", lambda folder: _run([*command, str(folder)]))


def environ(**variables: str) -> dict[str, str]:
    """The variables of a process of another Python: without those that this one's tests set for
    workers.
    """
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        **variables,
    }


def fake_gcs_server() -> Path:
    """fsouza's fake-gcs-server: the one on PATH, or one that Go builds."""
    if found := shutil.which("fake-gcs-server"):
        return Path(found)
    if shutil.which("go") is None:
        pytest.skip("fake-gcs-server is not on PATH, and there is no Go to build it")

    def build(folder: Path) -> None:
        _run(
            ["env", f"GOBIN={folder}", "go", "install", "github.com/fsouza/fake-gcs-server@v1.56.1"]
        )

    return _made("fake-gcs-server", build) / "fake-gcs-server"


def azurite() -> Path:
    """Azure's own emulator of Blob Storage: the one on PATH, or one that npm installs."""
    if found := shutil.which("azurite-blob"):
        return Path(found)
    if shutil.which("npm") is None:
        pytest.skip("azurite-blob is not on PATH, and there is no npm to install it")

    def install(folder: Path) -> None:
        # The install scripts of its dependencies only ask for money.
        quiet = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        _run(["npm", "install", *quiet, "--prefix", str(folder), "azurite@3.37.0"])

    return _made("azurite", install) / "node_modules/.bin/azurite-blob"


ENVIRONMENTS: tuple[Callable[[], Path], ...] = (
    fake_gcs_server,
    azurite,
    tensorflow_python,
    airflow_python,
    atheris_packages,
)


def wait_for(ready: Callable[[], bool | None]) -> None:
    """Until a service answers, with something else than False."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError):
            if ready() is not False:
                return
        assert time.monotonic() < deadline, "the service did not start"
        time.sleep(0.1)


def _python(name: str, packages: Sequence[str]) -> Path:
    def install(folder: Path) -> None:
        venv.create(folder, with_pip=True)
        python = str(folder / "bin/python")
        uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
        # pip takes ten minutes for Airflow, uv one; pip installs where only pip knows of an index.
        if subprocess.run([*uv, *packages], capture_output=True, check=False).returncode:
            _run([python, "-m", "pip", "install", "--quiet", "--no-compile", *packages])

    return _made(name, install) / "bin/python"


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of an environment. A mark tells that it is complete: a virtual environment cannot
    be renamed.
    """
    folder = _KEPT / f"{name}-python{sys.version_info.major}.{sys.version_info.minor}"
    _KEPT.mkdir(parents=True, exist_ok=True)
    with exclusive(_KEPT / f".{folder.name}.lock"):
        if not (folder / ".complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            (folder / ".complete").touch()
    return folder


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=True
        )
    except subprocess.SubprocessError as error:
        pytest.skip(f"{error}: {str(error.stderr).strip()[-500:]}")  # type: ignore[attr-defined]
