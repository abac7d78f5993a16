"""Beam transforms that run the tasks of a stage on workers."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beamrank import logs
from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import ShardTask
from beamrank.storage import files as storage
from beamrank.storage.digested import reread
from beamrank.storage.stores import StoreSettings
from models.scoring.reuse import UnusableTokensError
from models.stages.base import ShardStage
from models.stages.scoring import new_loads

# Models and the JVM take one call at a time in a process, however many threads a runner gives it.
ONE_CALL_AT_A_TIME = threading.Lock()
NAMESPACE = "BeamML"
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


class Outcome(NamedTuple):
    """A shard's receipt, and whether it was run for it."""

    receipt: Receipt
    ran: bool


def run_shard(task: ShardTask, run: Callable[[], Receipt]) -> Outcome:
    """Runs a shard that no other attempt has committed."""
    with logs.log_context(storage.name(task.folder.url), task.shard):
        receipt = task.receipt()
        if receipt is not None:
            _log.info("skipped: another attempt has committed this shard")
            return Outcome(receipt, ran=False)
        _log.info("started")
        try:
            receipt = run()
        except UnusableTokensError as error:
            _log.warning("not joined: %s", error)
            raise
        except Exception:
            _log.exception("failed")
            raise
        counts = ", ".join(f"{name} {count}" for name, count in receipt.counts.items())
        _log.info("done in %.3f s: rows %d%s", receipt.seconds, receipt.rows, counts and f", {counts}")
        return Outcome(receipt, ran=True)


class InferenceMetrics:
    """The metrics of one DoFn, under the namespace and names of `apache_beam.ml.inference.RunInference`.

    A request batch is one shard: the engine gets it in one call, and cuts its batches by itself.
    """

    def __init__(self) -> None:
        self._inferences = Metrics.counter(NAMESPACE, "num_inferences")
        self._failed_batches = Metrics.counter(NAMESPACE, "failed_batches_counter")
        self._batch_size = Metrics.distribution(NAMESPACE, "inference_request_batch_size")
        self._batch_latency = Metrics.distribution(NAMESPACE, "inference_batch_latency_micro_secs")
        self._load_latency = Metrics.distribution(NAMESPACE, "load_model_latency_milli_secs")
        self._model_bytes = Metrics.distribution(NAMESPACE, "model_byte_size")

    def add(self, receipt: Receipt) -> None:
        """Counts a shard that was run, and the models that were loaded for it."""
        inferences = receipt.counts.get("inferences", 0)
        if inferences:
            self._inferences.inc(inferences)
            self._batch_size.update(inferences)
            self._batch_latency.update(round(receipt.seconds * 1e6))
        for load in new_loads():
            self._load_latency.update(round(load.seconds * 1e3))
            self._model_bytes.update(load.weights_bytes)

    def add_failure(self) -> None:
        """Counts a shard that failed."""
        self._failed_batches.inc()


class RunShardFn(StorageDoFn):
    """Runs the tasks that no other attempt has committed."""

    def __init__(self, stage: ShardStage) -> None:
        super().__init__()
        self._stage = stage
        self._shards = Metrics.counter("beamrank", "shards")
        self._inference = InferenceMetrics()

    def setup(self) -> None:
        """Starts the threads of a stage that does several shards at a time."""
        super().setup()
        self._pool = ThreadPoolExecutor(self._stage.shards_at_a_time)

    def start_bundle(self) -> None:
        """Forgets the shards of a bundle that failed."""
        self._started: deque[Future[Outcome]] = deque()

    def process(self, task: ShardTask) -> Iterator[int]:
        """Yields the number of a shard that has a receipt: this one's or, of several at a time, an earlier one's."""
        run = partial(run_shard, task, partial(reread, partial(self._stage.run, task)))
        if self._stage.shards_at_a_time == 1:
            with ONE_CALL_AT_A_TIME, self._failures():
                outcome = run()
            yield self._count(outcome)
            return
        self._started.append(self._pool.submit(run))
        if len(self._started) == self._stage.shards_at_a_time:
            yield self._wait()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields the numbers of the shards that were left."""
        while self._started:
            yield GlobalWindows.windowed_value(self._wait())

    def teardown(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()

    def _wait(self) -> int:
        with self._failures():
            outcome = self._started.popleft().result()
        return self._count(outcome)

    def _count(self, outcome: Outcome) -> int:
        """The shard's number, counted in this thread, which alone has the runner's metrics."""
        if outcome.ran:
            self._inference.add(outcome.receipt)
        self._shards.inc()
        return outcome.receipt.shard

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Counts a shard that fails, and ends those that were started with it."""
        try:
            yield
        except Exception:
            self._inference.add_failure()
            for each in self._started:
                each.cancel()
            wait(self._started)
            raise


@dataclass
class RunShards(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt."""

    stage: ShardStage

    def expand(self, tasks: beam.PCollection[ShardTask]) -> beam.PCollection[int]:
        return (
            tasks
            # Without a break in fusion, a runner would run all tasks where they were created.
            | "SpreadTasks" >> beam.Reshuffle()
            | "RunShard" >> beam.ParDo(RunShardFn(self.stage)).with_output_types(int)
        )
