"""How long the rest of some work takes, judged by what of it was finished so far."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Pace:
    """What was finished in one stretch of work: `done` things (at least one) between `start` and `last`.

    Times are seconds of any one clock. Workers side by side need no thought: a pace counts what they finish together.
    """

    start: float
    last: float
    done: int

    @property
    def seconds_each(self) -> float:
        """How often something is finished."""
        return (self.last - self.start) / self.done

    def seconds_left(self, more: int, now: float) -> float:
        """Seconds until `more` things are finished; never less than one takes, however late it is."""
        if more == 0:
            return 0.0
        return max(self.seconds_each, more * self.seconds_each - max(0.0, now - self.last))

    @classmethod
    def of_last_stretch(cls, finished: Iterable[tuple[float, float]], pause_seconds: float) -> Self | None:
        """The pace since work was last taken up.

        Args:
            finished: when each thing was finished, and how many seconds it took.
            pause_seconds: a stretch begins where nothing was worked on for longer than this.

        Returns:
            None where nothing is finished.
        """
        found: Self | None = None
        for end, seconds in sorted(finished):
            if found is None or end - seconds - found.last > pause_seconds:
                found = cls(end - seconds, end, 1)
            else:
                found = cls(min(found.start, end - seconds), end, found.done + 1)
        return found
