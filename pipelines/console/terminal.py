"""Lines on terminals: control characters of ids, paths and messages are shown, never
interpreted.
"""

import select
import sys

from beamrank.storage.urls import printable, shown_message

READER_GONE = 141  # as a shell reports a program that SIGPIPE ended


def write_line(*cells: object) -> None:
    """Writes one line of tab-separated cells to standard output: verbatim in a pipe, printable on a
    terminal.
    """
    line = "\t".join(map(str, cells))
    print(printable(line) if sys.stdout.isatty() else line)


def write_error(text: str) -> None:
    """Writes a message to standard error; ignores a standard error that is closed."""
    try:
        print(shown_message(text), file=sys.stderr, flush=True)
    except OSError:
        return


def reader_is_gone() -> bool:
    """Whether standard output is a broken pipe or socket."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False
