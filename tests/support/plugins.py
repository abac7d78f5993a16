"""Packages with entry points, as `pip install` leaves them."""

import importlib
from pathlib import Path

import pytest

from beamrank.plugins import Registry


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry, **entries: str) -> None:
    """Installs a package `outside` whose entry points are in the registry's group, for this process and its children.

    Args:
        folder: of the package.
        monkeypatch: uninstalls it.
        registry: finds it.
        **entries: `module:object` by name.
    """
    info = folder / "outside-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    lines = (f"{name} = {target}" for name, target in entries.items())
    (info / "entry_points.txt").write_text("\n".join((f"[{registry.group}]", *lines)) + "\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    importlib.invalidate_caches()
    monkeypatch.setattr(registry, "_entries", None)
    monkeypatch.setattr(registry, "_loaded", {})
