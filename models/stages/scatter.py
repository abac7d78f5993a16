"""One pass over the units of a corpus, or of a given run, whose rows go to the shards that need
them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import pyarrow as pa

from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import ShardTask

# (shard, rows that it needs)
SentRows = tuple[int, pa.RecordBatch]


@dataclass(frozen=True)
class Scatter(ABC):
    """What is read for many shards of a stage, and what makes their parts of it."""

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
        """Makes the part of a shard of the rows that were sent to it, in any order, and commits it
        to the task's folder, which names the stage where a scan serves several.
        """
