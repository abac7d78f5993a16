"""A given run: its units are read by workers, one shuffle brings the rows to the shards of their queries."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beamrank.commit.receipts import StageFolder
from beamrank.commit.shards import ShardTask
from beamrank.commit.tasks import StoredTask
from beamrank.join.run_shards import SENT
from beamrank.join.run_units import RunReader, read_units
from models.stages.given_run import GivenRun, OpenShards, SentRows
from transforms.join import task_and_rows, task_batch
from transforms.shards import StorageDoFn, run_shard

_SENT: Any = tuple[int, pa.RecordBatch]


@dataclass(frozen=True)
class GivenRunJob:
    """What workers need to know of a run beside the tasks.

    Attributes:
        stage: the stage.
        folder: its folder.
        reader: reads the run.
        units_url: where its units are listed.
        shards: those of the plan.
    """

    stage: GivenRun
    folder: StageFolder
    reader: RunReader
    units_url: str
    shards: OpenShards


class ScanRunFn(StorageDoFn):
    """Ranges of units -> rows, by shard."""

    def __init__(self, job: GivenRunJob) -> None:
        super().__init__()
        self._job = job

    def process(self, units: tuple[int, int]) -> Iterator[SentRows]:
        """Reads a range."""
        job = self._job
        return job.stage.scan(job.reader, read_units(job.units_url), *units, job.shards, job.folder)


class OrderShardFn(StorageDoFn):
    """(shard, batches) -> the shard's number once it has a receipt."""

    def __init__(self, job: GivenRunJob) -> None:
        super().__init__()
        self._job = job

    def process(self, grouped: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[int]:
        """Commits a shard."""
        job, (_, batches) = self._job, grouped
        task, rows = task_and_rows(batches)
        yield run_shard(task, partial(job.stage.join, task, rows, job.reader, read_units(job.units_url))).receipt.shard


@dataclass
class ReadRun(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt.

    Attributes:
        job: what is read.
        ranges: ranges of units.
    """

    job: GivenRunJob
    ranges: Sequence[tuple[int, int]]

    def run_here(self, tasks: Sequence[ShardTask], note: Callable[[int], None]) -> None:
        """The same without Beam, in this process: notes the number of each shard that has a receipt."""
        job = self.job
        job.stage.run_here(tasks, job.reader, read_units(job.units_url), job.shards, note)

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        rows = (
            tasks.pipeline
            | "RunRanges" >> beam.Create(self.ranges)
            | "SpreadRanges" >> beam.Reshuffle()
            # (shard, RecordBatch[query_id, doc_id, rank, score, unit, position])
            | "ScanRun" >> beam.ParDo(ScanRunFn(self.job)).with_output_types(_SENT)
        )
        every_shard = tasks | "TaskBatch" >> beam.Map(task_batch, SENT).with_output_types(_SENT)
        return (
            (rows, every_shard)
            | "Flatten" >> beam.Flatten()
            # The only shuffle: rows meet the other rows of their queries.
            | "GroupByShard" >> beam.GroupByKey()
            | "OrderShard" >> beam.ParDo(OrderShardFn(self.job)).with_output_types(int)
        )
