"""The console script: prepares the process, runs a command, and turns the outcome into an exit
code.
"""

import contextlib
import io
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Collection
from typing import Any, NoReturn

from beamrank.errors import BeamrankError, exit_code, thread_limit
from beamrank.plugins import PACKAGES
from beamrank.storage.urls import shown_message
from pipelines.console.terminal import READER_GONE, write_error
from pipelines.runners.workers import (
    ENDING,
    INTERRUPTIONS,
    Interrupted,
    child_processes,
    end_children,
    prepare_environment,
)

# Ours are shown by the command, and what Beam logs, on the root logger too, is raised as well.
_SHOWN_OTHERWISE = frozenset({*PACKAGES, "apache_beam", "root"})


class _Formatter(logging.Formatter):
    """Formats what libraries log like messages on standard error; a run's log holds tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return shown_message(super().format(record))

    def formatException(self, ei: Any) -> str:
        return repr(ei[1])


class _Messages(io.FileIO):
    """Standard error; what cannot be written (a full disk, a broken pipe) is lost, and the work
    goes on.
    """

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError:
            return len(content)


def _open_streams() -> None:
    """Opens the standard streams that the process was started without (`>&-`), and standard error
    as `_Messages`.

    Otherwise the next opened file would take the stream's descriptor, and what libraries print
    would go into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115
    messages = io.BufferedWriter(_Messages(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(
        messages, sys.stderr.encoding, "backslashreplace", line_buffering=True
    )


def _show_errors_of_libraries() -> None:
    """Shows what libraries log as errors, but for Beam, whose errors are raised too; a run's log
    holds the rest.
    """
    handler = logging.StreamHandler()
    handler.setLevel(logging.ERROR)
    handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda record: record.name.partition(".")[0] not in _SHOWN_OTHERWISE)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _log_lost_connection(failed: threading.ExceptHookArgs) -> None:
    """Threads of Beam lose their connection where a job server dies; the command reports that, a
    run's log the rest.
    """
    if failed.exc_type.__module__.startswith("grpc"):
        logging.getLogger("apache_beam").error("a connection was lost", exc_info=failed.exc_value)
    else:
        threading.__excepthook__(failed)


def main() -> NoReturn:
    """Runs `beamrank` with the arguments of this process."""
    others = [child.pid for child in child_processes()]
    _open_streams()
    # Paths that are not UTF-8 are printed byte for byte.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")
    _show_errors_of_libraries()
    sys.unraisablehook = ENDING.raise_again
    threading.excepthook = _log_lost_connection
    for number in INTERRUPTIONS:
        # A shell starts background processes with Ctrl-C ignored, nohup a program with SIGHUP.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ENDING.handle)
    _leave(_run(), others)


def _run() -> int:
    """Runs a command, and returns its exit code."""
    try:
        from pipelines.cli import app

        prepare_environment()
        app()
    except SystemExit as end:
        # Rich ends the process with 1 where the reader of a help text is gone.
        if isinstance(end.__context__, BrokenPipeError):
            return READER_GONE
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except (Exception, Interrupted) as error:
        return _tell(error)
    return 0


def _tell(error: Exception | Interrupted) -> int:
    """Tells of the error that ended a command, and returns its exit code."""
    words = f"{type(error).__name__}: {error}"
    limit = thread_limit(words)
    if isinstance(error, Interrupted):
        _report(
            "interrupted: finished shards are kept; run the same command again to resume", error
        )
        return error.exit_code
    if isinstance(error, BeamrankError | OSError):
        _report(f"error: {error}{limit}", error)
        return exit_code(error)
    told = limit or hasattr(error, "__notes__") or isinstance(error, MemoryError)
    _report(f"error: {words}{limit}" if told else traceback.format_exc(), error)
    return 1


def _report(message: str, error: BaseException) -> None:
    """Writes a message, and where the log is, which holds the traceback."""
    write_error("\n".join([message, *getattr(error, "__notes__", ())]))


def _leave(code: int, others: Collection[int]) -> NoReturn:
    """Ends the process at once: the threads of a hanging pipeline would keep it alive.

    `others` are the child processes that it was started with.
    """
    for number in (*INTERRUPTIONS, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or READER_GONE
    except OSError as error:
        write_error(f"error: cannot write to standard output: {error}")
        code = code or 1
    sys.stderr.flush()
    # Beam's threads print errors while they lose their workers.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        end_children(others)
        os._exit(code)


if __name__ == "__main__":
    main()
