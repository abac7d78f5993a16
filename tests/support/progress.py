"""A `Progress` that records what it is told."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from beamrank.notes import Progress, Silent


@dataclass
class RecordedProgress(Silent):
    """What was reported: `notes` hold warnings too, `updates` are `(done, total, unit)`."""

    notes: list[str] = field(default_factory=list)
    updates: list[tuple[int, int | None, str]] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.notes.append(f"warning: {text}")

    @contextmanager
    def bar(self, name: str, /) -> Iterator[Progress]:
        yield self

    def update(self, done: int, total: int | None, unit: str) -> None:
        self.updates.append((done, total, unit))
