"""Local files and folders that appear whole or not at all; devices and pipes; arrays that are
mapped into memory.

A file is written under a hidden name, then moved into place. Meanwhile its writer holds a lock on
it, so that what a killed process left can be removed later, and nothing else. Devices, pipes
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import psutil

from beamrank.errors import PreflightError
from beamrank.machine import machine_id
from beamrank.system import system

TEMPORARY_SUFFIX = ".tmp"
_TEMPORARY = re.compile(r"\.(?P<base>.+)\.(?P<machine>[0-9a-f]{8})-[0-9a-f]{12}\.tmp", re.DOTALL)
# Whether the writer of a different machine runs is unknown, but it writes all the time.
_ABANDONED_SECONDS = 3600.0
_LONGEST_BASE_BYTES = 200
# Errors of file systems that have no hard links, no such rename or no sync.
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
        raise PreflightError(
            f"{path} is {kind}{reason}: give a regular file", kind="not-regular", file=path
        )


def _kind(path: str) -> str | None:
    try:
        return _KINDS.get(stat.S_IFMT(system.stat(path).st_mode))
    except (OSError, ValueError):
        return None


def _own_descriptor(path: str) -> int | None:
    """The number of an open file of this process that a path leads to."""
    descriptors = f"/proc/{system.getpid()}/fd"
    for _ in range(8):
        if (
            system.path.realpath(os.path.dirname(path)) == descriptors
            and os.path.basename(path).isdecimal()
        ):
            return int(os.path.basename(path))
        if not system.path.islink(path):
            return None
        path = os.path.join(os.path.dirname(path), system.readlink(path))
    return None


def _open_special(path: str) -> BinaryIO | None:
    """Opens a path that cannot be replaced for writing; None for any other path."""
    descriptor = _own_descriptor(path)
    if descriptor is not None:
        # Not by its name: a file that the shell opened for appending would be cut.
        return open(system.dup(descriptor), "wb")
    kind = _kind(path)
    if kind in (_SOCKET, _DISK):
        raise PreflightError(
            f"{path} is {kind}, to which no file can be written: give the path of a file"
        )
    return None if kind is None else open(path, "wb")


def mount(path: str) -> list[str]:
    """The kind and the device or server of the file system that holds a path; empty if unknown."""
    real = f"{system.path.realpath(path)}/"
    mounts = [
        (len(mount.mountpoint), mount.fstype, mount.device)
        for mount in psutil.disk_partitions(all=True)
        if real.startswith(f"{mount.mountpoint.rstrip('/')}/")
    ]
    return list(max(mounts, default=(0, "", ""))[1:])


def temporary_name(base: str) -> str:
    """A new hidden name for what becomes `base`; it tells on which machine that is written."""
    if len(os.fsencode(base)) > _LONGEST_BASE_BYTES:
        base = base[: _LONGEST_BASE_BYTES // 4]
    return f".{base}.{machine_id()}-{system.uuid4().hex[:12]}{TEMPORARY_SUFFIX}"


def _new_file(path: str) -> Any:
    return system.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)


def _new_folder(path: str, mode: int = 0o777) -> Any:
    system.mkdir(path, mode)
    return system.open(path, os.O_RDONLY)


@contextmanager
def _held(path: str, make: Callable[[str], int]) -> Iterator[int]:
    """The file or folder that `make` makes, locked by its descriptor until the `with` block ends,
    and removed then if it is still there.
    """
    while True:
        descriptor = make(path)
        # Some file systems have no locks.
        with suppress(OSError):
            system.flock(descriptor, system.LOCK_EX)
        # Before it was locked, it looked like the file of a process that has ended.
        if system.path.lexists(path):
            break
        system.close(descriptor)
    try:
        yield descriptor
    finally:
        _remove(path)
        system.close(descriptor)


def _remove(path: str) -> None:
    with suppress(OSError):
        if system.path.isdir(path) and not system.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            system.unlink(path)


@contextmanager
def held_file(path: str, content: bytes) -> Iterator[None]:
    """A new file that shows others by its lock that this process is in the `with` block."""
    system.makedirs(os.path.dirname(path), exist_ok=True)
    with _held(path, _new_file) as descriptor:
        system.write(descriptor, content)
        yield


@contextmanager
def holder_ended(
    path: str, machine: str, age_seconds: float | None, most_seconds: float
) -> Iterator[bool]:
    """Whether the process that made a locked file or folder has ended; in the `with` block that
    stays so.

    Args:
        path: the file or folder.
        machine: the `machine_id` of the process. The lock of one on this machine decides, whatever
            its clock does; elsewhere, or without locks, the age does.
        age_seconds: since it was written, by one clock; None where that is unknown.
        most_seconds: the greatest age that a running process lets it have.
    """
    is_old = age_seconds is not None and age_seconds > most_seconds
    try:
        descriptor = system.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        yield isinstance(error, FileNotFoundError) or is_old
        return
    try:
        try:
            system.flock(descriptor, system.LOCK_SH | system.LOCK_NB)
            ended = is_old or machine == machine_id()
        except OSError as error:
            ended = is_old and not isinstance(error, BlockingIOError)
        yield ended
    finally:
        system.close(descriptor)


def final_name(name: str) -> str | None:
    """The name that a temporary file of ours is to get; None for any other file."""
    match = _TEMPORARY.fullmatch(name)
    return None if match is None else match["base"]


def remove_leftovers(folder: str, base: str | None = None) -> None:
    """Removes temporary files and folders whose writer has ended: for one target, or all in a
    folder.

    A writer on a different machine has ended if its file was not written for an hour, by the clock
    of the folder's file system.
    """
    # Others may remove them too, or not let us.
    with suppress(OSError), system.scandir(folder) as entries:
        for entry in entries:
            match = _TEMPORARY.fullmatch(entry.name)
            if match is None or base not in (None, match["base"]):
                continue
            with suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                # Files in a folder are written without a change of its time.
                age = None if entry.is_dir() else system.stat(folder).st_mtime - about.st_mtime
                with holder_ended(entry.path, match["machine"], age, _ABANDONED_SECONDS) as ended:
                    if ended:
                        _remove(entry.path)


@contextmanager
def new_folder(target: str | Path) -> Iterator[Path]:
    """A hidden, empty folder beside a target, renamed to it when the `with` block ends.

    The target must not exist, or be an empty folder; a link to such a one stays a link. After an
    error nothing is left.
    """
    target = Path(system.path.realpath(target))
    remove_leftovers(str(target.parent), target.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(temporary_name(target.name))
    with _held(str(temporary), _new_folder):
        yield temporary
        temporary.rename(target)


@contextmanager
def own_temporary_files() -> Iterator[None]:
    """Puts temporary files, such as Beam leaves of each job, into a folder that this or a later
    command removes.
    """
    before = tempfile.tempdir
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise PreflightError(
            "no temporary folder can be written, and Beam needs one: set TMPDIR to one (in a "
            f"container with a read-only file system, mount a volume there): {error.strerror}"
        ) from error
    remove_leftovers(folder, "beamrank")
    ours = os.path.join(folder, temporary_name("beamrank"))
    with _held(ours, partial(_new_folder, mode=0o700)):
        tempfile.tempdir = ours
        try:
            yield
        finally:
            tempfile.tempdir = before


def publish_file(path: str, content: bytes) -> bool:
    """Writes a file that does not exist yet, whole or not at all; returns whether it did."""
    with _written_beside(path, [content]) as temporary:
        is_new = _move_to_new(temporary, path)
        # Another writer that was first may not have synced it yet, and what is published next, such
        # as a receipt, must not survive a power failure alone.
        _sync_folder(path)
        return is_new


def replace_file(
    path: str, chunks: Iterable[bytes], *, through_link: bool = False, removes_old: bool = False
) -> None:
    """Writes a file whole, in the place of an existing one or of a link.

    With `through_link`, a link stays, and its target is replaced. With `removes_old`, the temporary
    files of killed writers of the file are removed first. A device, a pipe or an open file of this
    process is written to, as far as an error in the middle.
    """
    if through_link or not system.path.islink(path):
        with _naming(path):
            special = _open_special(path)
            if special is not None:
                with special:
                    special.writelines(chunks)
                return
    if through_link:
        path = system.path.realpath(path)
    if removes_old:
        remove_leftovers(*os.path.split(path))
    with _written_beside(path, chunks) as temporary:
        system.replace(temporary, path)
        _sync_folder(path)


@contextmanager
def _written_beside(path: str, chunks: Iterable[bytes]) -> Iterator[str]:
    """A hidden file beside a target, whose folder is made if needed; it is removed at the end if it
    is still there.

    The file survives a power failure once its folder is synced too.
    """
    folder, base = os.path.split(path)
    system.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, temporary_name(base))
    with _naming(path, temporary), _held(temporary, _new_file) as descriptor:
        # Some mounts store a file only when it is closed.
        with system.fdopen(system.dup(descriptor), "wb") as file:
            file.writelines(chunks)
            file.flush()
            _sync(file.fileno())
        yield temporary


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
        system.link(temporary, path)
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
        system.close(system.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        return False
    system.replace(temporary, path)
    return True


def _sync_folder(path: str) -> None:
    descriptor = system.open(os.path.dirname(path), os.O_RDONLY)
    try:
        _sync(descriptor)
    finally:
        system.close(descriptor)


def _sync(descriptor: int) -> None:
    """Syncs a file or folder where its file system can: folders on SMB, and on mounts by FUSE,
    often cannot.
    """
    try:
        system.fsync(descriptor)
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
