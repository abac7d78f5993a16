"""What every stage shares: a shard's task, and how tasks are handed to workers."""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import apache_beam as beam

from beamrank import logs
from beamrank.records import Topic
from beamrank.stages.receipts import Receipt, StageFolder
from beamrank.storage import files as storage
from beamrank.storage.settings import StoreSettings

# Models and the JVM take one call at a time in a process, however many threads a runner gives it.
ONE_CALL_AT_A_TIME = threading.Lock()
_log = logging.getLogger(__name__)


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
    """A DoFn that reads and writes by URL: it carries the launcher's object store settings and the place of its log."""

    def __init__(self) -> None:
        self._stores = StoreSettings.here()
        self._logs = logs.place()

    def setup(self) -> None:
        """Makes this worker find the stores, and the log, of the launcher."""
        self._stores.apply()
        if self._logs is not None:
            self._logs.join()


def run_shard(folder: StageFolder, task: ShardTask, run: Callable[[], Receipt]) -> Receipt:
    """Runs a shard that no other attempt has committed; returns its receipt."""
    with logs.log_context(storage.name(folder.url), task.shard):
        receipt = folder.receipt(task.shard, task.digest)
        if receipt is not None:
            _log.info("skipped: another attempt has committed this shard")
            return receipt
        _log.info("started")
        try:
            receipt = run()
        except Exception:
            _log.exception("failed")
            raise
        counts = ", ".join(f"{name} {count}" for name, count in receipt.counts.items())
        _log.info("done in %.3f s: rows %d%s", receipt.seconds, receipt.rows, counts and f", {counts}")
        return receipt


class RunShardFn(StorageDoFn):
    """Runs the tasks that no other attempt has committed."""

    def __init__(self, job: StageJob) -> None:
        super().__init__()
        self._job = job
        self._shards = beam.metrics.Metrics.counter("beamrank", "shards")

    def process(self, task: ShardTask) -> Iterator[int]:
        """Yields the shard's number once its receipt is there."""
        with ONE_CALL_AT_A_TIME:
            receipt = run_shard(self._job.folder, task, lambda: self._job.run(task))
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
