"""The mined set on disk: for each topic its relevant docs and its candidates, as rows of token ids."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.storage.local_files import map_array
from models.training.config import SamplingConfig
from models.training.data.arrays import Hashes, Indices
from models.training.data.examples import Group, Position, TokenIds, shuffled
from models.training.data.tokens import TokenRows

_NEGATIVES = 1


class Lists(NamedTuple):
    """A list of docs for each pool, one after the other.

    Attributes:
        rows: int32[n], the docs' rows of token ids.
        scores: float32[n], the teacher's scores; float32[0] without a teacher.
        ends: int64[pools], where each pool's list ends.
    """

    rows: NDArray[np.int32]
    scores: NDArray[np.float32]
    ends: Indices

    def pool_of(self, at: int) -> int:
        """The pool whose list holds an element."""
        return int(np.searchsorted(self.ends, at, side="right"))

    def span(self, pool: int) -> tuple[int, int]:
        """Where a pool's list begins and ends."""
        return int(self.ends[pool - 1]) if pool else 0, int(self.ends[pool])


@dataclass(frozen=True)
class Pools:
    """The docs that each topic can be trained on; no two candidates of a topic have the same text.

    Attributes:
        topics: int32[pools], the rows of token ids of the queries.
        queries: uint64[pools], the hashes of their texts.
        positives: relevant docs, retrieved or not.
        candidates: docs of the run between the ranks, best first, relevant or not.
        negatives: the candidates that are not relevant and do not have the text of a relevant doc.
        relevant: bool[candidates].
    """

    topics: NDArray[np.int32]
    queries: Hashes
    positives: Lists
    candidates: Lists
    negatives: Lists
    relevant: NDArray[np.bool_]

    def save(self, folder: Path) -> None:
        """Writes the arrays to a folder."""
        for name, values in self._arrays():
            np.save(folder / f"{name}.npy", values)

    @classmethod
    def load(cls, folder: Path) -> "Pools":
        """Maps the arrays in a folder into memory."""

        def read(name: str) -> Any:
            return map_array(folder / f"{name}.npy")

        positives, candidates, negatives = (
            Lists(*(read(f"{name}-{part}") for part in Lists._fields)) for name in _LISTS
        )
        return cls(read("topics"), read("query-texts"), positives, candidates, negatives, read("relevant"))

    def _arrays(self) -> Iterator[tuple[str, NDArray[Any]]]:
        yield from (("topics", self.topics), ("query-texts", self.queries), ("relevant", self.relevant))
        for name, lists in zip(_LISTS, (self.positives, self.candidates, self.negatives), strict=True):
            yield from ((f"{name}-{part}", values) for part, values in lists._asdict().items())


_LISTS = ("positives", "candidates", "negatives")


class _Drawn(NamedTuple):
    """A group: its pool, and of each of its docs the row, whether it is relevant, and the teacher's score."""

    pool: int
    rows: Sequence[int]
    relevant: Sequence[bool]
    scores: Sequence[float]


class MinedSource:
    """Groups drawn from pools; `SamplingConfig` describes the modes."""

    def __init__(
        self,
        pools: Pools,
        texts: tuple[TokenRows, TokenRows],
        sampling: SamplingConfig,
        seed: int,
        *,
        taught: bool = False,
        lines: Sequence[str] = (),
    ) -> None:
        """Counts the groups of an epoch.

        Args:
            pools: the docs of each topic.
            texts: the token ids of the queries and of the docs.
            sampling: how groups are drawn.
            seed: decides the order and the negatives.
            taught: whether the groups have the teacher's scores.
            lines: report what was left out.

        Raises:
            PreflightError: there are no groups, or none with a positive.
        """
        self._pools, self._seed, self._taught = pools, seed, taught
        self._queries, self._docs = texts
        self._negatives = sampling.negatives or _NEGATIVES
        self._draw = {"balanced": self._balanced, "natural": self._natural, "triplets": self._triplet}[sampling.mode]
        self._triplets = _triplets(pools, sampling.negatives) if sampling.mode == "triplets" else _NO_TRIPLETS
        counts = {
            "balanced": len(pools.positives.rows),
            "natural": len(pools.candidates.rows),
            "triplets": len(self._triplets[0]),
        }
        self._count = counts[sampling.mode]
        if not self._count:
            raise PreflightError("the mined set is empty: " + "; ".join(lines or ["no topic has candidates"]))
        self._lines = [*lines, *(_unlabelled(pools) if sampling.mode == "natural" else ())]
        if sampling.mode == "balanced":
            self._lines += _few_negatives(pools, self._negatives)
        if taught:
            self._lines += _opposed(pools)
        self.queries = np.unique(pools.queries)
        self.docs_per_group = {"balanced": 1 + self._negatives, "natural": 1, "triplets": 2}[sampling.mode]
        self.groups_per_epoch: int | None = self._count

    def stream(self, position: Position) -> Iterator[tuple[Group[TokenIds], Position]]:
        for epoch, place, number in shuffled(self._count, self._seed, position):
            yield self._group(self._draw(number, epoch)), {"epoch": epoch, "index": place + 1}

    def notes(self, _position: Position) -> list[str]:
        return self._lines

    def _balanced(self, number: int, epoch: int) -> _Drawn:
        positives, negatives = self._pools.positives, self._pools.negatives
        pool = positives.pool_of(number)
        start, end = negatives.span(pool)
        rng = np.random.default_rng([self._seed, epoch, number])
        drawn = start + rng.choice(end - start, self._negatives, replace=end - start < self._negatives)
        rows = [int(positives.rows[number]), *negatives.rows[drawn].tolist()]
        scores = [*self._scores(positives, number), *self._scores(negatives, drawn)]
        return _Drawn(pool, rows, [True, *[False] * len(drawn)], scores)

    def _natural(self, number: int, _epoch: int) -> _Drawn:
        found = self._pools.candidates
        relevant = bool(self._pools.relevant[number])
        return _Drawn(found.pool_of(number), [int(found.rows[number])], [relevant], self._scores(found, number))

    def _triplet(self, number: int, _epoch: int) -> _Drawn:
        positives, negatives = self._pools.positives, self._pools.negatives
        positive, negative = (int(each[number]) for each in self._triplets)
        rows = [int(positives.rows[positive]), int(negatives.rows[negative])]
        scores = [*self._scores(positives, positive), *self._scores(negatives, negative)]
        return _Drawn(positives.pool_of(positive), rows, [True, False], scores)

    def _scores(self, lists: Lists, numbers: int | Indices) -> list[float]:
        """The teacher's scores of one or several elements."""
        return np.atleast_1d(lists.scores[numbers]).tolist() if self._taught else []

    def _group(self, drawn: _Drawn) -> Group[TokenIds]:
        query = self._queries[int(self._pools.topics[drawn.pool])]
        docs = tuple(self._docs[row] for row in drawn.rows)
        return Group(query, docs, tuple(drawn.relevant), tuple(drawn.scores) if self._taught else None)


def _unlabelled(pools: Pools) -> list[str]:
    """A line about topics whose candidates are all negatives; PreflightError if they are those of every topic."""
    ends = np.concatenate([[0], np.cumsum(pools.relevant)])[pools.candidates.ends]
    without = int(np.count_nonzero(np.diff(ends, prepend=0) == 0))
    if without == len(ends):
        raise PreflightError(
            "sampling.mode natural takes only candidates, and none of them is relevant, so nothing can be learned: "
            "give a run with relevant docs within sampling.ranks, or mode balanced, which has the positives of qrels"
        )
    return [f"topics whose candidates are all negatives: {without:,} of {len(ends):,}"] if without else []


def _opposed(pools: Pools) -> list[str]:
    """A line if the teacher scores the relevant docs of most topics below the others."""
    positives, negatives = (_means(lists) for lists in (pools.positives, pools.negatives))
    below = int(np.count_nonzero(positives < negatives))
    if 2 * below <= len(positives):
        return []
    return [
        f"topics whose relevant docs the teacher scores below the others, on average: {below:,} of {len(positives):,}; "
        "if its scores are distances, or logits of not relevant, the model learns them upside down: negate them"
    ]


def _means(lists: Lists) -> NDArray[np.float64]:
    """The mean score of each pool's list."""
    starts = np.concatenate([[0], lists.ends[:-1]]).astype(np.int64)
    sums = np.add.reduceat(lists.scores.astype(np.float64), starts)
    return np.asarray(sums / (lists.ends - starts))


def _few_negatives(pools: Pools, wanted: int) -> list[str]:
    """A line about topics whose negatives are drawn more than once in a group."""
    counts = np.diff(pools.negatives.ends, prepend=0)
    few = int(np.count_nonzero(counts < wanted))
    if not few:
        return []
    return [
        f"topics with fewer than {wanted:,} negatives: {few:,} of {len(counts):,}, the fewest {int(counts.min()):,}; "
        "theirs are drawn several times in a group"
    ]


_NO_TRIPLETS: tuple["array[int]", "array[int]"] = (array("q"), array("q"))


def _triplets(pools: Pools, limit: int | None) -> tuple["array[int]", "array[int]"]:
    """Mass et al. 2019, section 4.2: each of the m positives is in n/m triplets, with different negatives."""
    positives, negatives = array("q"), array("q")
    for pool in range(len(pools.topics)):
        first, end = pools.positives.span(pool)
        start, stop = pools.negatives.span(pool)
        share = max(1, (stop - start) // (end - first))
        for number in range(end - first):
            own = range(start + number % (stop - start), stop, end - first)[:share][:limit]
            positives.extend([first + number] * len(own))
            negatives.extend(own)
    return positives, negatives
