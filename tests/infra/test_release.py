"""What a release is made of: its version, CI, the checks before a commit."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from beamrank.version import __version__
from infra.release.outputs import KEPT
from tests import ROOT

_IMAGE = re.compile(r"/beamrank/[cg]pu:([\d.]+)-python")


def _yaml(path: str) -> dict:
    return yaml.safe_load((ROOT / path).read_text())


def test_version_is_the_same_everywhere():
    assert str(_yaml("CITATION.cff")["version"]) == __version__
    assert f"\n## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.yaml")]
    images = [found for page in pages for found in _IMAGE.findall(page.read_text())]
    assert {*images} == {__version__}


def test_ci_runs_targets_that_exist_on_every_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [
        each.rpartition(" :: ")[2]
        for each in project["classifiers"]
        if each.startswith("Programming Language")
    ]
    assert named == sorted(
        path.stem.removeprefix("python") for path in (ROOT / "requirements").iterdir()
    )
    jobs = _yaml(".github/workflows/ci.yml")["jobs"]
    assert [
        each["strategy"]["matrix"]["python"] for each in jobs.values() if "strategy" in each
    ] == [named, named]
    commands = [step["run"] for each in jobs.values() for step in each["steps"] if "run" in step]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    made = {each.removeprefix("make ") for each in commands if each.startswith("make ")}
    assert made == {"test", "docs", "test-all"}
    assert made <= {*targets}


def test_output_of_the_release_is_kept():
    kept = KEPT / f"{__version__}.tar.xz"
    assert 0 < kept.stat().st_size < 100_000


@pytest.mark.slow
def test_checks_before_a_commit_pass():
    command = [
        str(Path(sys.executable).parent / "pre-commit"),
        "run",
        "--all-files",
        "--color",
        "never",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"\.Passed$", done.stdout, re.MULTILINE)) == 4
