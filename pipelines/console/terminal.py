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

from beamrank.storage.url_credentials import hide_credentials

READER_GONE = 141  # as a shell reports a program that SIGPIPE ended
_KEPT = "\n\t"
# Those of C0 and C1, the marks that reorder text, line ends of Unicode, and bytes of a path that are not UTF-8.
_CONTROLS = {
    code: f"\\u{code:04x}"
    for first, last in (
        (0x00, 0x1F),
        (0x7F, 0x9F),
        (0x61C, 0x61C),
        (0x200E, 0x200F),
        (0x2028, 0x202E),
        (0x2066, 0x2069),
        (0xD800, 0xDFFF),
    )
    for code in range(first, last + 1)
    if chr(code) not in _KEPT
}


def printable(text: str) -> str:
    """A text with its control characters written out as JSON does; line ends and tabs stay."""
    return text.translate(_CONTROLS)


def shown_message(text: str) -> str:
    """A message as standard error shows it: printable, and without the credentials of a library's URLs."""
    return printable(hide_credentials(text))


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
