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

    def span(self, pool: int) -> slice:
        """The place of a pool's list."""
        return slice(int(self.ends[pool - 1]) if pool else 0, int(self.ends[pool]))


@dataclass(frozen=True)
class Pools:
    """The docs that each topic can be trained on; no two candidates of a topic have the same text.

    Attributes:
        topics: int32[pools], the rows of token ids of the queries.
        queries: uint64[pools], the hashes of their texts.
        positives: relevant docs, retrieved or not.
        candidates: docs of the run between the ranks, best first; those that are not relevant are the negatives.
        relevant: bool[candidates].
    """

    topics: NDArray[np.int32]
    queries: Hashes
    positives: Lists
    candidates: Lists
    relevant: NDArray[np.bool_]

    def save(self, folder: Path) -> None:
        """Writes the arrays to a folder."""
        for name, values in vars(self).items():
            arrays = values._asdict() if isinstance(values, Lists) else {"": values}
            for part, content in arrays.items():
                np.save(folder / f"{name}-{part}.npy", content)

    @classmethod
    def load(cls, folder: Path) -> "Pools":
        """Maps the arrays in a folder into memory."""

        def read(name: str, part: str = "") -> Any:
            return map_array(folder / f"{name}-{part}.npy")

        positives, candidates = (
            Lists(*(read(name, part) for part in Lists._fields)) for name in ("positives", "candidates")
        )
        return cls(read("topics"), read("queries"), positives, candidates, read("relevant"))

    def negatives(self, pool: int) -> Indices:
        """The places of a pool's negatives among all candidates."""
        span = self.candidates.span(pool)
        return np.asarray(np.flatnonzero(~self.relevant[span]) + span.start)


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
        is_triplets = sampling.mode == "triplets"
        self._triplets = _triplets(pools, sampling.negatives) if is_triplets else np.zeros((0, 2), np.int64)
        self._count, self.docs_per_group = {
            "balanced": (len(pools.positives.rows), 1 + self._negatives),
            "natural": (len(pools.candidates.rows), 1),
            "triplets": (len(self._triplets), 2),
        }[sampling.mode]
        self.groups_per_epoch: int | None = self._count
        if not self._count:
            raise PreflightError("the mined set is empty: " + "; ".join(lines or ["no topic has candidates"]))
        few = self._negatives if sampling.mode == "balanced" else 0
        self.lines = [*lines, *_lines(pools, sampling.mode == "natural", few, taught)]
        self.queries = np.unique(pools.queries)

    def stream(self, position: Position) -> Iterator[tuple[Group[int], Position]]:
        """See `Source`."""
        for epoch, place, number in shuffled(self._count, self._seed, position):
            yield self._group(number, epoch), {"epoch": epoch, "index": place + 1}

    def _group(self, number: int, epoch: int) -> Group[int]:
        pools = self._pools
        if self._mode == "natural":
            parts, relevant = [(pools.candidates, [number])], [bool(pools.relevant[number])]
        else:
            positive, negatives = self._drawn(number, epoch)
            parts = [(pools.positives, [positive]), (pools.candidates, negatives)]
            relevant = [True, *[False] * len(negatives)]
        topic = pools.topics[parts[0][0].pool_of(parts[0][1][0])]
        docs = tuple(row for lists, at in parts for row in lists.rows[at].tolist())
        scores = tuple(score for lists, at in parts for score in lists.scores[at].tolist()) if self._taught else None
        return Group(int(topic), docs, tuple(relevant), scores)

    def _drawn(self, number: int, epoch: int) -> tuple[int, list[int]]:
        """A positive and some of its negatives, by their places in the lists."""
        if self._mode == "triplets":
            positive, negative = self._triplets[number].tolist()
            return positive, [negative]
        places = self._pools.negatives(self._pools.positives.pool_of(number))
        rng = np.random.default_rng([self._seed, epoch, number])
        drawn = rng.choice(len(places), self._negatives, replace=len(places) < self._negatives)
        return number, places[drawn].tolist()


def _triplets(pools: Pools, limit: int | None) -> NDArray[np.int64]:
    """int64[n, 2], places of positives and negatives.

    Mass et al. 2019, section 4.2: each of the m positives is in n/m triplets, with different negatives.
    """
    found = array("q")
    for pool in range(len(pools.topics)):
        span, negatives = pools.positives.span(pool), pools.negatives(pool).tolist()
        count = span.stop - span.start
        share = max(1, len(negatives) // count)
        for number in range(count):
            for negative in negatives[number % len(negatives) :: count][:share][:limit]:
                found.extend((span.start + number, negative))
    return np.frombuffer(found, np.int64).reshape(-1, 2)


def _lines(pools: Pools, natural: bool, needed: int, taught: bool) -> Iterator[str]:
    """Lines about topics from which a model learns little, or the wrong thing.

    These are topics with fewer negatives than are needed in a group, those whose candidates are all negatives, and
    those whose relevant docs the teacher scores below the others.

    Raises:
        PreflightError: sampling is natural, and no topic has a relevant candidate.
    """
    topics = len(pools.topics)
    of_positives, of_candidates = (
        np.repeat(np.arange(topics, dtype=np.int32), np.diff(lists.ends, prepend=0))
        for lists in (pools.positives, pools.candidates)
    )
    negatives = np.bincount(of_candidates[~pools.relevant], minlength=topics)
    without = int(np.count_nonzero(negatives == np.diff(pools.candidates.ends, prepend=0)))
    if natural and without == topics:
        raise PreflightError(
            "sampling.mode natural takes only candidates, and none of them is relevant, so nothing can be learned: "
            "give a run with relevant docs within sampling.ranks, or mode balanced, which has the positives of qrels"
        )
    if natural and without:
        yield f"topics whose candidates are all negatives: {without:,} of {topics:,}"
    if few := int(np.count_nonzero(negatives < needed)):
        yield (
            f"topics with fewer than {needed:,} negatives: {few:,} of {topics:,}, the fewest {int(negatives.min()):,}; "
            "theirs are drawn several times in a group"
        )
    if not taught:
        return
    positive = np.bincount(of_positives, pools.positives.scores, topics) / np.bincount(of_positives, minlength=topics)
    negative = np.bincount(of_candidates[~pools.relevant], pools.candidates.scores[~pools.relevant], topics) / negatives
    if 2 * (below := int(np.count_nonzero(positive < negative))) > topics:
        yield (
            f"topics whose relevant docs the teacher scores below the others, on average: {below:,} of {topics:,}; if "
            "its scores are distances, or logits of not relevant, the model learns them upside down: negate them"
        )
