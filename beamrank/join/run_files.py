"""The files of a given run, and their digest."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from beamrank.errors import DataError, PreflightError
from beamrank.formats.candidates import run_files
from beamrank.formats.files import Paths, shown_paths
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile, digest_file
from beamrank.storage.documents import digest

# The launcher reads a run up to this size by itself.
SMALL_BYTES = 64 << 20
_FILES_AT_ONCE = 16
# What this process has digested, by the digest.
_digested: dict[str, "DigestedRun"] = {}


@dataclass(frozen=True)
class DigestedRun:
    """The digest of a run, and the files that it covers, in their order."""

    digest: str
    files: tuple[DigestedFile, ...]
    size_bytes: int

    def check(self, expected: str) -> None:
        """Raises DataError where the run does not have the digest that was planned with."""
        if self.digest != expected:
            raise DataError(_changed(self, expected))


def run_bytes(paths: Paths) -> int:
    """The size of all files of a run."""
    return sum(mapped(storage.size_bytes, run_files(paths)))


def digest_run(paths: Paths) -> DigestedRun:
    """SHA-256 over the content of each file in order; of one file that of its content.

    A large file at a store is not read: the store's checksum represents its content.

    Raises:
        PreflightError: there is no such run, or it is being written.
    """
    urls = run_files(paths)
    sizes = mapped(storage.size_bytes, urls)
    reads_all = sum(sizes) <= SMALL_BYTES
    try:
        files = tuple(digest_file(url, read=reads_all or not storage.is_remote(url)) for url in urls)
    except FileNotFoundError as error:
        raise PreflightError(f"there is no run {shown_paths(paths)}: {error}") from error
    contents = [file.content for file in files]
    run = DigestedRun(contents[0] if len(contents) == 1 else digest(contents), files, sum(sizes))
    _digested[run.digest] = run
    return run


def mapped(function: Any, urls: Sequence[str]) -> list[Any]:
    """The values of a function of files, many at a time."""
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        return list(pool.map(function, urls))


def _changed(now: DigestedRun, expected: str) -> str:
    """What to say of a run that is not the digested one, by what this process knows of that."""
    before = _digested.get(expected)
    url, what = now.files[0].url, "changed"
    if before is not None and len(now.files) + len(before.files) > 2:
        old, new = ({file.url: file.content for file in each.files} for each in (before, now))
        url = next(each for each in sorted(old.keys() | new.keys()) if old.get(each) != new.get(each))
        what = "was removed" if url not in new else "was added" if url not in old else "changed"
    return (
        f"{url} {what} after its digest was taken, so its new content would count as the old one. Nothing was "
        "committed from it. Run the same command again to use the new content, or restore the file first"
    )
