"""What is trained on: groups of a query with some docs, in a stream that can be taken up again anywhere."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

Position: TypeAlias = dict[str, int]
"""Where a stream stands, as JSON."""


@dataclass(frozen=True)
class Group:
    """A query with docs that are compared with each other.

    Attributes:
        query: its text.
        docs: their texts; a relevant one first where there is one.
        relevant: whether each doc is relevant; None where nobody knows.
        teacher_scores: of each doc, where there is a teacher.
    """

    query: str
    docs: tuple[str, ...]
    relevant: tuple[bool, ...] | None
    teacher_scores: tuple[float, ...] | None = None


class Source(Protocol):
    """A stream of groups without end: the same for the same seed, whatever is taken from it at once.

    Attributes:
        docs_a_group: how many docs each group has.
        groups_an_epoch: how many groups there are before they come again; None where that is not known beforehand.
    """

    docs_a_group: int
    groups_an_epoch: int | None

    def stream(self, position: Position) -> Iterator[tuple[Group, Position]]:
        """Yields groups, each with the position after it.

        Args:
            position: where to go on; an empty one is the beginning.
        """

    def notes(self, position: Position, /) -> list[str]:
        """What is worth saying of the data read up to a position, a line each."""


class FixedSource:
    """Groups that are held in memory, in another order each epoch."""

    def __init__(self, groups: Sequence[Group], seed: int) -> None:
        self._groups = groups
        self._seed = seed
        self.docs_a_group = len(groups[0].docs)
        self.groups_an_epoch: int | None = len(groups)

    def stream(self, position: Position) -> Iterator[tuple[Group, Position]]:
        """See `Source`."""
        for epoch, place, number in shuffled(len(self._groups), self._seed, position):
            yield self._groups[number], {"epoch": epoch, "index": place + 1}

    def notes(self, _position: Position) -> list[str]:
        """See `Source`."""
        return []


def shuffled(count: int, seed: int, position: Position) -> Iterator[tuple[int, int, int]]:
    """Yields epoch, place and number: in each epoch every number below `count`, in an order that the seed decides."""
    epoch, start = position.get("epoch", 0), position.get("index", 0)
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(count)
        for place in range(start, count):
            yield epoch, place, int(order[place])
        epoch, start = epoch + 1, 0
