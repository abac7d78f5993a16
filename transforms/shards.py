"""Beam transforms that run the tasks of a stage on workers."""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import apache_beam as beam

from beamrank import logs
from beamrank.stages.receipts import Receipt
from beamrank.stages.tasks import ShardTask
from beamrank.storage import files as storage
from beamrank.storage.settings import StoreSettings
from models.stages.base import ShardWork
from transforms.metrics import InferenceMetrics

# Models and the JVM take one call at a time in a process, however many threads a runner gives it.
ONE_CALL_AT_A_TIME = threading.Lock()
_log = logging.getLogger(__name__)


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


def run_shard(task: ShardTask, run: Callable[[], Receipt]) -> Receipt:
    """Runs a shard that no other attempt has committed; returns its receipt."""
    with logs.log_context(storage.name(task.folder.url), task.shard):
        receipt = task.receipt()
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

    def __init__(self, stage: ShardWork) -> None:
        super().__init__()
        self._stage = stage
        self._shards = beam.metrics.Metrics.counter("beamrank", "shards")
        self._inference = InferenceMetrics()

    def process(self, task: ShardTask) -> Iterator[int]:
        """Yields the shard's number once it has a receipt."""
        with ONE_CALL_AT_A_TIME:
            receipt = run_shard(task, lambda: self._run(task))
        self._shards.inc()
        yield receipt.shard

    def _run(self, task: ShardTask) -> Receipt:
        try:
            receipt = self._stage.run(task)
        except Exception:
            self._inference.add_failure()
            raise
        self._inference.add(receipt)
        return receipt


@dataclass
class RunShards(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt."""

    stage: ShardWork

    def expand(self, tasks: beam.PCollection[ShardTask]) -> beam.PCollection[int]:
        return (
            tasks
            # Without a break in fusion, a runner would run all tasks where they were created.
            | "SpreadTasks" >> beam.Reshuffle()
            | "RunShard" >> beam.ParDo(RunShardFn(self.stage)).with_output_types(int)
        )
