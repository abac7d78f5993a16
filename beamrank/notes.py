"""Messages for the user: notes about files, counts in words, and the progress of long
operations.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple, Protocol


class Note(NamedTuple):
    """A fact about a file.

    Attributes:
        what: what was found; several files can share it.
        found: how much of it.
        why: what that means; shared too.
    """

    what: str
    found: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.found}{self.why and '; '}{self.why}"


def of_files(notes: Mapping[str, Iterable[Note]]) -> list[str]:
    """The notes of files, by their names; what several files have is one line."""
    by_fact: dict[tuple[str, str], dict[str, str]] = {}
    for name, of_file in notes.items():
        for what, count, why in of_file:
            by_fact.setdefault((what, why), {})[name] = count
    return [
        f"{name}: {Note(what, count, why)}"
        if len(by_name) == 1
        else str(Note(what, ", ".join(f"{one} {number}" for one, number in by_name.items()), why))
        for (what, why), by_name in by_fact.items()
        for name, count in list(by_name.items())[:1]
    ]


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 problem`, `2,000 problems`; `plural` is an irregular one."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def first_few(values: Iterable[object], shown: int = 3) -> str:
    """The first of some values, with `...` after them if there are more."""
    first = list(islice(values, shown + 1))
    return ", ".join([*map(repr, first[:shown]), *["..."] * (len(first) > shown)])


class Progress(Protocol):
    """Receives the progress of a long operation."""

    def note(self, text: str) -> None:
        """Reports something worth knowing."""

    def warn(self, text: str) -> None:
        """Reports something that needs the user's attention."""

    def update(self, done: int, total: int | None, unit: str) -> None:
        """Reports how many units are done, of how many; `total` is None where it is unknown."""


class Silent(Progress):
    """Ignores everything."""

    def note(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...
    def update(self, done: int, total: int | None, unit: str) -> None: ...


SILENT: Progress = Silent()
