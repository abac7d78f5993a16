"""Progress of a task, a stage and the run on standard error: a bar on a terminal, else a line every
half minute.
"""

import errno
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.segment import Segment
from rich.table import Column
from rich.text import Text

from beamrank.commit.receipts import Receipt
from beamrank.commit.status import Pace
from beamrank.logs import EventFormatter, is_event
from beamrank.notes import Progress
from beamrank.storage.urls import printable, shown_message

_LINE_SECONDS = 30.0
_BAR_COLUMNS = 16
# Listing 100,000 receipts takes a second, which the job in this process lacks.
_TIMES_AS_LONG = 10
_SHOWN = {"is_shown": True}
_log = logging.getLogger(__name__)


class PrintableConsole(Console):
    """A console that shows control characters and brackets. A broken pipe of standard error is
    ignored.
    """

    def __init__(self, file: IO[str]) -> None:
        super().__init__(file=file, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        # Rich would drop some control characters.
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        # Without control characters other than rich's own.
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError if the pipe is standard output; rich would end the process."""
        self.quiet = True
        if self.file is sys.stdout:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class Meter:
    """Elapsed time, pace and ETA of a task."""

    def __init__(self) -> None:
        self._created = self._start = time.monotonic()
        self._before: int | None = None
        self._done = 0
        self._total: int | None = None
        self.pace: Pace | None = None

    def see(self, done: int, total: int | None) -> None:
        """Records how much is done. The pace starts over where the total changes, or less is done
        than before.
        """
        now = time.monotonic()
        if self._before is None or total != self._total or done < self._done:
            self._start, self._before, self.pace = now, done, None
        elif done > self._done:
            self.pace = Pace(self._start, now, done - self._before)
        self._done, self._total = done, total

    def skip_start(self, seconds: float) -> None:
        """Leaves the start-up out of the pace: the first units took only `seconds`."""
        if self.pace is not None:
            self._start = max(self._start, self.pace.last - seconds)
            self.pace = Pace(self._start, self.pace.last, self.pace.done)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until all is done; None while nothing is."""
        if self.pace is None or self._total is None:
            return None
        return self.pace.seconds_left(self._total - self._done, time.monotonic())

    def __str__(self) -> str:
        elapsed = f"elapsed {duration(time.monotonic() - self._created)}"
        if self._total is None:
            return elapsed
        left = self.seconds_left
        return f"{elapsed}, ETA {'unknown' if left is None else duration(left)}"


class Bar:
    """The progress of one task."""

    def __init__(
        self,
        console: Progress,
        name: str,
        show: Callable[[str, int, int | None], None],
        on_update: Callable[[], object] = lambda: None,
    ) -> None:
        self.meter = Meter()
        self.note, self.warn = console.note, console.warn
        self._name, self._show, self._on_update = name, show, on_update

    def update(self, done: int, total: int | None, unit: str) -> None:
        """Shows how much of the task is done."""
        self.meter.see(done, total)
        line = f"{self._name}: {_fraction(done, total)} {unit}, {self.meter}"
        self._show(line, done, total)
        self._on_update()


class ConsoleProgress:
    """Writes notes, warnings and progress to standard error, and logs them. Standard output holds
    data only.

    `on_update` is called whenever a task of a bar tells its progress.
    """

    def __init__(
        self, console: Console | None = None, *, quiet: bool = False, verbose: bool = False
    ) -> None:
        self.on_update: Callable[[], object] = lambda: None
        # The current standard error: while a job runs, run_watched redirects what Beam writes.
        self.console = console or PrintableConsole(sys.stderr)
        self._quiet, self._verbose = quiet, verbose
        self._next_line = 0.0

    def note(self, text: str) -> None:
        """Prints one line, unless quiet."""
        _log.info("%s", text, extra=_SHOWN)
        self._print(text)

    def warn(self, text: str) -> None:
        """Prints a warning, even when quiet."""
        _log.warning("%s", text, extra=_SHOWN)
        self.console.print(
            f"warning: {shown_message(text)}", style="yellow", markup=False, soft_wrap=True
        )

    def update(self, done: int, total: int | None, unit: str) -> None:
        """Prints how much is done, at most every half minute. `bar` also shows the elapsed time and
        the ETA.
        """
        self._line(f"{_fraction(done, total)} {unit}")

    @contextmanager
    def bar(self, name: str) -> Iterator[Bar]:
        """A progress bar for one task."""
        if self.console.is_terminal and not self._quiet:
            with self._drawn(name) as bar:
                yield bar
            return
        self._next_line = time.monotonic() + _LINE_SECONDS
        yield Bar(self, name, lambda line, *_: self._line(line), self.on_update)

    @contextmanager
    def _drawn(self, name: str) -> Iterator[Bar]:
        # The text wraps: a narrow terminal shows all of it, on more lines.
        text = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
        with RichProgress(
            BarColumn(bar_width=_BAR_COLUMNS), text, console=self.console, transient=True
        ) as rich:
            task = rich.add_task(name, total=None)

            def show(line: str, done: int, total: int | None) -> None:
                rich.update(task, description=line, completed=done, total=total)

            yield Bar(self, name, show, self.on_update)

    @contextmanager
    def events(self) -> Iterator[None]:
        """Also shows the events that this process logs, where verbose."""
        if not self._verbose:
            yield
            return
        handler = _EventHandler(self.console)
        logging.getLogger().addHandler(handler)
        try:
            yield
        finally:
            logging.getLogger().removeHandler(handler)

    def _print(self, text: str) -> None:
        if not self._quiet:
            self.console.print(shown_message(text), markup=False, soft_wrap=True)

    def _line(self, line: str) -> None:
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_SECONDS
            self._print(line)


class _EventHandler(logging.Handler):
    # But for the notes and warnings that are shown already.

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self.setFormatter(EventFormatter())
        self.addFilter(is_event)

    def emit(self, record: logging.LogRecord) -> None:
        if not hasattr(record, "is_shown"):
            self._console.print(self.format(record), style="dim", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Scan:
    """The scan of a job before its shards: `count` returns how many units are done, `before` is how
    many were.

    The units are parts of the corpus unless `noun` says otherwise; earlier passes have read some.
    """

    count: Callable[[], int]
    units: int
    before: int = 0
    total: int = 0
    noun: str = "corpus units read"


@dataclass
class StageProgress:
    """Returns how much of a stage is done, and shows it.

    `look` finds the shards that are done, of `shards`, and the files in which workers tell how far
    they are; `receipt` reads the receipt of a shard. `inputs_done` is how many inputs of the shards
    of this process are done, of how many.
    """

    look: Callable[[], tuple[set[int], object]]
    shards: int
    bar: Bar
    receipt: Callable[[int], Receipt | None]
    inputs_done: Callable[[], tuple[int, int]]
    scan: Scan | None = None

    def __post_init__(self) -> None:
        self._before: set[int] | None = self.look()[0]

    def __call__(self) -> object:
        """Changes once a shard was finished, a unit was read or inputs were counted."""
        done, files = self.look()
        read = self.scan.count() if self.scan else 0
        if self.scan and read < self.scan.units:
            self.bar.update(self.scan.before + read, self.scan.total, self.scan.noun)
            return len(done), read
        inputs = self.inputs_done()
        within = f" ({_fraction(*inputs)} inputs of the next)" if inputs[1] else ""
        self.bar.update(len(done), self.shards, f"shards{within}")
        if self._before is not None and (new := done - self._before):
            # Leaves the start-up before the first shard, of workers and models, out of the pace.
            if (receipt := self.receipt(min(new))) is not None:
                self.bar.meter.skip_start(receipt.seconds)
            self._before = None
        return len(done), read, inputs[0], files


def duration(seconds: float) -> str:
    """`0:01:20` for 80 seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _fraction(done: int, total: int | None) -> str:
    """`3 of 1,000`, or `3` where the total is unknown."""
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"


def at_most_every(seconds: float, ask: Callable[[], object]) -> Callable[[], object]:
    """A function that keeps the answer of `ask` for some seconds, and for ten times as long as it
    took.
    """
    answered: object = None
    next_seconds = 0.0

    def answer() -> object:
        nonlocal answered, next_seconds
        start = time.monotonic()
        if start >= next_seconds:
            answered = ask()
            now = time.monotonic()
            next_seconds = now + max(seconds, _TIMES_AS_LONG * (now - start))
        return answered

    return answer
