"""Progress of an experiment on standard error."""

import sys

_EVERY = 100


class StderrProgress:
    """Prints every note and every hundredth update; see `beamrank.notes.Progress`."""

    def note(self, text: str) -> None:
        """Prints a line."""
        print(text, file=sys.stderr, flush=True)

    warn = note

    def update(self, done: int, total: int | None, unit: str) -> None:
        """Prints every hundredth step."""
        if done % _EVERY == 0:
            self.note(f"{done} of {total} {unit}")
