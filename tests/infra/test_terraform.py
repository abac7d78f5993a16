"""The Terraform files: formatted, valid if the provider can be downloaded."""

import re
import shutil
import subprocess

import pytest

from tests import ROOT

_FOLDER = ROOT / "infra/terraform"
_FILES = sorted(_FOLDER.glob("*.tf"))


@pytest.fixture(scope="module")
def terraform() -> str:
    found = shutil.which("terraform")
    if found is None:
        pytest.skip("terraform is not installed")
    return found


def _run(terraform, folder, *arguments):
    return subprocess.run(
        [terraform, f"-chdir={folder}", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_terraform_files_are_formatted(terraform):
    done = _run(terraform, _FOLDER, "fmt", "-check", "-diff", "-no-color")
    assert (done.returncode, done.stdout) == (0, ""), done.stdout


def test_terraform_files_are_valid(terraform, tmp_path):
    for path in _FILES:
        shutil.copy(path, tmp_path)
    ready = _run(terraform, tmp_path, "init", "-backend=false", "-input=false", "-no-color")
    if ready.returncode != 0 and "could not connect to" in " ".join(ready.stderr.split()):
        pytest.skip("Google's provider cannot be downloaded here, so only the syntax is checked")
    assert ready.returncode == 0, ready.stderr
    done = _run(terraform, tmp_path, "validate", "-no-color")
    assert done.returncode == 0, done.stderr


def test_terraform_references_exist():
    text = "\n".join(path.read_text(encoding="utf-8") for path in _FILES)
    code = re.sub(r"#.*", "", text)
    resources = set(re.findall(r'^resource "(\w+)" "(\w+)"', code, re.MULTILINE))
    variables = set(re.findall(r'^variable "(\w+)"', code, re.MULTILINE))
    assert len(resources) > 10
    assert set(re.findall(r"\b(google_\w+)\.(\w+)", code)) - resources == set()
    assert set(re.findall(r"\bvar\.(\w+)", code)) == variables
    assert set(re.findall(r"\blocal\.(\w+)", code)) == set(_locals(code))


def _locals(code):
    (block,) = re.findall(r"^locals \{\n(.*?)^\}", code, re.MULTILINE | re.DOTALL)
    return re.findall(r"^  (\w+) +=", block, re.MULTILINE)


def test_images_go_where_the_launcher_looks_for_them():
    repository = re.search(r'repository_id = "(\w+)"', (_FOLDER / "storage.tf").read_text())
    launcher = (_FOLDER.parents[1] / "pipelines/runners/dataflow.py").read_text()
    assert repository is not None
    assert f"/{repository[1]}/{{image}}:" in launcher
