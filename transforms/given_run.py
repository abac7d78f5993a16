"""A given run: its units are read by workers, one shuffle brings the rows to the shards of their queries."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beamrank.commit.job_files import StoredTask
from beamrank.commit.shards import ShardTask
from beamrank.join.run_shards import SENT
from models.stages.given_run import RunScan, SentRows
from transforms.join import task_and_rows, task_batch
from transforms.shards import StorageDoFn, run_shard

_SENT: Any = tuple[int, pa.RecordBatch]


class ScanRunFn(StorageDoFn):
    """Ranges of units -> rows, by shard."""

    def __init__(self, scan: RunScan) -> None:
        super().__init__()
        self._scan = scan

    def process(self, units: tuple[int, int]) -> Iterator[SentRows]:
        return self._scan.read(*units)


class OrderShardFn(StorageDoFn):
    """(shard, batches) -> the shard's number once it has a receipt."""

    def __init__(self, scan: RunScan) -> None:
        super().__init__()
        self._scan = scan

    def process(self, grouped: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[int]:
        task, rows = task_and_rows(grouped[1])
        yield run_shard(task, partial(self._scan.join, task, rows)).receipt.shard


@dataclass
class ReadRun(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt.

    Attributes:
        scan: what is read, and how.
        ranges: ranges of units.
    """

    scan: RunScan
    ranges: Sequence[tuple[int, int]]

    def run_here(self, tasks: Sequence[ShardTask], note: Callable[[int], None]) -> None:
        """The same without Beam, in this process: notes the number of each shard that has a receipt."""
        self.scan.run_here(tasks, note)

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        rows = (
            tasks.pipeline
            | "RunRanges" >> beam.Create(self.ranges)
            | "SpreadRanges" >> beam.Reshuffle()
            # (shard, RecordBatch[query_id, doc_id, rank, score, position, unit])
            | "ScanRun" >> beam.ParDo(ScanRunFn(self.scan)).with_output_types(_SENT)
        )
        every_shard = tasks | "TaskBatch" >> beam.Map(task_batch, SENT).with_output_types(_SENT)
        return (
            (rows, every_shard)
            | "Flatten" >> beam.Flatten()
            # The only shuffle: rows meet the other rows of their queries.
            | "GroupByShard" >> beam.GroupByKey()
            | "OrderShard" >> beam.ParDo(OrderShardFn(self.scan)).with_output_types(int)
        )
