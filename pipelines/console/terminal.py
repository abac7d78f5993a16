"""Output to terminals: control characters of ids, paths and messages are shown, never interpreted."""

import errno
import os
import select
import sys
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from beamrank.storage.urls import printable, shown_message

READER_GONE = 141  # as a shell reports a program that SIGPIPE ended


def write_line(*cells: object) -> None:
    """Writes one line of tab-separated cells to standard output: verbatim in a pipe, printable on a terminal."""
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


class PrintableConsole(Console):
    """A console that shows control characters and brackets. A broken pipe of standard error is ignored."""

    def __init__(self, file: IO[str]) -> None:
        super().__init__(file=file, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Renders a string; rich would drop some control characters."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Renders as rich does, without control characters other than rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Handles a broken pipe, where rich would end the process.

        Raises:
            BrokenPipeError: the pipe is standard output.
        """
        self.quiet = True
        if self.file is sys.stdout:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
