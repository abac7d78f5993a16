"""Folders of a format that holds one file of a fixed name, such as BEIR's."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from beamrank.errors import PreflightError
from beamrank.storage import files as storage


class _Format(Protocol):
    @property
    def file_in_folder(self) -> str | None: ...


def folder_file(folder: str, base: str) -> str:
    """The file `base` of a folder, which may be compressed.

    Raises:
        PreflightError: there is none, or more than one.
    """
    names = [name for name in storage.sizes_bytes(folder) if _is_named(name, base)]
    if len(names) != 1:
        found = f"holds {' and '.join(sorted(names))}" if names else f"holds no {base}"
        raise PreflightError(f"the folder {folder} {found}: give the path of the one file to read")
    return storage.join(folder, names[0])


def folder_hint(names: Iterable[str], formats: Mapping[str, _Format], key: str) -> str:
    """The end of a message: the format whose file is among the names of a folder, or nothing."""
    present = list(names)
    for name, each in formats.items():
        base = each.file_in_folder
        if base is not None and any(_is_named(file, base) for file in present):
            return f", or set `{key}: {name}` for the {base} in it"
    return ""


def _is_named(name: str, base: str) -> bool:
    return name == base or name.startswith(f"{base}.")
