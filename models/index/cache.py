"""The cache of this machine: local copies of remote indexes, and the locks that guard them."""

import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fasteners

from beamrank import storage
from beamrank.errors import PreflightError
from beamrank.fingerprint import SHORT
from models.index.info import INFO_NAME, describe_files, files_digest, read_index_info

_READY_NAME = "READY"
_thread_locks: dict[str, threading.Lock] = {}


def local_index(url: str, index_digest: str) -> str:
    """A local folder with an index: the folder itself, or a copy of a remote one, made once a machine.

    Copies are in `indexes/DIGEST` below BEAMRANK_CACHE, by default ~/.cache/beamrank.

    Args:
        url: the index folder.
        index_digest: `IndexInfo.digest` of it.

    Raises:
        PreflightError: the index is no longer the one with this digest, or the copy cannot be written.
    """
    if not storage.is_remote(url):
        return storage.absolute(url)
    folder = cache_folder("indexes") / index_digest
    if not (folder / _READY_NAME).exists():
        with exclusive(folder.parent / f".{index_digest}.lock"):
            if not (folder / _READY_NAME).exists():
                _download(url, index_digest, folder)
    return str(folder)


def cache_folder(name: str) -> Path:
    """A folder for what can be fetched or built again: below BEAMRANK_CACHE, by default ~/.cache/beamrank."""
    root = os.environ.get("BEAMRANK_CACHE") or "~/.cache/beamrank"
    return Path(root).expanduser().absolute() / name


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


def _download(url: str, index_digest: str, folder: Path) -> None:
    for stale in folder.parent.glob(f".{index_digest}.tmp-*"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = folder.with_name(f".{index_digest}.tmp-{uuid.uuid4().hex}")
    temporary.mkdir()
    try:
        info = read_index_info(url)
        for name in [*info.files, INFO_NAME] if info.corpus_digest else info.files:
            with storage.open_binary(storage.join(url, name)) as source, open(temporary / name, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 22)
        if files_digest(describe_files(str(temporary))) != index_digest:
            raise PreflightError(
                f"the index {url} is not, or no longer, the one with digest {index_digest[:SHORT]} that this run was "
                "planned with. Start the run again, or build the index again"
            )
        (temporary / _READY_NAME).touch()
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except OSError as error:
        raise PreflightError(f"cannot copy the index {url} to {folder}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
