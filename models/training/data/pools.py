"""The mined set on disk: for each topic its relevant docs and its candidates; and the groups that are drawn from it."""

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
from models.training.data.groups import Group, Position, shuffled
from models.training.data.texts import Hashes, Indices

_LISTS = ("positives", "candidates", "negatives")


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

    def means(self) -> NDArray[np.float64]:
        """The mean score of each pool's list."""
        starts = np.concatenate([[0], self.ends[:-1]]).astype(np.int64)
        return np.asarray(np.add.reduceat(self.scores.astype(np.float64), starts) / (self.ends - starts))


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
        arrays: dict[str, NDArray[Any]] = {
            "topics": self.topics,
            "query-texts": self.queries,
            "relevant": self.relevant,
        }
        for name in _LISTS:
            arrays |= {f"{name}-{part}": values for part, values in getattr(self, name)._asdict().items()}
        for name, values in arrays.items():
            np.save(folder / f"{name}.npy", values)

    @classmethod
    def load(cls, folder: Path) -> "Pools":
        """Maps the arrays in a folder into memory."""

        def read(name: str) -> Any:
            return map_array(folder / f"{name}.npy")

        lists = {name: Lists(*(read(f"{name}-{part}") for part in Lists._fields)) for name in _LISTS}
        return cls(topics=read("topics"), queries=read("query-texts"), relevant=read("relevant"), **lists)


class MinedSource:
    """Groups drawn from pools; `SamplingConfig` describes the modes."""

    def __init__(
        self, pools: Pools, sampling: SamplingConfig, seed: int, *, taught: bool = False, lines: Sequence[str] = ()
    ) -> None:
        """Counts the groups of an epoch; `lines` report what was left out.

        Raises:
            PreflightError: there are no groups, or none with a positive.
        """
        self._pools, self._seed, self._taught, self._mode = pools, seed, taught, sampling.mode
        self._negatives = sampling.negatives or 1
        self._triplets = _triplets(pools, sampling.negatives) if sampling.mode == "triplets" else (array("q"),) * 2
        self._count = {
            "balanced": len(pools.positives.rows),
            "natural": len(pools.candidates.rows),
            "triplets": len(self._triplets[0]),
        }[sampling.mode]
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

    def stream(self, position: Position) -> Iterator[tuple[Group[int], Position]]:
        """See `Source`."""
        for epoch, place, number in shuffled(self._count, self._seed, position):
            yield self._group(number, epoch), {"epoch": epoch, "index": place + 1}

    def notes(self, _position: Position) -> list[str]:
        """See `Source`."""
        return self._lines

    def _group(self, number: int, epoch: int) -> Group[int]:
        pools = self._pools
        if self._mode == "natural":
            parts, relevant = [(pools.candidates, [number])], [bool(pools.relevant[number])]
        else:
            positive, negatives = self._drawn(number, epoch)
            parts = [(pools.positives, [positive]), (pools.negatives, negatives)]
            relevant = [True, *[False] * len(negatives)]
        topic = pools.topics[parts[0][0].pool_of(parts[0][1][0])]
        docs = tuple(row for lists, at in parts for row in lists.rows[at].tolist())
        scores = tuple(score for lists, at in parts for score in lists.scores[at].tolist()) if self._taught else None
        return Group(int(topic), docs, tuple(relevant), scores)

    def _drawn(self, number: int, epoch: int) -> tuple[int, list[int]]:
        """A positive and some of its negatives, by their places in the lists."""
        if self._mode == "triplets":
            return self._triplets[0][number], [self._triplets[1][number]]
        start, end = self._pools.negatives.span(self._pools.positives.pool_of(number))
        rng = np.random.default_rng([self._seed, epoch, number])
        drawn = start + rng.choice(end - start, self._negatives, replace=end - start < self._negatives)
        return number, drawn.tolist()


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
    below = int(np.count_nonzero(pools.positives.means() < pools.negatives.means()))
    if 2 * below <= len(pools.topics):
        return []
    return [
        f"topics whose relevant docs the teacher scores below the others, on average: {below:,} of "
        f"{len(pools.topics):,}; if its scores are distances, or logits of not relevant, the model learns them upside "
        "down: negate them"
    ]


def _few_negatives(pools: Pools, needed: int) -> list[str]:
    """A line about topics whose negatives are drawn more than once in a group."""
    counts = np.diff(pools.negatives.ends, prepend=0)
    few = int(np.count_nonzero(counts < needed))
    if not few:
        return []
    return [
        f"topics with fewer than {needed:,} negatives: {few:,} of {len(counts):,}, the fewest {int(counts.min()):,}; "
        "theirs are drawn several times in a group"
    ]
