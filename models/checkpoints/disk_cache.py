"""The cache of this machine: folders that were fetched from elsewhere, by their content.

An entry is a folder `KIND/NAME` below BEAMRANK_CACHE, named by the digest of what it holds. It is fetched under a lock
into a hidden folder and renamed when it is whole. A process that uses one keeps it locked until it ends. When entries
outgrow BEAMRANK_CACHE_BYTES together, those that were not used for longest are removed, but never one in use.
"""

import fcntl
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fasteners

from beamrank.errors import ConfigError, PreflightError
from beamrank.storage.documents import parse_json
from beamrank.storage.url_credentials import refuse_credentials

_RECORD = ".beamrank-cache.json"
_UNFINISHED = ".fetching-"
_DEFAULT_BYTES = 20 << 30
_thread_locks: dict[str, threading.Lock] = {}
_in_use: dict[str, int] = {}


def cache_root() -> Path:
    """Where copies are kept that can be fetched again: BEAMRANK_CACHE, or ~/.cache/beamrank.

    Raises:
        ConfigError: BEAMRANK_CACHE can carry a credential.
    """
    folder = os.environ.get("BEAMRANK_CACHE") or "~/.cache/beamrank"
    refuse_credentials(folder, "BEAMRANK_CACHE")
    return Path(folder).expanduser().absolute()


def cache_folder(kind: str) -> Path:
    """The folder of one kind of entries."""
    return cache_root() / kind


def limit_bytes() -> int:
    """How much the entries may take together: BEAMRANK_CACHE_BYTES, or 20 GiB.

    Raises:
        ConfigError: BEAMRANK_CACHE_BYTES is no number.
    """
    text = os.environ.get("BEAMRANK_CACHE_BYTES") or str(_DEFAULT_BYTES)
    if not text.isdecimal():
        raise ConfigError(f"BEAMRANK_CACHE_BYTES is {text!r}: give a number of bytes, such as {_DEFAULT_BYTES}")
    return int(text)


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
        try:
            yield
        finally:
            lock.release()


def held_entry(kind: str, name: str) -> Path | None:
    """An entry that is whole, in use by this process from now on; None where there is none, or a damaged one."""
    folder = cache_folder(kind) / name
    descriptor = _in_use.get(str(folder))
    if descriptor is None:
        descriptor = _open_folder(folder)
        if descriptor is None:
            return None
        # Waits for whoever is removing the folder right now.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    if not (_is_at(folder, descriptor) and _is_whole(folder)):
        _in_use.pop(str(folder), None)
        os.close(descriptor)
        return None
    _in_use[str(folder)] = descriptor
    os.utime(folder / _RECORD)
    return folder


def discard_entry(folder: Path) -> None:
    """Makes `add_entry` fetch an entry again, whose content turned out to be wrong."""
    (folder / _RECORD).unlink(missing_ok=True)


def add_entry(kind: str, fetch: Callable[[Path], str]) -> Path:
    """Adds an entry, in use by this process from now on, and removes others where the cache has grown too large.

    Args:
        kind: `indexes` or `checkpoints`.
        fetch: fills an empty folder and returns the entry's name: the digest of what it holds, which it has checked.

    Raises:
        OSError: the cache cannot be written.
    """
    limit = limit_bytes()
    temporary = cache_folder(kind) / f"{_UNFINISHED}{uuid.uuid4().hex}"
    with exclusive(cache_root() / ".lock"):
        temporary.mkdir(parents=True)
        descriptor = os.open(temporary, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        name = fetch(temporary)
        (temporary / _RECORD).write_text(json.dumps(_describe(temporary)))
        with exclusive(cache_root() / ".lock"):
            folder = held_entry(kind, name)
            if folder is None:
                folder = cache_folder(kind) / name
                shutil.rmtree(folder, ignore_errors=True)
                temporary.rename(folder)
                # The lock is the folder's own, whatever its name.
                _in_use[str(folder)] = os.dup(descriptor)
            _shrink(limit)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(descriptor)
    return folder


def _open_folder(folder: Path) -> int | None:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_at(folder: Path, descriptor: int) -> bool:
    """Whether an open folder still is where it was opened."""
    try:
        return os.path.samestat(os.stat(folder), os.fstat(descriptor))
    except FileNotFoundError:
        return False


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


def _shrink(limit: int) -> None:
    """Removes what killed processes left, then the entries that were not used for longest, save those in use."""
    folders = [folder for folder in cache_root().glob("*/*") if folder.is_dir()]
    for folder in folders:
        if folder.name.startswith(_UNFINISHED):
            _remove_unused(folder)
    entries = sorted((_last_use(folder), folder) for folder in folders if (folder / _RECORD).exists())
    total = sum(_size_bytes(folder) for _, folder in entries)
    for _, folder in entries:
        if total <= limit:
            return
        size = _size_bytes(folder)
        if _remove_unused(folder):
            total -= size


def _last_use(folder: Path) -> float:
    with suppress(OSError):
        return (folder / _RECORD).stat().st_mtime
    return time.time()


def _size_bytes(folder: Path) -> int:
    return sum(size for size, _ in _describe(folder).values())


def _remove_unused(folder: Path) -> bool:
    """Removes a folder that no process uses; whether it did."""
    descriptor = _open_folder(folder)
    if descriptor is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        # Out of its name first: whoever waits for the lock then sees that the entry is gone.
        doomed = folder.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
        return True
    finally:
        os.close(descriptor)
