"""Training examples: groups of a query with some docs, in a stream that can be resumed at any position."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

TokenIds: TypeAlias = bytes
"""A text as the bytes of its token ids (`TokenRows`)."""
Text = TypeVar("Text", str, TokenIds, default=str)

Position: TypeAlias = dict[str, int]
"""A position in a stream, as JSON."""


@dataclass(frozen=True)
class Group(Generic[Text]):
    """A query with docs that are compared with each other.

    Attributes:
        query: its text, or its token ids.
        docs: the same of the docs; a relevant one first if there is one.
        relevant: whether each doc is relevant; None if that is unknown.
        teacher_scores: a teacher's score of each doc, if there is a teacher.
    """

    query: Text
    docs: tuple[Text, ...]
    relevant: tuple[bool, ...] | None
    teacher_scores: tuple[float, ...] | None = None


class Source(Protocol):
    """An endless stream of groups, which depends only on the seed.

    Attributes:
        docs_per_group: how many docs each group has.
        groups_per_epoch: how many groups an epoch has; None if that is unknown in advance.
        queries: uint64, the hashes of the queries' texts, as far as they are known in advance.
    """

    docs_per_group: int
    groups_per_epoch: int | None
    queries: NDArray[np.uint64]

    def stream(self, position: Position) -> Iterator[tuple[Group[Any], Position]]:
        """Yields groups from a position on, each with the position after it; an empty position is the beginning."""

    def notes(self, position: Position, /) -> list[str]:
        """Lines to report about the data that was read up to a position."""


def shuffled(count: int, seed: int, position: Position) -> Iterator[tuple[int, int, int]]:
    """Yields epoch, place and number: in each epoch every number below `count`, in an order that the seed decides."""
    epoch, start = position.get("epoch", 0), position.get("index", 0)
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(count)
        for place in range(start, count):
            yield epoch, place, int(order[place])
        epoch, start = epoch + 1, 0
