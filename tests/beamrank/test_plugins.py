import importlib

import pytest

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
    entries = ["a = package_of_things:thing", "own = package_of_things:thing", "broken = absent:thing"]
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
    assert "package outside has a thing 'own', and so has beamrank itself" in caplog.text


def test_extension_that_cannot_be_imported_is_named_and_ends_nothing_else(registry, caplog):
    for name, reason in (("broken", "No module named 'absent'"), ("fails", "ZeroDivisionError"), ("odd", "Error")):
        with pytest.raises(
            PreflightError, match=f"thing '{name}' of the package outside cannot be imported: .*{reason}"
        ):
            registry[name]
    assert set(registry.importable()) == {"a", "later", "own"}
    assert [*registry.values()] == [1, "/", "from outside"]
    assert "thing 'broken'" in caplog.text
