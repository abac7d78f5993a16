"""Packages with entry points, as `pip install` leaves them."""

import importlib
from pathlib import Path

import pytest

from beamrank.plugins import Registry
from tests import ROOT

# The package `beamrank_overlap`, which pytest finds by a setting of its own.
EXAMPLE = ROOT / "examples/plugin"


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry | str, **entries: str
) -> None:
    """Installs a package `outside` with entry points of a registry or a group, for this process and
    its children.

    Args:
        folder: of the package; entry points of several groups may follow one another.
        monkeypatch: uninstalls it.
        registry: finds it.
        **entries: `module:object` by name.
    """
    group = registry if isinstance(registry, str) else registry.group
    info = folder / "outside-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    with (info / "entry_points.txt").open("a") as file:
        file.write(
            "\n".join((f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())))
            + "\n"
        )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{EXAMPLE}", prepend=":")
    importlib.invalidate_caches()
    if isinstance(registry, Registry):
        monkeypatch.setattr(registry, "_entries", None)
        monkeypatch.setattr(registry, "_loaded", {})
