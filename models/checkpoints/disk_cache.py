"""The cache of this machine: folders that were fetched from elsewhere, by their content.

An entry is a folder `KIND/NAME` below BEAMRANK_CACHE, named by the digest of its content. It is fetched under a lock
into a hidden folder and renamed when it is whole. Nothing is removed to make room, except for copies of files of a job
(`local_copy`): delete the cache, or an entry, at any time when no process uses it.
"""

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fasteners

from beamrank.commit.listing import holds_content
from beamrank.errors import DataError, PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, parse_json, sha256
from beamrank.storage.urls import refuse_credentials

_RECORD = ".beamrank-cache.json"
_COPIES_KEPT_SECONDS = 24 * 3600.0
_thread_locks: dict[str, threading.Lock] = {}


def cache_root() -> Path:
    """The folder of copies that can be fetched again: BEAMRANK_CACHE, or ~/.cache/beamrank.

    Raises:
        ConfigError: BEAMRANK_CACHE can carry a credential.
    """
    folder = os.environ.get("BEAMRANK_CACHE") or "~/.cache/beamrank"
    refuse_credentials(folder, "BEAMRANK_CACHE")
    return Path(folder).expanduser().absolute()


def cache_folder(kind: str) -> Path:
    """The folder of one kind of entries."""
    return cache_root() / kind


@contextmanager
def exclusive(lock_path: Path) -> Iterator[None]:
    """Keeps other threads and processes of this machine out.

    Raises:
        PreflightError: the lock's folder cannot be written.
    """
    lock = fasteners.InterProcessLock(str(lock_path))
    # The lock of a file belongs to the process, so threads need one of their own.
    with _thread_locks.setdefault(str(lock_path), threading.Lock()):
        try:
            lock_path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except OSError as error:
            raise PreflightError(f"cannot write in {lock_path.parent}: {error}") from error
        except RuntimeError:
            # The file system has no locks. One elsewhere on this machine keeps the same processes out.
            lock = fasteners.InterProcessLock(_lock_elsewhere(lock_path))
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def _lock_elsewhere(lock_path: Path) -> str:
    name = f"beamrank-{os.getuid()}-{sha256(os.fsencode(lock_path.absolute()))[:SHORT]}.lock"
    return os.path.join(tempfile.gettempdir(), name)


def find_entry(kind: str, name: str) -> Path | None:
    """A whole entry; None where there is none, or a damaged one."""
    folder = cache_folder(kind) / name
    return folder if _is_whole(folder) else None


def discard_entry(folder: Path) -> None:
    """Makes `add_entry` fetch an entry again, whose content turned out to be wrong."""
    (folder / _RECORD).unlink(missing_ok=True)


def add_entry(kind: str, key: str, fetch: Callable[[Path], str]) -> Path:
    """Fetches an entry. The caller keeps others with the same key out (`exclusive`).

    Args:
        kind: `indexes` or `checkpoints`.
        key: identifies the source; leftovers of a killed process are removed.
        fetch: fills an empty folder and returns the entry's name: the digest of the content, which it has checked.

    Raises:
        OSError: the cache cannot be written.
    """
    temporary = cache_folder(kind) / f".fetching-{key}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        folder = cache_folder(kind) / fetch(temporary)
        (temporary / _RECORD).write_text(json.dumps(_describe(temporary)))
        # Two keys may have the same content.
        with exclusive(cache_root() / ".lock"):
            if not _is_whole(folder):
                shutil.rmtree(folder, ignore_errors=True)
                temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def local_copy(kind: str, url: str) -> str:
    """The path of a file that is named by its content; where it is at a store, of a copy that this machine makes once.

    Copies that are a day old are removed when one is made; a process that has mapped one keeps it.

    Raises:
        DataError: the file does not hold the content of its name.
        PreflightError: the cache cannot be written.
    """
    if not storage.is_remote(url):
        return storage.absolute(url)
    name = storage.name(url)

    def fetch(folder: Path) -> str:
        storage.download(url, str(folder / name))
        if not holds_content(name, (folder / name).read_bytes()):
            raise DataError(f"{url} changed after it was written. Run the same command again, which writes it again")
        return name

    with exclusive(cache_folder(kind) / ".lock"):
        entry = find_entry(kind, name)
        if entry is None:
            _remove_old(cache_folder(kind))
            entry = add_entry(kind, name, fetch)
    return str(entry / name)


def _remove_old(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and entry.stat().st_mtime < time.time() - _COPIES_KEPT_SECONDS:
            shutil.rmtree(entry, ignore_errors=True)


def _describe(folder: Path) -> dict[str, list[int]]:
    """The size of each file, and when it was last written."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != _RECORD)
    return {str(path.relative_to(folder)): [path.stat().st_size, path.stat().st_mtime_ns] for path in files}


def _is_whole(folder: Path) -> bool:
    """Whether nothing was cut short, changed or removed since the entry's content was checked."""
    try:
        checked, found = parse_json((folder / _RECORD).read_text()), _describe(folder)
        return all(found.get(name) == state for name, state in checked.items())
    except (OSError, ValueError, AttributeError):
        return False
