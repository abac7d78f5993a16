"""Local paths that are neither files nor folders: opening one may block, and reading it may never end."""

import os
import stat

from beamrank.errors import PreflightError

_PIPE = "a named pipe (FIFO)"
_KINDS = {stat.S_IFIFO: _PIPE, stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def is_pipe(path: str) -> bool:
    """Whether a path is a named pipe, such as the shell's <(...): it can be read only once."""
    return _kind(path) == _PIPE


def check_regular(path: str) -> None:
    """Makes sure that a path, if it exists, is a file or a folder.

    Raises:
        PreflightError: it is a named pipe, a socket or a device.
    """
    kind = _kind(path)
    if kind is not None:
        reason = ", and a job reads its inputs more than once" if kind == _PIPE else ""
        raise PreflightError(f"{path} is {kind}{reason}: give a regular file")


def _kind(path: str) -> str | None:
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except (OSError, ValueError):
        return None
