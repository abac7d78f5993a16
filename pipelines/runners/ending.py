"""How a signal ends this process: at once, or, for the first SIGTERM in a job, after the shards in progress.

Machines that are taken away send SIGTERM and leave some seconds: no further shard starts, and the finished ones are
kept. Only the standard library is imported: the command line starts with this module.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn, Protocol

GRACE_SECONDS = 25.0
_POLL_SECONDS = 0.05


class Interrupted(BaseException):
    """A signal was received. Not KeyboardInterrupt, which typer would turn into a silent exit."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Job(Protocol):
    """What runs shards in this process or its children."""

    def start_no_more(self) -> None:
        """From now on no shard is started."""

    def is_busy(self) -> bool:
        """Whether a shard is in progress."""


class Ending:
    """The end of this process by a signal; `grace_seconds` are what the shards in progress get."""

    def __init__(self) -> None:
        self.grace_seconds = GRACE_SECONDS
        self._job: Job | None = None
        self._begun = False

    @contextlib.contextmanager
    def after(self, job: Job) -> Iterator[None]:
        """In the `with` block, which calls `check` often, the first SIGTERM waits for the shards of a job."""
        self._job = job
        try:
            yield
            while self.check():
                time.sleep(_POLL_SECONDS)
        finally:
            self._job = None

    def check(self) -> bool:
        """Whether the end has begun.

        Raises:
            Interrupted: it has, and no shard is in progress any more.
        """
        if self._begun and (self._job is None or not self._job.is_busy()):
            raise Interrupted(signal.SIGTERM)
        return self._begun

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Handles SIGTERM and Ctrl-C."""
        job = self._job
        if number != signal.SIGTERM or self._begun or job is None or not self.grace_seconds:
            raise Interrupted(number)
        self._begun = True
        job.start_no_more()
        self.check()
        signal.signal(signal.SIGALRM, _end)
        signal.setitimer(signal.ITIMER_REAL, self.grace_seconds)
        words = f"SIGTERM: no shard is started any more, those in progress have {self.grace_seconds:g} seconds\n"
        # Standard error may be in the middle of a line.
        with contextlib.suppress(OSError):
            os.write(2, words.encode())


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted(signal.SIGTERM)


ENDING = Ending()
