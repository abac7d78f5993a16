"""The files of a key: those that paths and globs name, and the one file of a folder such as BEIR's."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.globs import NOT_DATA, find, is_data
from beamrank.storage.streams import errors_as, has_ending

_HUB_ENDINGS = (".parquet", ".jsonl")
_GLOB = re.compile(r"[*?\[]")


class _Format(Protocol):
    @property
    def file_in_folder(self) -> str | None: ...


class _Located(Protocol):
    @property
    def path(self) -> str | Sequence[str]: ...


# A path, a glob, several, or the section of a configuration that holds them.
Paths: TypeAlias = str | Sequence[str] | _Located


def paths_of(paths: Paths) -> tuple[str, ...]:
    """The paths of a key that takes one or several, or a section with them."""
    path = paths if isinstance(paths, str | Sequence) else paths.path
    return (path,) if isinstance(path, str) else tuple(path)


def find_files(paths: Paths) -> list[str]:
    """The files of a key that takes one or several: each path, or what its glob matches, sorted; each file once.

    Raises:
        PreflightError: a glob matches nothing.
    """
    files: dict[str, None] = {}
    for path in paths_of(paths):
        with errors_as(PreflightError, path):
            is_glob = _GLOB.search(path) and not storage.exists(path)
            found = find(path, folders=True) if is_glob else [path]
        if not found:
            raise PreflightError(f"no file matches {path}: give a path, a glob, or a list of them. {NOT_DATA}")
        files |= dict.fromkeys(found)
    return list(files)


def shown_paths(paths: Paths) -> str:
    """The value of such a key, for messages."""
    return ", ".join(paths_of(paths))


def folder_files(folder: str, base: str) -> list[str]:
    """The file `base` of a folder, which may be compressed, or the files of the folder below it that is named so.

    `queries.jsonl` is BEIR's own packaging; `queries/test-00000-of-00001.parquet` that of its data sets at Hugging
    Face, which may be several files.

    Raises:
        PreflightError: there is none, or more than one where there should be one.
    """
    names = [name for name in storage.sizes_bytes(folder) if _is_named(name, base)]
    below = storage.join(folder, base.partition(".")[0])
    files = [] if names else sorted(filter(_is_of_hub, storage.sizes_bytes(below)))
    if files:
        return [storage.join(below, name) for name in files]
    if len(names) != 1:
        found = f"holds {' and '.join(sorted(names))}" if names else f"holds no {base}"
        raise PreflightError(f"the folder {folder} {found}: give the path of the one file to read")
    return [storage.join(folder, names[0])]


def holds_file(folder: str, base: str) -> bool:
    """Whether `folder_files` finds something."""
    below = storage.sizes_bytes(storage.join(folder, base.partition(".")[0]))
    return any(_is_named(name, base) for name in storage.sizes_bytes(folder)) or any(map(_is_of_hub, below))


def folder_hint(names: Iterable[str], formats: Mapping[str, _Format], key: str) -> str:
    """The end of a message: the format whose file is among the names of a folder, or nothing."""
    present = list(names)
    for name, each in formats.items():
        base = each.file_in_folder
        if base is not None and any(_is_named(file, base) for file in present):
            return f", or set `{key}: {name}` for the {base} in it"
    return ""


def format_of_folder(folder: str, formats: Mapping[str, _Format]) -> str | None:
    """The format whose packaging a folder has."""
    packaged = {name: each.file_in_folder for name, each in formats.items() if each.file_in_folder is not None}
    return next((name for name, base in packaged.items() if holds_file(folder, base)), None)


def _is_of_hub(name: str) -> bool:
    return is_data(name) and has_ending(name, _HUB_ENDINGS)


def _is_named(name: str, base: str) -> bool:
    return name == base or name.startswith(f"{base}.")
