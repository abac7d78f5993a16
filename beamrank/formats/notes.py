"""What a user is told about files: notes, and problems of their rows."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple


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
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name, each in notes.items():
        for what, count, why in each:
            found.setdefault((what, why), {})[name] = count
    return [
        f"{name}: {Note(what, count, why)}"
        if len(by_name) == 1
        else str(Note(what, ", ".join(f"{one} {number}" for one, number in by_name.items()), why))
        for (what, why), by_name in found.items()
        for name, count in list(by_name.items())[:1]
    ]


_SHOWN_KINDS = 5
# What two messages of the same kind may differ in: numbers, and the values that they quote.
_DETAILS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+")


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 problem`, `2,000 problems`; `plural` is an irregular one."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def first_few(values: Iterable[object], shown: int = 3) -> str:
    """The first of some values, with `...` after them if there are more."""
    first = list(islice(values, shown + 1))
    return ", ".join([*map(repr, first[:shown]), *["..."] * (len(first) > shown)])


@dataclass
class _Kind:
    line: int
    reason: str
    count: int = 0


class Problems:
    """The problems of one file, in any order; similar ones are counted together, and each kind is shown once.

    Attributes:
        count: how many there are.
    """

    def __init__(self) -> None:
        self.count = 0
        self._kinds: dict[str, _Kind] = {}

    def add(self, line: int, reason: str) -> None:
        """Notes the problem of a row that begins on a line."""
        self.count += 1
        kind = self._kinds.setdefault(_DETAILS.sub("", reason), _Kind(line, reason))
        kind.count += 1
        if line < kind.line:
            kind.line, kind.reason = line, reason

    def listed(self, prefix: str = "line ") -> str:
        """The first problem of each kind, a line each; at most five kinds, the earliest first."""
        kinds = sorted(self._kinds.values(), key=lambda kind: kind.line)
        lines = [f"{prefix}{kind.line}: {kind.reason}{_times(kind.count)}" for kind in kinds[:_SHOWN_KINDS]]
        rest = sum(kind.count for kind in kinds[_SHOWN_KINDS:])
        if rest:
            lines.append(f"and {rest:,} more of other kinds")
        return "".join(f"\n  {line}" for line in lines)


def _times(count: int) -> str:
    return "" if count == 1 else f" (and {count - 1:,} more like it)"
