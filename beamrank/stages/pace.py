"""The remaining time of a task, at the pace of the finished part."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Pace:
    """The things finished in one stretch of work: `done` (at least one) between `start` and `last`.

    Times are seconds of any one clock. A pace counts what all workers finish together.
    """

    start: float
    last: float
    done: int

    @property
    def seconds_each(self) -> float:
        """The mean time between two finished things."""
        return (self.last - self.start) / self.done

    def seconds_left(self, more: int, now: float) -> float:
        """Seconds until `more` things are finished; at least what one takes."""
        if more == 0:
            return 0.0
        return max(self.seconds_each, more * self.seconds_each - max(0.0, now - self.last))

    @classmethod
    def of_last_stretch(cls, finished: Iterable[tuple[float, float]], pause_seconds: float) -> Self | None:
        """The pace since work was last resumed.

        Args:
            finished: when each thing was finished, and how many seconds it took.
            pause_seconds: a new stretch begins after a longer pause than this.

        Returns:
            None if nothing is finished.
        """
        found: Self | None = None
        for end, seconds in sorted(finished):
            if found is None or end - seconds - found.last > pause_seconds:
                found = cls(end - seconds, end, 1)
            else:
                found = cls(min(found.start, end - seconds), end, found.done + 1)
        return found
