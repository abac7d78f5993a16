"""Metadata of files, and files that are digested first and read later: their content must not
change in between.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from beamrank.errors import DataError, PreflightError
from beamrank.storage import files as storage

# Two changes of a local file within a tick of its clock get the same time.
_TICK_NANOSECONDS = 20_000_000
# The names under which stores report when a file was written.
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")
# The checksums that stores report, best first. Google's etag changes whenever a file is written,
# even with the same content; its MD5 does not, but a file that was composed of others has none.
_CHECKSUMS = ("md5Hash", "content_md5", "ETag", "etag")
_ATTEMPTS = 3
# In a version: the time of the last change of a local file.
_SINCE = re.compile(r" since \d+")
_log = logging.getLogger(__name__)
_Read = TypeVar("_Read")
# The hashes that this process has computed, by URL and version.
_hashes: dict[tuple[str, str], str] = {}


class FileState(NamedTuple):
    """A file's size, and when it was last written in seconds since 1970, if the storage keeps
    times.
    """

    size_bytes: int
    modified_seconds: float | None


class RemoteFile(NamedTuple):
    """Metadata of a file at a store: its size, and a checksum that differs for other content."""

    size_bytes: int
    checksum: str


def file_states(folder: str) -> dict[str, FileState]:
    """The files in a folder by name; empty where there is no folder."""
    entries = storage.list_files(folder)
    return {
        storage.name(entry["name"]): FileState(int(entry["size"]), _modified(entry))
        for entry in entries
    }


def _modified(entry: Mapping[str, Any]) -> float | None:
    for value in (moment for moment in map(entry.get, _TIMES) if moment is not None):
        if isinstance(value, int | float):
            return float(value)
        with suppress(ValueError):
            return (
                value if isinstance(value, datetime) else datetime.fromisoformat(value)
            ).timestamp()
    return None


def remote_files(folder: str) -> dict[str, RemoteFile]:
    """The files in a folder at a store, by name."""
    with storage.located(folder) as (filesystem, _):
        return {
            storage.name(entry["name"]): _stored(filesystem, entry)
            for entry in storage.list_files(folder)
        }


def remote_file(url: str) -> RemoteFile:
    """The metadata of a file at a store; raises FileNotFoundError."""
    with storage.located(url) as (filesystem, path):
        return _stored(filesystem, filesystem.info(path))


def _stored(filesystem: Any, entry: dict[str, Any]) -> RemoteFile:
    checksum = next((entry[key] for key in _CHECKSUMS if entry.get(key)), None)
    return RemoteFile(int(entry["size"]), str(checksum or filesystem.checksum(entry["name"])))


def file_version(url: str) -> str:
    """A text that changes whenever a file's content does; a copy of a file has its own. Raises
    FileNotFoundError.

    For a local file it holds the time of the last change, which no program can set back.
    """
    if storage.is_remote(url):
        return " ".join(map(str, remote_file(url)))
    path = storage.absolute(url)
    try:
        about = os.stat(path)
    except OSError as error:
        storage.refuse_impossible_path(url, error)
        raise
    age = time.time_ns() - about.st_ctime_ns
    if 0 <= age < _TICK_NANOSECONDS:
        time.sleep((_TICK_NANOSECONDS - age) / 1e9)
        return file_version(url)
    return f"{about.st_ino} {about.st_size} {about.st_mtime_ns} since {about.st_ctime_ns}"


def _written(version: str) -> str:
    """A version without the time of the last change."""
    return _SINCE.sub("", version)


class RewrittenError(DataError):
    """A file was written while it was read: other content may have been read, also if it has the
    old one now.
    """


@dataclass(frozen=True)
class DigestedFile:
    """A file as it was when its digest was taken.

    Attributes:
        url: its URL.
        version: its `file_version`; empty if only its hash is known.
        sha256: the hash of its content; empty if the version identifies the content.
    """

    url: str
    version: str
    sha256: str

    @property
    def content(self) -> str:
        """A text that identifies the content."""
        return self.sha256 or self.version

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Makes sure that reads of the file inside the `with` block see the content that was
        digested.

        A file of the same version is not read for this. A file of a different version, such as a
        copy on a different machine, is hashed once in a process.

        Raises:
            RewrittenError: the file is written while it is read, if only its time changes (see
                `reread`).
            DataError: the file has other content, or is removed.
        """
        version = self.find_version()
        if version != self.version:
            now = digest_file(self.url, read=bool(self.sha256))
            if now.content != self.content:
                raise changed(self.url)
            version = now.version
        try:
            yield
        finally:
            # A file that is written while it is read looks damaged.
            if self.find_version() != version:
                raise changed(self.url, error=RewrittenError)

    def is_rewritten(self) -> bool:
        """Whether the file was written since its digest was taken.

        The time of writing can be set back, so the content decides where only the time of the last
        change differs, which chmod, a hard link and a change of the name move too.
        """
        version = self.find_version()
        return version != self.version and (
            _written(version) != _written(self.version)
            or digest_file(self.url).sha256 != self.sha256
        )

    def find_version(self) -> str:
        """The version of the file now; raises DataError if it was removed."""
        try:
            return file_version(self.url)
        except FileNotFoundError as error:
            raise changed(self.url, "was removed") from error


def changed(url: str, what: str = "changed", error: type[DataError] = DataError) -> DataError:
    """The error about a file that is not the one that was digested."""
    return error(
        f"{url} {what} after its digest was taken, so its new content would count as the old one. "
        "Nothing was committed from it. Run the same command again to use the new content, or "
        "restore the file first",
        kind="changed",
        file=url,
    )


class RowRange(NamedTuple):
    """The rows of a file from `start`, which counts from 0, to `end`, exclusive."""

    file: DigestedFile
    start: int
    end: int


def reread(read: Callable[[], _Read]) -> _Read:
    """The value of a function that reads digested files, called up to three times while one is
    written.

    Raises:
        RewrittenError: a file was written during each call.
        DataError: a file has other content than was digested.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return read()
        except RewrittenError as error:
            _log.warning("%s: comparing its content, and trying again", error)
    return read()


def digest_file(url: str, *, read: bool = True) -> DigestedFile:
    """Takes the digest of a file; a process reads each version of it once.

    Args:
        url: the file.
        read: whether to hash the content; otherwise the version identifies it.

    Raises:
        FileNotFoundError: the file does not exist.
        PreflightError: the file is being written.
    """
    before = None
    for _ in range(_ATTEMPTS):
        version = file_version(url)
        if not read:
            return DigestedFile(url, version, "")
        content = _hashes.get((url, version)) or storage.sha256(url)
        read_twice = before == (_written(version), content)
        if (url, version) in _hashes or read_twice or file_version(url) == version:
            _hashes[url, version] = content
            return DigestedFile(url, version, content)
        before = _written(version), content
        _log.warning("%s changed while its digest was taken: trying again", url)
    raise PreflightError(
        f"{url} changed {_ATTEMPTS} times while its digest was taken: it is being written. Wait "
        "until it is complete, and run the same command again"
    )
