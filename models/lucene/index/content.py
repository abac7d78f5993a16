"""The hashes of the files of an index. A machine hashes a local file once, until it is written again."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from beamrank.errors import BeamrankError, DataError
from beamrank.storage import files as storage
from beamrank.storage.digested import digest_file, file_version
from beamrank.storage.documents import SHORT, checked_json, checked_values, digest, sha256
from models.checkpoints.disk_cache import cache_folder

_LUCENE_FILE = re.compile(r"segments_[0-9a-z]+|_[0-9a-z]+[._].*")


class IndexFile(NamedTuple):
    """A file of an index."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class LocalIndex:
    """A local index folder, and Lucene's files in it with the versions (`file_version`) that were hashed."""

    folder: str
    files: Mapping[str, IndexFile]
    versions: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The digest of the index."""
        return files_digest(self.files)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Makes sure that no file was written since the hashes were taken and before the `with` block ends.

        Raises:
            DataError: one was, or was added or removed.
        """
        try:
            yield
        except BeamrankError:
            # Lucene fails on files that it did not write.
            self._check()
            raise
        self._check()

    def _check(self) -> None:
        versions = {name: file_version(storage.join(self.folder, name)) for name in lucene_sizes(self.folder)}
        changed = sorted(name for name, _ in versions.items() ^ self.versions.items())
        if changed:
            raise DataError(
                f"the index {self.folder} changed while it was searched ({changed[0]} was written, added or removed), "
                "so the hits may not be those of the plan's index. Nothing was committed from this search, and "
                "finished shards are kept. Run the same command again, which checks the index and resumes"
            )


def read_content(folder: str) -> LocalIndex:
    """Hashes Lucene's files in a local folder, except those that this machine hashed before in their present version.

    Raises:
        PreflightError: a file is being written.
    """
    known = _recall(folder)
    sizes = lucene_sizes(folder)
    hashed = {}
    for name in sizes:
        url = storage.join(folder, name)
        if name in known and known[name][0] == file_version(url):
            hashed[name] = known[name]
        else:
            file = digest_file(url)
            hashed[name] = (file.version, file.sha256)
    if hashed != known:
        _remember(folder, hashed)
    files = {name: IndexFile(sizes[name], content) for name, (_, content) in hashed.items()}
    return LocalIndex(folder, files, {name: version for name, (version, _) in hashed.items()})


def describe_files(url: str) -> dict[str, IndexFile]:
    """The size and content of each of Lucene's files in a folder, local or remote; reads them all."""
    return {name: IndexFile(size, storage.sha256(storage.join(url, name))) for name, size in lucene_sizes(url).items()}


def lucene_sizes(url: str) -> dict[str, int]:
    """The names and sizes of Lucene's files in a folder, by name."""
    return {name: size for name, size in sorted(storage.sizes_bytes(url).items()) if _LUCENE_FILE.fullmatch(name)}


def files_digest(files: Mapping[str, IndexFile]) -> str:
    """The digest of an index with these files."""
    return digest(sorted((name, file.sha256) for name, file in files.items()))


def _memory_url(folder: str) -> str:
    return str(cache_folder("hashed") / f"{sha256(folder.encode())[:SHORT]}.json")


def _recall(folder: str) -> dict[str, tuple[str, str]]:
    """The version and hash of each file that was hashed before on this machine."""
    try:
        values = checked_values(storage.read_bytes(_memory_url(folder)))
        return {name: (version, content) for name, (version, content) in values["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _remember(folder: str, hashed: Mapping[str, tuple[str, str]]) -> None:
    # Where the cache cannot be written, the files are hashed again next time.
    with suppress(OSError):
        storage.replace(_memory_url(folder), checked_json({"folder": folder, "files": hashed}))
