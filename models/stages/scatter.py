"""One pass over the units of a corpus, or of a given run, whose rows go to the shards that need
them.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import pyarrow as pa

from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.shards import ShardTask
from beamrank.storage.digested import reread
from models.stages.attempt import run_shard, shards_here

# (shard, rows that it needs)
SentRows = tuple[int, pa.RecordBatch]
_SHARDS_AT_ONCE = 4


@dataclass(frozen=True)
class Scatter(ABC):
    """What is read for many shards of a stage, and what makes their parts of it.

    Attributes:
        stage: the stage.
        folder: its folder, where a report of each unit is left.
    """

    stage: Any
    folder: StageFolder

    source: ClassVar[str]
    """What is read, for messages."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the rows that are sent."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many units there are."""

    @abstractmethod
    def for_shards(self, shards: Sequence[int]) -> Self:
        """The same for these shards, which are consecutive among the open ones."""

    @abstractmethod
    def sent_bytes(self) -> float:
        """About how many bytes all units send to all shards."""

    @abstractmethod
    def scan(self, number: int) -> Iterator[SentRows]:
        """Reads a unit, addresses its rows to the shards that need them, and reports on it.

        Raises:
            PreflightError: a unit cannot be read.
            DataError: a file is not, or no longer, the one that was digested.
        """

    @abstractmethod
    def gather(self, task: ShardTask, rows: Sequence[pa.RecordBatch]) -> Receipt:
        """Makes the part of a shard of the rows that were sent to it, in any order, and commits
        it.
        """


def gather_shard(scatter: Scatter, task: ShardTask, rows: Sequence[pa.RecordBatch]) -> int:
    """The number of a shard once it has a receipt."""
    return run_shard(task, partial(scatter.gather, task, rows)).receipt.shard


def scatter_here(scatter: Scatter, tasks: Sequence[ShardTask]) -> Iterator[int]:
    """Does the shards in this process, and yields the number of each that has a receipt: all units
    are read before the first part is made.
    """

    def read(number: int) -> list[SentRows]:
        return list(scatter.scan(number))

    sent: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for number in range(scatter.count):
        for shard, rows in reread(partial(read, number)):
            sent[shard].append(rows)
    own_rows = [sent.pop(task.shard, []) for task in tasks]
    with ThreadPoolExecutor(_SHARDS_AT_ONCE) as pool:
        yield from pool.map(partial(gather_shard, scatter), tasks, own_rows)


def done_here(work: Any, tasks: Sequence[ShardTask]) -> Iterator[int]:
    """Does shards in this process, by a scatter or by the stage itself: see `scatter_here`."""
    return (scatter_here if isinstance(work, Scatter) else shards_here)(work, tasks)
