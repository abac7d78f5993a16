"""Progress on standard error: a bar on a terminal, a line every half minute elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from beamrank.commit.pace import Pace
from beamrank.logs import EventFormatter, is_event
from beamrank.progress import Progress
from beamrank.storage.urls import shown_message
from pipelines.console.terminal import PrintableConsole

_LINE_SECONDS = 30.0
_BAR_COLUMNS = 16
_SHOWN = {"is_shown": True}
_log = logging.getLogger(__name__)


def duration(seconds: float) -> str:
    """`0:01:20` for 80 seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class Meter:
    """Elapsed time, pace and ETA of a task."""

    def __init__(self) -> None:
        self._created = self._start = time.monotonic()
        self._before: int | None = None
        self._done = 0
        self._total: int | None = None
        self.pace: Pace | None = None

    def see(self, done: int, total: int | None) -> None:
        """Records how much is done. The pace starts over where the total changes, or less is done than before."""
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
    def elapsed_seconds(self) -> float:
        """Seconds since this meter was created."""
        return time.monotonic() - self._created

    @property
    def seconds_left(self) -> float | None:
        """Seconds until all is done; None while nothing is."""
        if self.pace is None or self._total is None:
            return None
        return self.pace.seconds_left(self._total - self._done, time.monotonic())

    def __str__(self) -> str:
        elapsed = f"elapsed {duration(self.elapsed_seconds)}"
        if self._total is None:
            return elapsed
        left = self.seconds_left
        return f"{elapsed}, ETA {'unknown' if left is None else duration(left)}"


class ConsoleProgress:
    """Writes notes, warnings and progress to standard error, and logs them. Standard output holds data only."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False, verbose: bool = False) -> None:
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
        self.console.print(f"warning: {shown_message(text)}", style="yellow", markup=False, soft_wrap=True)

    def update(self, done: int, total: int | None, unit: str) -> None:
        """Prints how much is done, at most every half minute. `bar` also shows the elapsed time and the ETA."""
        self._line(f"{fraction(done, total)} {unit}")

    @contextmanager
    def bar(self, name: str, suffix: Callable[[Meter], str] = lambda _: "") -> Iterator["Bar"]:
        """A progress bar for one task; `suffix` describes the run that the task belongs to."""
        if self._quiet or not self.console.is_terminal:
            self._next_line = time.monotonic() + _LINE_SECONDS
            yield Bar(self, name, suffix, lambda line, *_: self._line(line))
            return
        # The text wraps: a narrow terminal shows all of it, on more lines.
        text = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
        columns = (BarColumn(bar_width=_BAR_COLUMNS), text)
        with RichProgress(*columns, console=self.console, transient=True) as rich:
            task = rich.add_task(name, total=None)

            def show(line: str, done: int, total: int | None) -> None:
                rich.update(task, description=line, completed=done, total=total)

            yield Bar(self, name, suffix, show)

    @contextmanager
    def events(self) -> Iterator[None]:
        """Also shows the events that this process logs, where verbose."""
        handler = _EventHandler(self.console)
        if self._verbose:
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
    """Shows events, but for the notes and warnings that are shown already."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self.setFormatter(EventFormatter())
        self.addFilter(is_event)

    def emit(self, record: logging.LogRecord) -> None:
        if not hasattr(record, "is_shown"):
            self._console.print(self.format(record), style="dim", markup=False, soft_wrap=True)


class Bar:
    """The progress of one task."""

    def __init__(
        self,
        console: Progress,
        name: str,
        suffix: Callable[[Meter], str],
        show: Callable[[str, int, int | None], None],
    ) -> None:
        self.meter = Meter()
        self.note, self.warn = console.note, console.warn
        self._name, self._suffix, self._show = name, suffix, show

    def update(self, done: int, total: int | None, unit: str) -> None:
        """Shows how much of the task is done."""
        self.meter.see(done, total)
        self._show(f"{self._name}: {fraction(done, total)} {unit}, {self.meter}{self._suffix(self.meter)}", done, total)


def fraction(done: int, total: int | None) -> str:
    """`3 of 1,000`, or `3` where the total is unknown."""
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"


def at_most_every(seconds: float, ask: Callable[[], int]) -> Callable[[], int]:
    """A function that keeps the answer of `ask` for some seconds."""
    answered: tuple[float, int] | None = None

    def answer() -> int:
        nonlocal answered
        if answered is None or time.monotonic() - answered[0] >= seconds:
            answered = (time.monotonic(), ask())
        return answered[1]

    return answer
