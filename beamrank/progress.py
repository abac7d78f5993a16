"""Progress of long operations: the protocol that every layer reports to, and the default that ignores the reports."""

from typing import Protocol


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
