"""Local paths that are neither files nor folders: opening one may block, reading it may never end, and it cannot be
replaced by a file.
"""

import os
import stat
from typing import BinaryIO

from beamrank.errors import PreflightError

_PIPE, _DEVICE = "a named pipe (FIFO)", "a device"
_SOCKET, _DISK = "a socket", "a disk"
_KINDS = {stat.S_IFIFO: _PIPE, stat.S_IFSOCK: _SOCKET, stat.S_IFCHR: _DEVICE, stat.S_IFBLK: _DISK}


def is_pipe(path: str) -> bool:
    """Whether a path is a named pipe, such as the shell's <(...): it can be read only once."""
    return _kind(path) == _PIPE


def is_special(path: str) -> bool:
    """Whether a path cannot be replaced by a file: a pipe, a device, or an open file (/dev/stdout, /dev/fd/3)."""
    return _kind(path) is not None or _own_descriptor(path) is not None


def check_regular(path: str) -> None:
    """Makes sure that a path, if it exists, is a file or a folder.

    Raises:
        PreflightError: it is a named pipe, a socket or a device.
    """
    kind = _kind(path)
    if kind is not None:
        reason = ", and a job reads its inputs more than once" if kind == _PIPE else ""
        raise PreflightError(f"{path} is {kind}{reason}: give a regular file")


def open_special(path: str) -> BinaryIO | None:
    """Opens a path that cannot be replaced for writing; None for any other path.

    Raises:
        PreflightError: it is a socket or a disk, which nobody means to write a file to.
    """
    descriptor = _own_descriptor(path)
    if descriptor is not None:
        # Not by its name: a file that the shell opened for appending would be cut.
        return open(os.dup(descriptor), "wb")
    kind = _kind(path)
    if kind in (_SOCKET, _DISK):
        raise PreflightError(f"{path} is {kind}, to which no file can be written: give the path of a file")
    return None if kind is None else open(path, "wb")


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
