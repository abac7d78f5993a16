"""What a command says on standard error while it works: bars on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from beamrank.stages.pace import Pace
from pipelines.console.terminal import PrintableConsole, shown_message

_LINE_SECONDS = 30.0
_BAR_COLUMNS = 16


def counted(number: int, one: str, more: str = "") -> str:
    """`1 shard`, `2,000 shards`; `more` is a plural that does not end in a mere s."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def duration(seconds: float) -> str:
    """`0:01:20` for 80 seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class Meter:
    """How long something has been worked on, and how long the rest takes."""

    def __init__(self) -> None:
        self._created = self._start = time.monotonic()
        self._before: int | None = None
        self._done = 0
        self._total: int | None = None
        self.pace: Pace | None = None

    def see(self, done: int, total: int | None) -> None:
        """Notes how much is done. Another total, or less done than before, begins something else to be counted."""
        now = time.monotonic()
        if self._before is None or total != self._total or done < self._done:
            self._start, self._before, self.pace = now, done, None
        elif done > self._done:
            self.pace = Pace(self._start, now, done - self._before)
        self._done, self._total = done, total

    def skip_start(self, seconds: float) -> None:
        """Leaves out of the pace what came before the first things done, which took so many seconds themselves."""
        if self.pace is not None:
            self._start = max(self._start, self.pace.last - seconds)
            self.pace = Pace(self._start, self.pace.last, self.pace.done)

    @property
    def elapsed_seconds(self) -> float:
        """Since this meter was made."""
        return time.monotonic() - self._created

    @property
    def seconds_left(self) -> float | None:
        """Until all is done; None while nothing is."""
        if self.pace is None or self._total is None:
            return None
        return self.pace.seconds_left(self._total - self._done, time.monotonic())

    def __str__(self) -> str:
        """Both in words."""
        elapsed = f"elapsed {duration(self.elapsed_seconds)}"
        if self._total is None:
            return elapsed
        left = self.seconds_left
        return f"{elapsed}, ETA {'not known yet' if left is None else duration(left)}"


class Bar:
    """The progress of one stage, on a terminal or as lines; `whole` tells of the work that the stage is a part of."""

    def __init__(self, stage: str, show: Callable[[str, int, int | None], None], whole: Callable[[Meter], str]) -> None:
        self.meter = Meter()
        self._stage, self._show, self._whole = stage, show, whole

    def update(self, done: int, total: int | None, what: str) -> None:
        """Shows how far the stage is; `total` is None where it is not known."""
        self.meter.see(done, total)
        of = "" if total is None else f" of {total:,}"
        self._show(f"{self._stage}: {done:,}{of} {what}, {self.meter}{self._whole(self.meter)}", done, total)


class Talk:
    """Standard error: notes, warnings and progress. Standard output is for data alone."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        # Standard error as it is now: while a job runs, run_watched keeps Beam's own writing away from it.
        self.console = console or PrintableConsole(sys.stderr)
        self._quiet = quiet

    def note(self, text: str) -> None:
        """One line of talk."""
        if not self._quiet:
            self.console.print(shown_message(text), markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Something that the user should look at; said also when quiet."""
        self.console.print(f"warning: {shown_message(text)}", style="yellow", markup=False, soft_wrap=True)

    @contextmanager
    def bar(self, stage: str, whole: Callable[[Meter], str] = lambda _: "") -> Iterator[Bar]:
        """A bar for one stage."""
        if self._quiet or not self.console.is_terminal:
            yield Bar(stage, _Lines(self), whole)
            return
        # The text wraps: a narrow terminal shows all of it, on more lines.
        text = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
        columns = (BarColumn(bar_width=_BAR_COLUMNS), text)
        with Progress(*columns, console=self.console, transient=True) as progress:
            yield Bar(stage, _Shown(progress, stage), whole)


def at_most_every(seconds: float, ask: Callable[[], int]) -> Callable[[], int]:
    """A question whose answer is kept for some time."""
    answered: tuple[float, int] | None = None

    def answer() -> int:
        nonlocal answered
        if answered is None or time.monotonic() - answered[0] >= seconds:
            answered = (time.monotonic(), ask())
        return answered[1]

    return answer


class _Shown:
    """A bar on a terminal, which is gone when its stage is over."""

    def __init__(self, progress: Progress, stage: str) -> None:
        self._progress = progress
        self._task = progress.add_task(stage, total=None)

    def __call__(self, line: str, done: int, total: int | None) -> None:
        self._progress.update(self._task, description=line, completed=done, total=total)


class _Lines:
    """A line now and then."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._next = time.monotonic() + _LINE_SECONDS

    def __call__(self, line: str, _done: int, _total: int | None) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_SECONDS
            self._talk.note(line)
