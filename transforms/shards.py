"""What every stage shares: a shard's task, and how tasks are handed to workers."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import apache_beam as beam

from beamrank.records import Topic
from beamrank.stages.receipts import Receipt, StageFolder
from beamrank.storage.settings import StoreSettings

# Models and the JVM take one call at a time in a process, however many threads a runner gives it.
ONE_CALL_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class ShardTask:
    """One shard of one stage: the digest that its receipt must carry, its topics and its inputs' receipts."""

    shard: int
    digest: str
    topics: tuple[Topic, ...]
    inputs: tuple[Receipt, ...]


class StageJob(Protocol):
    """A stage as a worker sees it: picklable, and `run` does one shard and commits it."""

    @property
    def folder(self) -> StageFolder:
        """Where the stage's parts and receipts go."""

    def run(self, task: ShardTask) -> Receipt:
        """Does one shard."""


class StorageDoFn(beam.DoFn):
    """A DoFn that reads and writes by URL: it takes along where the launcher's object stores are."""

    def __init__(self) -> None:
        self._stores = StoreSettings.here()

    def setup(self) -> None:
        """Lets this worker find the stores that the launcher found."""
        self._stores.apply()


class RunShardFn(StorageDoFn):
    """Runs the tasks that no other attempt has committed."""

    def __init__(self, job: StageJob) -> None:
        super().__init__()
        self._job = job
        self._shards = beam.metrics.Metrics.counter("beamrank", "shards")

    def process(self, task: ShardTask) -> Iterator[int]:
        """Yields the shard's number once its receipt is there."""
        with ONE_CALL_AT_A_TIME:
            receipt = self._job.folder.receipt(task.shard, task.digest) or self._job.run(task)
        self._shards.inc()
        yield receipt.shard


@dataclass
class RunShards(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt."""

    job: StageJob

    def expand(self, tasks: beam.PCollection[ShardTask]) -> beam.PCollection[int]:
        """Spreads the tasks over the workers and runs them."""
        return (
            tasks
            # Without a break in fusion, a runner would run all tasks where they were created.
            | "SpreadTasks" >> beam.Reshuffle()
            | "RunShard" >> beam.ParDo(RunShardFn(self.job)).with_output_types(int)
        )
