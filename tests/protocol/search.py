"""All states that a model can reach, breadth first, so that the first violation has a shortest
trace. The search is exhaustive: it ends with all states, or with an error.
"""

import resource
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

State: TypeAlias = tuple[int, ...]
Step: TypeAlias = tuple[Hashable, State]
"""What happens, and the state after it."""
_KIB = 1024


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold, and what led to it."""

    invariant: str
    trace: tuple[Hashable, ...]

    def __str__(self) -> str:
        return "\n  ".join([f"{self.invariant} does not hold:", *map(str, self.trace)])


@dataclass(frozen=True)
class Search:
    """The result of a search; all states were visited where there is no violation."""

    states: int
    steps: int
    cpu_seconds: float
    peak_bytes: int
    violation: Violation | None

    def __str__(self) -> str:
        text = (
            f"{self.states:,} states, {self.steps:,} steps, {self.cpu_seconds:.1f} s, "
            f"{self.peak_bytes / 1e6:,.0f} MB"
        )
        return f"{text}: {self.violation or 'all states, every invariant holds'}"


class TooLargeError(Exception):
    """The search has not visited all states."""


def search(
    initial: Iterable[State],
    steps: Callable[[State], Iterable[Step]],
    broken_state: Callable[[State], str | None],
    broken_step: Callable[[State, State], str | None],
    most_states: int,
) -> Search:
    """Visits every state, until an invariant is broken.

    Args:
        initial: the states in which it begins.
        steps: what can happen in a state.
        broken_state: the name of an invariant that a state breaks.
        broken_step: the name of an invariant that a step from one state to the other breaks.
        most_states: more raise TooLargeError.
    """
    start, count = time.process_time(), 0
    before: dict[State, State | None] = dict.fromkeys(initial)
    violation = next(
        (Violation(name, ()) for state in before if (name := broken_state(state)) is not None), None
    )
    level = list(before)
    while level and violation is None:
        following: list[State] = []
        for state in level:
            for label, after in steps(state):
                count += 1
                name = broken_step(state, after)
                if after not in before:
                    before[after] = state
                    following.append(after)
                    name = name or broken_state(after)
                if name is not None:
                    violation = Violation(name, (*_trace(before, state, steps), label))
                    break
            if violation is not None:
                break
        if len(before) > most_states:
            raise TooLargeError(f"more than {most_states:,} states")
        level = following
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    return Search(len(before), count, time.process_time() - start, peak, violation)


def _trace(
    before: dict[State, State | None], state: State, steps: Callable[[State], Iterable[Step]]
) -> Iterator[Hashable]:
    """The labels of the steps that led to a state."""
    path = [state]
    while (earlier := before[path[-1]]) is not None:
        path.append(earlier)
    path.reverse()
    for earlier, later in pairwise(path):
        yield next(label for label, after in steps(earlier) if after == later)
