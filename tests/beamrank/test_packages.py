import os
import subprocess
import sys
from pathlib import Path

import pytest

import beamrank

_OURS = Path(beamrank.__file__).parent.parent


def _run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(_OURS)])
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120)


@pytest.mark.parametrize("name", ["models", "pipelines", "transforms"])
@pytest.mark.parametrize("form", ["package", "module"])
def test_package_that_hides_ours_is_named(tmp_path, name, form):
    found = tmp_path / (f"{name}.py" if form == "module" else name)
    if form == "module":
        found.touch()
    else:
        found.mkdir()
        (found / "__init__.py").touch()
    done = _run(tmp_path, "-m", "beamrank", "--version")
    assert done.returncode == 3
    assert f"is {found}" in done.stderr
    assert str(_OURS / name) in done.stderr
    assert "Traceback" not in done.stderr


def test_package_that_hides_ours_is_named_in_python(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models/__init__.py").touch()
    (tmp_path / "mine.py").write_text(
        "import beamrank\nbeamrank.read_run\n"
        "try:\n    beamrank.rerank\nexcept beamrank.PreflightError as error:\n    print(error)\n"
    )
    done = _run(tmp_path, "mine.py")
    assert f"is {tmp_path / 'models'}, and beamrank's is {_OURS / 'models'}" in done.stdout, done.stderr
