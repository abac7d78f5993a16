"""Damage to the files of an output, at a store or on the disk, and what `beamrank verify`
advises.
"""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import fsspec

# Nothing depends on these.
_NOT_CHECKED = re.compile(r"logs/|.*\.tmp$")
# A later run writes these again (manifests from the receipts), or only their record is lost.
_MAY_BE_DELETED = re.compile(r"machines/|rejects/|retry-|[^/]+/(scans/|manifest-)")
# An index without its record is one that somebody else built.
_NOT_DELETED = re.compile(r".*beamrank\.json")
_BEGINNING = re.compile(r"[a-z]*")
_RECORD = re.compile(r"(?:receipts/|manifest-)[0-9a-f-]+\.json")


class Output:
    """The files of an output, at any URL, by their paths below it."""

    def __init__(self, url: str) -> None:
        self._files, self._root = fsspec.core.url_to_fs(url, use_listings_cache=False)

    def files(self) -> list[str]:
        """The paths of all files."""
        self._files.invalidate_cache()
        return sorted(path.removeprefix(f"{self._root}/") for path in self._files.find(self._root))

    def read(self, name: str) -> bytes:
        """A file."""
        return bytes(self._files.cat_file(f"{self._root}/{name}"))

    def remove(self) -> None:
        """Removes all in the folder, which may be a disk of its own."""
        if self.files():
            self._files.rm(self._files.ls(self._root, detail=False), recursive=True)

    def write(self, name: str, content: bytes | None) -> None:
        """Replaces a file, or deletes it."""
        path = f"{self._root}/{name}"
        self._files.rm_file(path) if content is None else self._files.pipe_file(path, content)


def damage(output: Output, kind: str, drawn: random.Random) -> list[str]:
    """Damages files in one of the ways of `DAMAGES`; returns those that are damaged."""
    by_kind: dict[tuple[str, ...], list[str]] = {}
    for name in output.files():
        if not _NOT_CHECKED.match(name) and not (
            kind == "deleted file" and _NOT_DELETED.fullmatch(name)
        ):
            by_kind.setdefault(_kind_of(name), []).append(name)
    if kind == "swapped files":
        by_kind = {key: names for key, names in by_kind.items() if len(names) > 1}
    if not by_kind:
        return []
    among = by_kind[drawn.choice(sorted(by_kind))]
    name, other = drawn.sample(among, 2) if len(among) > 1 else among * 2
    before = output.read(name)
    changes: dict[str, bytes | None] = {name: _damaged(before, kind, drawn)}
    if kind == "swapped files":
        changes = {name: output.read(other), other: before}
    if changes[name] == before:
        return []
    for path, content in changes.items():
        output.write(path, content)
    return list(changes)


def _damaged(content: bytes, kind: str, drawn: random.Random) -> bytes | None:
    if kind == "deleted file":
        return None
    if kind == "emptied file" or not content:
        return b""
    at = drawn.randrange(len(content))
    if kind == "cut file":
        return content[:at]
    return content[:at] + bytes([content[at] ^ (1 << drawn.randrange(8))]) + content[at + 1 :]


def _kind_of(name: str) -> tuple[str, ...]:
    """Its folder without the stage's name, and the letters that its own name begins with."""
    *folders, base = name.split("/")
    begins = _BEGINNING.match(base)
    return *folders[folders[:1] != ["runs"] :], begins[0] if begins else ""


def must_be_found(name: str, kind: str) -> bool:
    """Whether `verify` must name a damaged file."""
    return not (kind == "deleted file" and _MAY_BE_DELETED.match(name))


def remedied(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The files that the findings of `verify` ask to delete."""
    files = set()
    for finding in findings:
        stage = finding["file"].partition("/")[0]
        files |= {f"{stage}/{name}" for name in _RECORD.findall(finding["remedy"])}
        if "delete it" in finding["remedy"]:
            files.add(finding["file"])
    return sorted(files)
