"""Local files and folders that appear whole or not at all; devices and pipes; arrays that are
mapped into memory.

A file is written under a hidden name, then moved into place. The hidden name tells which process
writes, so that what a killed process left can be removed later, and nothing else. Devices, pipes
and sockets are neither files nor folders: opening one may block, reading it may never end, and no
file can replace it.
"""

import ctypes
import errno
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from beamrank.errors import PreflightError
from beamrank.machine import is_running, machine_id, start_seconds

TEMPORARY_SUFFIX = ".tmp"
_TEMPORARY = re.compile(
    r"\.(?P<base>.+)\.(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-(?P<started>\d+)-[0-9a-f]{8}\.tmp",
    re.DOTALL,
)
# Whether the writer of a different machine runs is unknown, but it writes all the time.
_ABANDONED_SECONDS = 3600.0
_LONGEST_BASE_BYTES = 200
# What file systems answer that have no hard links, no such rename or no sync.
_NOT_SUPPORTED = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EMLINK)
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE, errno.EIO)
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1
_PIPE, _SOCKET, _DISK = "a named pipe (FIFO)", "a socket", "a disk"
_KINDS = {
    stat.S_IFIFO: _PIPE,
    stat.S_IFSOCK: _SOCKET,
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: _DISK,
}


def is_pipe(path: str) -> bool:
    """Whether a path is a named pipe, such as the shell's <(...): it can be read only once."""
    return _kind(path) == _PIPE


def is_stream(path: str) -> bool:
    """Whether a path is a named pipe, or an open file of this process (/dev/stdin, /dev/fd/3)."""
    return is_pipe(path) or _own_descriptor(path) is not None


def is_special(path: str) -> bool:
    """Whether a path cannot be replaced by a file: a pipe, a device, or an open file (/dev/stdout,
    /dev/fd/3).
    """
    return _kind(path) is not None or _own_descriptor(path) is not None


def check_regular(path: str) -> None:
    """Raises PreflightError for a named pipe, a socket or a device."""
    kind = _kind(path)
    if kind is not None:
        reason = ", and a job reads its inputs more than once" if kind == _PIPE else ""
        raise PreflightError(f"{path} is {kind}{reason}: give a regular file")


def _kind(path: str) -> str | None:
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except (OSError, ValueError):
        return None


def _own_descriptor(path: str) -> int | None:
    """The number of an open file of this process that a path leads to."""
    own = f"/proc/{os.getpid()}/fd"
    for _ in range(8):
        if os.path.realpath(os.path.dirname(path)) == own and os.path.basename(path).isdecimal():
            return int(os.path.basename(path))
        if not os.path.islink(path):
            return None
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return None


def _open_special(path: str) -> BinaryIO | None:
    """Opens a path that cannot be replaced for writing; None for any other path."""
    descriptor = _own_descriptor(path)
    if descriptor is not None:
        # Not by its name: a file that the shell opened for appending would be cut.
        return open(os.dup(descriptor), "wb")
    kind = _kind(path)
    if kind in (_SOCKET, _DISK):
        raise PreflightError(
            f"{path} is {kind}, to which no file can be written: give the path of a file"
        )
    return None if kind is None else open(path, "wb")


def temporary_name(base: str) -> str:
    """A new hidden name for what becomes `base`; it tells which process writes."""
    if len(os.fsencode(base)) > _LONGEST_BASE_BYTES:
        base = base[: _LONGEST_BASE_BYTES // 4]
    writer = f"{machine_id()}-{os.getpid()}-{int(start_seconds())}-{uuid.uuid4().hex[:8]}"
    return f".{base}.{writer}{TEMPORARY_SUFFIX}"


def remove_leftovers(folder: str, base: str | None = None) -> None:
    """Removes temporary files and folders whose writer has ended: those of one target, or all in a
    folder.

    A writer on this machine has ended if its process has; one on a different machine if its file
    was not written for an hour.
    """
    # Others may remove them too, or not let us.
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = _TEMPORARY.fullmatch(entry.name)
            if (
                found is None
                or base not in (None, found["base"])
                or not _is_abandoned(entry, found)
            ):
                continue
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


def _is_abandoned(entry: "os.DirEntry[str]", found: re.Match[str]) -> bool:
    if found["machine"] == machine_id():
        return not is_running(int(found["pid"]), float(found["started"]))
    # Files in a folder are written without a change of its time.
    with suppress(OSError):
        age = time.time() - entry.stat(follow_symlinks=False).st_mtime
        return entry.is_file(follow_symlinks=False) and age > _ABANDONED_SECONDS
    return False


@contextmanager
def new_folder(target: str | Path) -> Iterator[Path]:
    """A hidden, empty folder beside a target, renamed to it when the `with` block ends.

    The target must not exist, or be an empty folder; a link to such a one stays a link. After an
    error nothing is left.
    """
    target = Path(os.path.realpath(target))
    remove_leftovers(str(target.parent), target.name)
    temporary = target.with_name(temporary_name(target.name))
    try:
        temporary.mkdir(parents=True)
        yield temporary
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def own_temporary_files() -> Iterator[None]:
    """Puts temporary files, such as Beam leaves of each job, into a folder that this or a later
    command removes.
    """
    before, folder = tempfile.tempdir, tempfile.gettempdir()
    remove_leftovers(folder, "beamrank")
    tempfile.tempdir = own = os.path.join(folder, temporary_name("beamrank"))
    os.mkdir(own, 0o700)
    try:
        yield
    finally:
        tempfile.tempdir = before
        shutil.rmtree(own, ignore_errors=True)


def publish_file(path: str, content: bytes) -> bool:
    """Writes a file that does not exist yet, whole or not at all; returns whether it did."""
    with _written_beside(path, [content]) as temporary:
        is_new = _move_to_new(temporary, path)
        if is_new:
            _sync_folder(path)
        return is_new


def replace_file(path: str, chunks: Iterable[bytes]) -> None:
    """Writes a file whole, in the place of an existing one.

    The target of a link is replaced, and the link stays. A device, a pipe or an open file of this
    process is written to, as far as an error in the middle.
    """
    with _naming(path):
        special = _open_special(path)
        if special is not None:
            with special:
                special.writelines(chunks)
            return
    path = os.path.realpath(path)
    with _written_beside(path, chunks) as temporary:
        os.replace(temporary, path)
        _sync_folder(path)


@contextmanager
def _written_beside(path: str, chunks: Iterable[bytes]) -> Iterator[str]:
    """A hidden file beside a target, whose folder is made if needed; it is removed at the end if it
    is still there.

    The file survives a power failure once its folder is synced too.
    """
    folder, base = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, temporary_name(base))
    try:
        with _naming(path, temporary):
            with open(temporary, "wb") as file:
                file.writelines(chunks)
                file.flush()
                _sync(file.fileno())
            yield temporary
    finally:
        Path(temporary).unlink(missing_ok=True)


@contextmanager
def _naming(path: str, temporary: str = "") -> Iterator[None]:
    """Names a file in errors of writing it; Python does not, or names the temporary one."""
    try:
        yield
    except OSError as error:
        if error.filename == temporary or (error.errno in _WRITE_ERRORS and error.filename is None):
            error.filename = path
        raise


def _move_to_new(temporary: str, path: str) -> bool:
    """Gives a file a name that does not exist; False if it does."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        # exFAT, SMB, and most object stores that are mounted have no hard links.
        if error.errno not in _NOT_SUPPORTED:
            raise
        return _rename_to_new(temporary, path)
    return True


def _rename_to_new(temporary: str, path: str) -> bool:
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "renameat2"):
        names = os.fsencode(temporary), os.fsencode(path)
        if library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE) == 0:
            return True
        number = ctypes.get_errno()
        if number == errno.EEXIST:
            return False
        if number not in _NOT_SUPPORTED:
            raise OSError(number, os.strerror(number), temporary, None, path)
    # One writer makes the name. Until it has renamed its file, others find an empty one, which
    # counts as damaged.
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        return False
    os.replace(temporary, path)
    return True


def _sync_folder(path: str) -> None:
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """Syncs a file or folder where its file system can: folders on SMB, and on mounts by FUSE,
    often cannot.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise


def map_array(path: str | Path) -> npt.NDArray[Any]:
    """The array of a .npy file, mapped into memory; read into it where a mount, such as some by
    FUSE, maps no files.
    """
    try:
        return np.asanyarray(np.load(path, mmap_mode="r"))
    except OSError:
        return np.asanyarray(np.load(path))


def map_numbers(path: str | Path, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The numbers of a file that holds nothing else, mapped or read as in `map_array`."""
    if Path(path).stat().st_size == 0:
        return np.empty(0, dtype)
    try:
        return np.memmap(path, dtype, mode="r")
    except OSError:
        return np.fromfile(path, dtype)
