"""Files that are digested first and read later: their content must not change in between."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from beamrank.errors import DataError, PreflightError
from beamrank.storage import files as storage
from beamrank.storage.file_states import file_version

_ATTEMPTS = 3
_log = logging.getLogger(__name__)
_Read = TypeVar("_Read")
# The hashes that this process has computed, by URL and version.
_known: dict[tuple[str, str], str] = {}


class RewrittenError(DataError):
    """A file was written while it was read: other content may have been read, also if it has the old one now."""


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
    def held(self) -> Iterator[None]:
        """Makes sure that reads of the file inside the `with` block see the content that was digested.

        A file of the same version is not read for this. A file of another version, such as a copy on another machine,
        is hashed once in a process.

        Raises:
            RewrittenError: the file is written while it is read, if only its time changes (see `reread`).
            DataError: the file has other content, or is removed.
        """
        version = self.find_version()
        if version != self.version:
            found = digest_file(self.url, read=bool(self.sha256))
            if found.content != self.content:
                raise DataError(self._changed("changed"))
            version = found.version
        try:
            yield
        except Exception:
            # A file that is written while it is read looks damaged.
            self._check(version)
            raise
        self._check(version)

    def _check(self, version: str) -> None:
        if self.find_version() != version:
            raise RewrittenError(self._changed("changed"))

    def find_version(self) -> str:
        """The version of the file now.

        Raises:
            DataError: the file was removed.
        """
        try:
            return file_version(self.url)
        except FileNotFoundError as error:
            raise DataError(self._changed("was removed")) from error

    def _changed(self, what: str) -> str:
        return (
            f"{self.url} {what} after its digest was taken, so its new content would count as the old one. Nothing was "
            "committed from it. Run the same command again to use the new content, or restore the file first"
        )


class FileRows(NamedTuple):
    """The rows of a file from `start`, which counts from 0, to `end`, exclusive."""

    file: DigestedFile
    start: int
    end: int


def reread(read: Callable[[], _Read]) -> _Read:
    """What a function returns that reads digested files: where one was written meanwhile, it is called again.

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
    for _ in range(_ATTEMPTS):
        version = file_version(url)
        if not read:
            return DigestedFile(url, version, "")
        known = _known.get((url, version))
        if known is not None:
            return DigestedFile(url, version, known)
        content = storage.sha256(url)
        if file_version(url) == version:
            _known[url, version] = content
            return DigestedFile(url, version, content)
        _log.warning("%s changed while its digest was taken: trying again", url)
    raise PreflightError(
        f"{url} changed {_ATTEMPTS} times while its digest was taken: it is being written. Wait until it is complete, "
        "and run the same command again"
    )
