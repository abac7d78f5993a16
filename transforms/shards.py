"""Beam transforms that run the tasks of a stage on workers."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beamrank import logs
from beamrank.commit.shards import ShardTask
from beamrank.storage.stores import StoreSettings
from models.stages.attempt import Outcome, run_shard
from models.stages.base import Stage
from transforms.tasks import StoredTask, TaskFile

# Models and the JVM take one call at a time in a process, however many threads a runner gives it.
ONE_CALL_AT_A_TIME = threading.Lock()
NAMESPACE = "BeamML"


class StorageDoFn(beam.DoFn):
    """A DoFn that reads and writes by URL: it carries the launcher's object store settings and the
    place of its log.
    """

    def __init__(self) -> None:
        self._stores = StoreSettings.here()
        self._logs = logs.place()

    def setup(self) -> None:
        self._stores.apply()
        if self._logs is not None:
            self._logs.join()


class EachFn(StorageDoFn):
    """Element -> the elements that a function gives for it."""

    def __init__(self, function: Callable[[Any], Iterator[Any]]) -> None:
        super().__init__()
        self._function = function

    def process(self, element: Any) -> Iterator[Any]:
        yield from self._function(element)


class InferenceMetrics:
    """The metrics of one DoFn, under the namespace and names of
    `apache_beam.ml.inference.RunInference`.

    A request batch is one shard: the engine gets it in one call, and cuts its batches by itself.
    """

    def __init__(self) -> None:
        self._inferences = Metrics.counter(NAMESPACE, "num_inferences")
        self._failed_batches = Metrics.counter(NAMESPACE, "failed_batches_counter")
        self._batch_size = Metrics.distribution(NAMESPACE, "inference_request_batch_size")
        self._batch_latency = Metrics.distribution(NAMESPACE, "inference_batch_latency_micro_secs")
        self._load_latency = Metrics.distribution(NAMESPACE, "load_model_latency_milli_secs")
        self._model_bytes = Metrics.distribution(NAMESPACE, "model_byte_size")

    def add(self, outcome: Outcome) -> None:
        """Counts a shard that was run, and the models that were loaded for it."""
        inferences = outcome.receipt.counts.get("inferences", 0) if outcome.ran else 0
        if inferences:
            self._inferences.inc(inferences)
            self._batch_size.update(inferences)
            self._batch_latency.update(round(outcome.receipt.seconds * 1e6))
        for load in outcome.loads:
            self._load_latency.update(round(load.seconds * 1e3))
            self._model_bytes.update(load.weights_bytes)

    def add_failure(self) -> None:
        """Counts a shard that failed."""
        self._failed_batches.inc()


class RunShardFn(StorageDoFn):
    """Runs the tasks that no other attempt has committed."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage
        self._shards = Metrics.counter("beamrank", "shards")
        self._inference = InferenceMetrics()

    def setup(self) -> None:
        super().setup()
        self._pool = ThreadPoolExecutor(self._stage.shards_at_a_time)

    def start_bundle(self) -> None:
        # Forgets the shards of a bundle that failed.
        self._started: deque[Future[Outcome]] = deque()

    def process(self, stored: StoredTask) -> Iterator[int]:
        """Yields the number of a shard that has a receipt: this one's or, of several at a time, an
        earlier one's.
        """
        with self._failures():
            run = partial(run_shard, self._stage, stored.read())
        if self._stage.shards_at_a_time == 1:
            with ONE_CALL_AT_A_TIME, self._failures():
                outcome = run()
            yield self._count(outcome)
            return
        self._started.append(self._pool.submit(run))
        if len(self._started) == self._stage.shards_at_a_time:
            yield self._wait()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        while self._started:
            yield GlobalWindows.windowed_value(self._wait())

    def teardown(self) -> None:
        self._pool.shutdown()

    def _wait(self) -> int:
        with self._failures():
            outcome = self._started.popleft().result()
        return self._count(outcome)

    def _count(self, outcome: Outcome) -> int:
        """The shard's number, counted in this thread, which alone has the runner's metrics."""
        self._inference.add(outcome)
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


def _tasks_of(file: TaskFile, rows: tuple[int, int]) -> Iterator[StoredTask]:
    return (StoredTask(file, shard) for shard in file.shards(*rows))


@dataclass
class SpreadTasks(beam.PTransform):
    """-> where each task of a job is. The graph holds ranges of them alone."""

    file: TaskFile

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[StoredTask]:
        return (
            begin
            | "Ranges" >> beam.Create(self.file.ranges())
            | "Tasks" >> beam.ParDo(EachFn(partial(_tasks_of, self.file)))
            # Without a break in fusion, a runner would run all tasks of a range where it was
            # created.
            | "Spread" >> beam.Reshuffle()
        )


@dataclass
class RunShards(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt."""

    stage: Stage

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        return tasks | "RunShard" >> beam.ParDo(RunShardFn(self.stage)).with_output_types(int)


def _write_shard(write: Callable[[ShardTask], None], stored: StoredTask) -> Iterator[int]:
    write(stored.read())
    yield stored.shard


@dataclass
class WriteShards(beam.PTransform):
    """Tasks -> the numbers of the shards for which something was written that follows from their
    parts.

    It is the same at every attempt, so that no receipt is needed.
    """

    write: Callable[[ShardTask], None]

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        write = EachFn(partial(_write_shard, self.write))
        return tasks | "WriteShard" >> beam.ParDo(write).with_output_types(int)
