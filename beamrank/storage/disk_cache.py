"""The cache of this machine: folders that were fetched from elsewhere.

An entry is a folder `KIND/NAME` below BEAMRANK_CACHE, whose name identifies its content. It is
fetched under a lock into a hidden folder and renamed when it is whole. Nothing is removed to make
room, except for copies of files of a job (`local_copy`): delete the cache, or an entry, at any time
when no process uses it.
"""

import json
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fasteners

from beamrank.errors import DataError, PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, holds_content, parse_json, sha256
from beamrank.storage.urls import refuse_credentials

_RECORD = ".beamrank-cache.json"
_COPIES_KEPT_SECONDS = 24 * 3600.0
_thread_locks: dict[str, threading.Lock] = {}


def cache_root() -> Path:
    """The folder of copies that can be fetched again: BEAMRANK_CACHE, or ~/.cache/beamrank.

    Raises:
        PreflightError: it is in the home of a user who has none.
    """
    folder = os.environ.get("BEAMRANK_CACHE") or "~/.cache/beamrank"
    refuse_credentials(folder, "BEAMRANK_CACHE")
    try:
        return Path(folder).expanduser().absolute()
    except RuntimeError as error:
        raise PreflightError(
            f"the cache of this machine would be {folder}, and this user has no home folder: set "
            "BEAMRANK_CACHE or HOME"
        ) from error


def cache_folder(kind: str) -> Path:
    """The folder of one kind of entries; raises PreflightError as `owned`."""
    return owned(cache_root() / kind)


def owned(path: Path) -> Path:
    """A path in the cache; raises PreflightError where a different user can have made it, or a
    folder above it, to be read or run here.
    """
    for folder in (*_above(path), *_above(path.resolve())):
        with suppress(FileNotFoundError):
            anyone = folder.parent.stat().st_mode & stat.S_IWOTH
            if anyone and folder.lstat().st_uid not in (0, os.geteuid()):
                problem = f"belongs to a different user, and everyone can write to {folder.parent}"
                raise PreflightError(
                    f"{folder} in the cache {problem}: set BEAMRANK_CACHE to a folder of your own",
                    kind="other-user",
                    file=str(folder),
                )
    return path


def _above(path: Path) -> Iterator[Path]:
    """A path and the folders above it, below the home that is the user's own."""
    home = Path(os.environ.get("HOME", "/"))
    for folder in (path, *path.parents):
        if folder == home and folder.exists() and folder.stat().st_uid == os.geteuid():
            return
        yield folder


@contextmanager
def exclusive(lock_path: Path) -> Iterator[None]:
    """Keeps other threads and processes of this machine out; raises PreflightError where nothing
    can be written.
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
            # The file system has no locks. One elsewhere on this machine keeps the same processes
            # out.
            name = (
                f"beamrank-{os.getuid()}-{sha256(os.fsencode(lock_path.absolute()))[:SHORT]}.lock"
            )
            lock = fasteners.InterProcessLock(os.path.join(tempfile.gettempdir(), name))
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def fetched(kind: str, name: str, fetch: Callable[[Path], None]) -> Path:
    """An entry, which is fetched where this machine does not have it, whole.

    Args:
        kind: such as `indexes`.
        name: identifies the content.
        fetch: fills an empty folder, and checks what it has fetched.

    Raises:
        OSError: the cache cannot be written.
    """
    folder = owned(cache_folder(kind) / name)
    temporary = folder.with_name(f".fetching-{name}")
    with exclusive(folder.with_name(f".{name}.lock")):
        if not _is_complete(folder):
            # Leftovers of a killed process.
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            try:
                fetch(temporary)
                (temporary / _RECORD).write_text(json.dumps(_describe(temporary)))
                shutil.rmtree(folder, ignore_errors=True)
                temporary.rename(folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return folder


def discard(folder: Path) -> None:
    """Makes `fetched` fetch an entry again, whose content turned out to be wrong."""
    (folder / _RECORD).unlink(missing_ok=True)


def local_copy(kind: str, url: str) -> str:
    """The path of a file that is named by its content; where it is at a store, of a copy that this
    machine makes once.

    Copies that are a day old are removed when one is made; a process that has mapped one keeps it.

    Raises:
        DataError: the file does not hold the content of its name.
    """
    if not storage.is_remote(url):
        return storage.absolute(url)
    name = storage.name(url)

    def fetch(folder: Path) -> None:
        for old in cache_folder(kind).glob("[!.]*"):
            if old.stat().st_mtime < time.time() - _COPIES_KEPT_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        storage.download(url, str(folder / name))
        if not holds_content(name, (folder / name).read_bytes()):
            raise DataError(
                f"{url} changed after it was written. Run the same command again, which writes it "
                "again"
            )

    return str(fetched(kind, name, fetch) / name)


def _describe(folder: Path) -> dict[str, list[int]]:
    """The size of each file, and when it was last written."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != _RECORD)
    return {
        str(path.relative_to(folder)): [path.stat().st_size, path.stat().st_mtime_ns]
        for path in files
    }


def _is_complete(folder: Path) -> bool:
    """Whether nothing was cut short, changed or removed since the entry's content was checked."""
    try:
        checked, present = parse_json((folder / _RECORD).read_text()), _describe(folder)
        return all(present.get(name) == state for name, state in checked.items())
    except (OSError, ValueError, AttributeError):
        return False
