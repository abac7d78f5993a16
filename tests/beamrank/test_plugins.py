import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import beamrank
from beamrank.errors import PreflightError
from beamrank.plugins import Registry

_GROUP = "beamrank.test_things"


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A registry with an extension of its own, beside those of an installed package."""
    (tmp_path / "package_of_things.py").write_text("thing = 'from outside'\n")
    info = tmp_path / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (tmp_path / "package_that_fails.py").write_text("thing = 1 / 0\n")
    entries = [
        "a = package_of_things:thing",
        "own = package_of_things:thing",
        "broken = absent:thing",
    ]
    entries += ["fails = package_that_fails:thing", "odd = not a module"]
    (info / "entry_points.txt").write_text("\n".join((f"[{_GROUP}]", *entries)))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    monkeypatch.setattr("beamrank.plugins._warned", set())
    return Registry("thing", _GROUP, {"own": 1, "later": "os:sep"})


def test_registry_has_the_extensions_of_installed_packages_and_ours(registry):
    assert list(registry) == ["own", "later", "a", "broken", "fails", "odd"]
    assert registry["a"] == "from outside"
    assert registry["later"] == "/"
    with pytest.raises(KeyError):
        registry["absent"]


def test_name_of_ours_is_not_replaced(registry, caplog):
    assert "own" in list(registry)
    assert registry["own"] == 1
    assert "'own'" in caplog.text


def test_extension_that_cannot_be_imported_is_named_and_ends_nothing_else(registry, caplog):
    for name, reason in (
        ("broken", "No module named 'absent'"),
        ("fails", "ZeroDivisionError"),
        ("odd", "Error"),
    ):
        with pytest.raises(PreflightError, match=rf"'{name}' .*outside .*{reason}"):
            registry[name]
    assert set(registry.importable()) == {"a", "later", "own"}
    assert [*registry.values()] == [1, "/", "from outside"]
    assert "thing 'broken'" in caplog.text


_OURS = Path(beamrank.__file__).parent.parent


def _run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(_OURS)])
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120
    )


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
    assert f"is {tmp_path / 'models'}, and beamrank's is {_OURS / 'models'}" in done.stdout, (
        done.stderr
    )
