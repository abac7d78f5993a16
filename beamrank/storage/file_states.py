"""Metadata of files: sizes, times, checksums, and versions that change with the content. No file is read."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from beamrank.storage.files import absolute, is_remote, list_files, located, name, refuse_impossible_path

# Two changes of a local file within a tick of its clock get the same time.
_TICK_NANOSECONDS = 20_000_000
# The checksums that stores report, best first. Google's etag changes whenever a file is written, even with the
# same content; its MD5 does not, but a file that was composed of others has none.
_CHECKSUMS = ("md5Hash", "content_md5", "ETag", "etag")


@dataclass(frozen=True)
class FileState:
    """A file's size, and when it was last written in seconds since 1970, if the storage keeps times."""

    size_bytes: int
    modified_seconds: float | None


class StoredFile(NamedTuple):
    """Metadata of a file at a store: its size, and a checksum that differs for other content."""

    size_bytes: int
    checksum: str


def file_states(folder: str) -> dict[str, FileState]:
    """The files in a folder by name; empty where there is no folder."""
    return {name(entry["name"]): FileState(int(entry["size"]), _modified(entry)) for entry in list_files(folder)}


def stored_files(folder: str) -> dict[str, StoredFile]:
    """The files in a folder at a store, by name."""
    with located(folder) as (filesystem, _):
        return {name(entry["name"]): _stored(filesystem, entry) for entry in list_files(folder)}


def stored_file(url: str) -> StoredFile:
    """The metadata of a file at a store.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    with located(url) as (filesystem, path):
        return _stored(filesystem, filesystem.info(path))


def file_version(url: str) -> str:
    """A text that changes whenever a file's content does; a copy of a file has another one.

    For a local file it holds the time of the last change, which no program can set back, and the same of each symbolic
    link that leads to it: a link that pointed to another file for a moment has changed too.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    if is_remote(url):
        return " ".join(map(str, stored_file(url)))
    path = absolute(url)
    try:
        found = os.stat(path)
    except OSError as error:
        refuse_impossible_path(url, error)
        raise
    links = list(_links(path))
    age = time.time_ns() - max(each.st_ctime_ns for each in (found, *links))
    if 0 <= age < _TICK_NANOSECONDS:
        time.sleep((_TICK_NANOSECONDS - age) / 1e9)
        return file_version(url)
    state = f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
    return " ".join([state, *(f"{link.st_ino} {link.st_ctime_ns}" for link in links)])


def _links(path: str) -> Iterator[os.stat_result]:
    """The symbolic links that lead to a file, folders among them."""
    for part in (*reversed(Path(path).parents), Path(path)):
        if part.is_symlink():
            yield part.lstat()
            yield from _links(os.path.normpath(part.parent / os.readlink(part)))


def _stored(filesystem: Any, entry: dict[str, Any]) -> StoredFile:
    checksum = next((entry[key] for key in _CHECKSUMS if entry.get(key)), None)
    return StoredFile(int(entry["size"]), str(checksum or filesystem.checksum(entry["name"])))


def _modified(entry: Mapping[str, Any]) -> float | None:
    """The time of writing, which each storage reports under its own name and type."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = entry.get(key)
        if isinstance(value, str):
            with suppress(ValueError):
                value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return None
