"""The tasks of a Beam job, in a file named after its content, and the transforms that run them.

The job's graph carries ranges of their numbers, and a worker reads the tasks of its own shards.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Self

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue
from pydantic import TypeAdapter

from beamrank import logs
from beamrank.commit.plan import Plan
from beamrank.commit.shards import Shard, ShardTask
from beamrank.errors import DataError
from beamrank.formats.topic_table import TopicTable
from beamrank.storage.documents import parse_json, validated
from beamrank.storage.row_files import open_rows, read_row, write_rows
from beamrank.storage.stores import StoreSettings
from models.stages import calls
from models.stages.attempt import Outcome, run_shard
from models.stages.base import Stage

# One row: a task without its topics, as JSON; `topics` is the digest of these, empty where it has
# none.
_TASKS = pa.schema({"shard": pa.int32(), "topics": pa.string(), "task": pa.string()})
_TASK = TypeAdapter(ShardTask)
_MOST_RANGES = 256


@dataclass(frozen=True)
class TaskFile:
    """The tasks of one Beam job, sorted by shard.

    Attributes:
        url: of the file.
        topics_url: of the plan's file of topics, whose row group i is shard i (`write_shards`);
            empty where the tasks have no topics.
        tasks: how many they are.
    """

    url: str
    topics_url: str
    tasks: int

    @classmethod
    def write(cls, plan: Plan, folder: str, prefix: str, tasks: Sequence[ShardTask]) -> Self:
        """Writes tasks of a plan that is written, under a prefix and their content's own name."""

        def row(task: ShardTask) -> dict[str, Any]:
            topics = plan.shards.digests[task.shard] if task.topics else ""
            return {
                "shard": task.shard,
                "topics": topics,
                "task": _TASK.dump_json(task, exclude={"topics"}),
            }

        url = write_rows(
            folder, prefix, _TASKS, map(row, sorted(tasks, key=lambda task: task.shard))
        )
        return cls(
            url, plan.stored_shards() if any(task.topics for task in tasks) else "", len(tasks)
        )

    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of the tasks, from the first to the last, exclusive: a few hundred at most,
        however many tasks.
        """
        bounds = np.linspace(0, self.tasks, min(self.tasks, _MOST_RANGES) + 1).astype(int)
        return list(pairwise(bounds.tolist()))

    def shards(self, tasks: tuple[int, int]) -> list[int]:
        """The shards of a range."""
        shards: list[int] = _shards(self.url)[slice(*tasks)].tolist()
        return shards

    def read(self, shard: int) -> ShardTask:
        """The task of a shard, with its topics; raises DataError where a file is missing or was
        changed.
        """
        values = read_row(self.url, int(np.searchsorted(_shards(self.url), shard)))
        task = validated(_TASK, parse_json(values["task"]))
        if not values["topics"]:
            return task
        topics = TopicTable(open_rows(self.topics_url).group(shard))
        if Shard(shard, topics).digest != values["topics"]:
            raise DataError(
                f"{self.topics_url} does not hold the topics of shard {shard}: it was changed. "
                "Run the same command again, which writes it again"
            )
        return replace(task, topics=topics)


@lru_cache(maxsize=4)
def _shards(url: str) -> npt.NDArray[np.int32]:
    """The shards of the tasks in a file, ascending."""
    shards: npt.NDArray[np.int32] = open_rows(url).read("shard")["shard"].to_numpy()
    return shards


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

    def __init__(self, function: Callable[[Any], Iterable[Any]]) -> None:
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
        receipt = outcome.receipt if outcome.ran else None
        if receipt is not None and (inferences := receipt.counts.get("inferences", 0)):
            self._inferences.inc(inferences)
            self._batch_size.update(inferences)
            self._batch_latency.update(round(receipt.seconds * 1e6))
        for load in outcome.loads:
            self._load_latency.update(round(load.seconds * 1e3))
            self._model_bytes.update(load.weights_bytes)

    def add_failure(self) -> None:
        """Counts a shard that failed."""
        self._failed_batches.inc()


class RunShardFn(StorageDoFn):
    """Runs the tasks that no other attempt has committed, one at a time."""

    def __init__(self, stage: Stage, file: TaskFile) -> None:
        super().__init__()
        self._stage, self._file = stage, file
        self._shards = Metrics.counter("beamrank", "shards")
        self._inference = InferenceMetrics()

    def setup(self) -> None:
        super().setup()
        calls.start()

    def process(self, shard: int) -> Iterator[int]:
        """Yields the number of a shard that has a receipt."""
        with self._failures(), ONE_CALL_AT_A_TIME:
            outcome = run_shard(self._stage, self._file.read(shard))
        yield from self._count(outcome)

    def _count(self, outcome: Outcome) -> Iterator[int]:
        """The number of a shard with a receipt, counted in this thread, which alone has the
        runner's metrics.
        """
        self._inference.add(outcome)
        if outcome.receipt is not None:
            self._shards.inc()
            yield outcome.receipt.shard

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Counts a shard that fails."""
        try:
            yield
        except Exception:
            self._inference.add_failure()
            raise


class RunShardsFn(RunShardFn):
    """Runs as many tasks at a time as the stage does."""

    def setup(self) -> None:
        super().setup()
        self._pool = ThreadPoolExecutor(self._stage.shards_at_a_time)

    def start_bundle(self) -> None:
        # Forgets the shards of a bundle that failed.
        self._started: deque[Future[Outcome]] = deque()

    def process(self, shard: int) -> Iterator[int]:
        """Yields the number of an earlier shard that has a receipt."""
        with self._failures():
            run = partial(run_shard, self._stage, self._file.read(shard))
        self._started.append(self._pool.submit(run))
        if len(self._started) == self._stage.shards_at_a_time:
            yield from self._wait()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        while self._started:
            yield from map(GlobalWindows.windowed_value, self._wait())

    def teardown(self) -> None:
        self._pool.shutdown()

    def _wait(self) -> Iterator[int]:
        with self._failures():
            outcome = self._started.popleft().result()
        return self._count(outcome)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Also ends the shards that were started with one that fails."""
        try:
            with super()._failures():
                yield
        except Exception:
            for started in self._started:
                started.cancel()
            wait(self._started)
            raise


@dataclass
class SpreadTasks(beam.PTransform):
    """-> the shards of the tasks of a job. The graph holds ranges of them alone."""

    file: TaskFile

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[int]:
        return (
            begin
            | "Ranges" >> beam.Create(self.file.ranges())
            | "Tasks" >> beam.ParDo(EachFn(self.file.shards)).with_output_types(int)
            # Without a break in fusion, a runner would run all tasks of a range where it was
            # created.
            | "Spread" >> beam.Reshuffle()
        )


@dataclass
class RunShards(beam.PTransform):
    """Shards -> shards that have a receipt."""

    stage: Stage
    file: TaskFile

    def expand(self, shards: beam.PCollection[int]) -> beam.PCollection[int]:
        run = RunShardFn if self.stage.shards_at_a_time == 1 else RunShardsFn
        return shards | "RunShard" >> beam.ParDo(run(self.stage, self.file)).with_output_types(int)


@dataclass
class WriteShards(beam.PTransform):
    """Shards -> those for which something was written that follows from their parts.

    It is the same at every attempt, so that no receipt is needed.
    """

    write: Callable[[ShardTask], None]
    file: TaskFile

    def expand(self, shards: beam.PCollection[int]) -> beam.PCollection[int]:
        write = EachFn(partial(_write_shard, self.write, self.file))
        return shards | "WriteShard" >> beam.ParDo(write).with_output_types(int)


def _write_shard(write: Callable[[ShardTask], None], file: TaskFile, shard: int) -> Iterator[int]:
    write(file.read(shard))
    yield shard
