"""Errors that users see. Each message names the problem, its place and effect, and a remedy."""

import re
from typing import Any

_NO_THREAD = re.compile(
    r"RuntimeError: can't start new thread|BlockingIOError: \[Errno 11\]"
    r"|[\w.]*OutOfMemoryError: unable to create native thread"
)


class BeamrankError(Exception):
    """A job failed; the command ends with exit code 1.

    Attributes:
        kind: a short constant for the reason, mostly of an input that cannot be read:
            `column-twice`. docs/reference/errors.md lists the kinds of all errors.
        file: the input's.
        place: the line, byte or row there.
    """

    exit_code = 1

    def __init__(
        self, message: str = "", *, kind: str = "", file: str = "", place: int | None = None
    ) -> None:
        super().__init__(message)
        self.kind, self.file, self.place = kind, file, place

    @property
    def of_input(self) -> dict[str, Any]:
        """The fields of the error about an input, to raise it as another class."""
        return {"kind": self.kind, "file": self.file, "place": self.place}


class ConfigError(BeamrankError):
    """Flags or a configuration are wrong; found before anything starts."""

    exit_code = 2


class PreflightError(BeamrankError):
    """A file, a model or a runner is missing or invalid; found before anything starts."""

    exit_code = 3


class TemporaryError(BeamrankError):
    """Another attempt may succeed: a store or a server does not answer, an output is in use, or
    shards are left open.
    """

    exit_code = 75


class LeftOpenError(TemporaryError):
    """A shard cannot be done now, such as where a server does not answer: it is left open for the
    next run, and others are done.
    """


class DataError(BeamrankError):
    """Input data is invalid."""


class ReceiptError(BeamrankError):
    """A stage's output does not match its receipts."""


class WorkerLostError(BeamrankError):
    """A worker process or a job server died: nothing is wrong with the data, and another attempt
    may succeed.
    """


def exit_code(error: BaseException) -> int:
    """The exit code of a command that ends with an error, or of the first error behind it that
    another attempt may cure.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, TemporaryError):
        cause = cause.__cause__
    return int(getattr(cause or error, "exit_code", BeamrankError.exit_code))


def thread_limit(error: str) -> str:
    """What follows an error, `Class: message`, of a thread or process that could not be started;
    empty for others.
    """
    if _NO_THREAD.match(error) is None:
        return ""
    return (
        ". No more processes and threads may be started here: raise the limit (`ulimit -u`, or the "
        "pids of the container), or lower `threads`"
    )
