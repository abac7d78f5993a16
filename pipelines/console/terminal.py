"""What reaches a terminal: control characters of ids, paths and messages are shown there, and never obeyed."""

import errno
import os
import select
import sys
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from beamrank.printable import printable, shown_message

READER_GONE = 141  # as a shell reports a program that SIGPIPE ended


def write_line(*cells: object) -> None:
    """One line of standard output, tabs between its cells: exact for a program, printable on a terminal."""
    line = "\t".join(map(str, cells))
    print(printable(line) if sys.stdout.isatty() else line)


def write_error(text: str) -> None:
    """A message on standard error; one that nobody reads any more is lost."""
    try:
        print(shown_message(text), file=sys.stderr, flush=True)
    except OSError:
        return


def reader_is_gone() -> bool:
    """Whether standard output is a pipe or a socket that nobody reads any more."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


class PrintableConsole(Console):
    """A console that shows control characters and brackets. A standard error without a reader ends no command."""

    def __init__(self, file: IO[str]) -> None:
        super().__init__(file=file, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """A string as text; rich would drop some control characters."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich renders it, less the control characters that are not rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Rich would end the process.

        Raises:
            BrokenPipeError: standard output has lost its reader.
        """
        self.quiet = True
        if self.file is sys.stdout:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
