"""The log of a command: one line for each event, with its time, level, stage and shard, from the
launcher and its workers.

Every layer logs with the standard `logging` module. `run_log` sets the log up; workers that are
other processes join it with the `LogPlace` that their work carries.
"""

import io
import logging
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import NamedTuple

from beamrank.plugins import PACKAGES
from beamrank.storage import files as storage
from beamrank.storage.urls import shown_message

FOLDER = "logs"
# The log file for workers on this machine, before they have work.
INHERITED = "BEAMRANK_RUN_LOG"
_UPLOAD_SECONDS = 30.0
_REPEATED = ("root", "apache_beam.runners.portability.local_job_service")
_stderr = logging.getLogger("beamrank.stderr")
_logger = logging.getLogger(__name__)
_context: ContextVar[tuple[str, str]] = ContextVar("log_context", default=("-", "-"))


@contextmanager
def log_context(stage: str, shard: int | None = None) -> Iterator[None]:
    """Adds a stage and a shard to the events of this thread."""
    token = _context.set((stage, "-" if shard is None else str(shard)))
    try:
        yield
    finally:
        _context.reset(token)


class EventFormatter(logging.Formatter):
    """`TIME LEVEL STAGE SHARD PID LOGGER MESSAGE`; a traceback follows on indented lines."""

    def format(self, record: logging.LogRecord) -> str:
        time = (
            datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        message = record.getMessage().replace("\n", "\\n")
        event = " ".join(
            (time, record.levelname, *_context.get(), str(os.getpid()), record.name, message)
        )
        trace = self.formatException(record.exc_info).splitlines() if record.exc_info else []
        return shown_message("\n    ".join([event, *trace]))


class RunLog(logging.Handler):
    """Keeps events in memory until it is opened, then appends them to a file.

    Several processes of a machine may append to one file. A file of an object store is a local one
    that is uploaded every half minute, and when the log is closed. A log that cannot be written
    never ends a command.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(EventFormatter())
        self.addFilter(is_event)
        self.url: str | None = None
        # The file on this machine.
        self.path = ""
        self._early = ""
        self._file: int | None = None
        self._ended = threading.Event()

    def open(self, url: str) -> None:
        """Opens the file and writes the early events; OSError where it cannot be created."""
        if storage.is_remote(url):
            self._file, self.path = tempfile.mkstemp(prefix="beamrank-", suffix=".log")
            threading.Thread(
                target=self._keep_uploading, args=(url,), name="log upload", daemon=True
            ).start()
        else:
            self.path = url
            os.makedirs(os.path.dirname(url), exist_ok=True)
            self._file = os.open(url, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self.url = url
        self._write(self._early)

    def emit(self, record: logging.LogRecord) -> None:
        self._write(self.format(record) + "\n")

    def close(self) -> None:
        if self._file is not None and not self._ended.is_set():
            self._ended.set()
            os.close(self._file)
            if self.path != self.url:
                self._upload(str(self.url))
                os.unlink(self.path)
        super().close()

    def _write(self, lines: str) -> None:
        if self._file is None:
            self._early += lines
            return
        with suppress(OSError):
            # One call, so that the lines of several processes do not mix.
            os.write(self._file, lines.encode())

    def _keep_uploading(self, url: str) -> None:
        while not self._ended.wait(_UPLOAD_SECONDS):
            self._upload(url)

    def _upload(self, url: str) -> None:
        with suppress(Exception):
            storage.upload(self.path, url)


def is_event(record: logging.LogRecord) -> bool:
    """Keeps our events and the warnings of libraries, except for loggers that repeat workers'
    warnings.
    """
    if record.name.partition(".")[0] in PACKAGES:
        return True
    return record.levelno >= logging.WARNING and record.name not in _REPEATED


class LogPlace(NamedTuple):
    """The log of a launcher, for workers: the folder, the log's name, and the launcher's file on
    its machine.
    """

    folder: str
    run: str
    host: str
    path: str

    def join(self) -> None:
        """Makes this process log there, unless it already logs."""
        if self.host == socket.gethostname() and os.path.isfile(self.path):
            join_log(self.path)
        else:
            join_log(
                storage.join(
                    self.folder, f"{self.run}-worker-{socket.gethostname()}-{os.getpid()}.log"
                )
            )


_lock = threading.Lock()
_log: RunLog | None = None
_place: LogPlace | None = None


def place() -> LogPlace | None:
    """The log of this process; None if it is not open."""
    return _place


@contextmanager
def run_log(shown: AbstractContextManager[None]) -> Iterator[RunLog]:
    """Logs what happens in the `with` block, with the traceback of the error that ends it.

    `open_in_output` opens the file: an error found before there is an output leaves none. `shown`
    shows events.
    """
    global _log, _place
    log = RunLog()
    uninstall = _install(log)
    try:
        with shown:
            yield log
    except BaseException as error:
        if isinstance(error, Exception):
            _logger.error("failed: %s", error, exc_info=True)
        else:
            _logger.warning("interrupted")
        if log.url is not None:
            error.add_note(f"log file: {log.url}")
        raise
    finally:
        _log = _place = None
        os.environ.pop(INHERITED, None)
        uninstall()
        log.close()


def open_in_output(output: str) -> None:
    """Opens the log of this process in an output, for its workers too; where that fails, there is
    no log.
    """
    global _place
    if _log is None or _log.url is not None:
        return
    run, host = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"), socket.gethostname()
    folder = storage.join(output, FOLDER)
    try:
        _log.open(storage.join(folder, f"{run}-run-{host}-{os.getpid()}.log"))
    except OSError as error:
        print(shown_message(f"warning: there will be no log of this run: {error}"), file=sys.stderr)
        return
    _place = LogPlace(folder, run, host, _log.path)
    os.environ[INHERITED] = _log.path


def join_log(url: str) -> None:
    """Makes a worker process append to a log, until it ends."""
    with _lock, suppress(OSError):
        if _log is None:
            log = RunLog()
            log.open(url)
            _install(log)


def _install(log: RunLog) -> Callable[[], None]:
    """Sends the events of this process to a log; returns what puts its loggers back."""
    global _log
    _log = log
    root, ours = logging.getLogger(), [logging.getLogger(name) for name in PACKAGES]
    before = {logger.name: (logger.level, logger.getEffectiveLevel()) for logger in ours}

    def as_before(record: logging.LogRecord) -> bool:
        _, least = before.get(record.name.partition(".")[0], (0, 0))
        return record.levelno >= least

    # The level of our loggers must not change which of our events other handlers get.
    others = [handler for logger in (root, *ours) for handler in logger.handlers]
    for handler in others:
        handler.addFilter(as_before)
    root.addHandler(log)
    for logger in ours:
        logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))

    def uninstall() -> None:
        root.removeHandler(log)
        for logger in ours:
            logger.setLevel(before[logger.name][0])
        for handler in others:
            handler.removeFilter(as_before)

    return uninstall


class LoggedStderr(io.TextIOBase):
    """A standard error whose complete lines become events."""

    def __init__(self) -> None:
        self._rest = ""
        self._busy = threading.local()

    def write(self, text: str) -> int:
        # A handler that fails prints to standard error.
        if not getattr(self._busy, "here", False):
            self._busy.here = True
            *lines, self._rest = (self._rest + text).split("\n")
            for line in filter(str.strip, lines):
                _stderr.info("%s", line)
            self._busy.here = False
        return len(text)
