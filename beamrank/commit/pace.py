"""How long work takes: at the pace of the finished part, or predicted from the scoring stage before it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from beamrank.commit.receipts import Receipt
from beamrank.commit.stage_record import ScoringWork


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


def pair_inferences(candidates: float, k: int, opponents: int | None) -> float:
    """The number of ordered pairs that are scored for a query with so many candidates."""
    admitted = min(k, candidates)
    return admitted * max(0, min(opponents or admitted, admitted - 1))


def work_ratio(work: ScoringWork, before: ScoringWork, scored: Iterable[Receipt]) -> float | None:
    """The ratio of a stage's duration to that of the stage before it, on the same workers.

    An input with two docs is taken to be twice as long as one with one doc, up to the most tokens of an input, and the
    same share of inputs to be taken over from earlier runs.

    Args:
        work: the work of the stage.
        before: the work of the stage before it, whose inputs have one doc.
        scored: receipts of the stage before it.

    Returns:
        None if the receipts lack the counts.
    """
    receipts = list(scored)
    queries, candidates, inferences, reused, tokens = (
        sum(receipt.counts.get(name, 0) for receipt in receipts)
        for name in ("queries", "candidates", "inferences", "reused", "tokens")
    )
    if not (candidates and tokens and before.token_cost):
        return None
    length = min(float(work.max_length), work.docs * tokens / inferences)
    each = candidates / queries
    asked = min(work.k, each) if work.docs == 1 else pair_inferences(each, work.k, work.opponents)
    scored_share = inferences / (inferences + reused)
    return queries * asked * scored_share * length * work.token_cost / (tokens * before.token_cost)
