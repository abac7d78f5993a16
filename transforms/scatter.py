"""One scan of units, of the corpus or of a given run, and one shuffle that brings rows to the
shards that need them; and the job before it that lists the needed docs, where they are many.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beamrank.commit.shards import ShardTask
from models.stages.corpus_scan import NeededRanges
from models.stages.scatter import Scatter, gather_shard, scatter_here
from transforms.coders import SENT_ROWS
from transforms.shards import EachFn
from transforms.tasks import StoredTask

_TASK = b"task"


def task_batch(stored: StoredTask, schema: pa.Schema) -> tuple[int, pa.RecordBatch]:
    """Where a shard's task is as the metadata of an empty batch: every shard is gathered, also one
    without rows.

    CoGroupByKey would bring task and rows together too, but wraps its values and so loses their
    coder.
    """
    return stored.shard, pa.RecordBatch.from_pylist(
        [], schema=schema.with_metadata({_TASK: pickle.dumps(stored)})
    )


def task_and_rows(elements: Iterable[pa.RecordBatch]) -> tuple[ShardTask, list[pa.RecordBatch]]:
    """The task that `task_batch` made of a shard's batches, and the others."""
    batches = list(elements)
    tasks = [batch.schema.metadata[_TASK] for batch in batches if batch.schema.metadata]
    # Pickled by `task_batch` for this job; inputs are never unpickled.
    stored: StoredTask = pickle.loads(tasks[0])  # noqa: S301
    return stored.read(), [batch for batch in batches if not batch.schema.metadata]


@dataclass
class ScatterRows(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt."""

    scatter: Scatter

    def run_here(self, tasks: Sequence[ShardTask], note: Callable[[int], None]) -> None:
        """The same without Beam, in this process: notes the number of each shard that has a
        receipt.
        """
        for shard in scatter_here(self.scatter, tasks):
            note(shard)

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        units = (
            tasks.pipeline
            | "UnitCount" >> beam.Create([self.scatter.count])
            | "Units" >> beam.FlatMap(lambda count: range(count))
            | "SpreadUnits" >> beam.Reshuffle()
        )
        keyed_tasks = tasks | "TaskBatch" >> beam.Map(
            task_batch, self.scatter.schema
        ).with_output_types(SENT_ROWS)
        return _gathered(
            units, self.scatter.scan, keyed_tasks, partial(_gather, self.scatter), SENT_ROWS
        )


def _gather(scatter: Scatter, grouped: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[int]:
    """(shard, batches) -> the shard's number once it has a receipt."""
    yield gather_shard(scatter, *task_and_rows(grouped[1]))


@dataclass
class ListNeededDocs(beam.PTransform):
    """Tasks -> the ranges whose files of needed docs are there."""

    part: NeededRanges

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        # A range without docs has a file too.
        ranges = tasks.pipeline | "Ranges" >> beam.Create(
            [(number, b"") for number in self.part.chosen]
        )
        # (range, the entries of a shard)
        return _gathered(
            tasks,
            partial(_list_needed, self.part),
            ranges,
            partial(_publish, self.part),
            tuple[int, bytes],
        )


def _list_needed(part: NeededRanges, stored: StoredTask) -> Iterator[tuple[int, bytes]]:
    """A task -> the docs that it needs, by range."""
    yield from part.needed(stored.read())


def _publish(part: NeededRanges, grouped: tuple[int, Iterable[bytes]]) -> Iterator[int]:
    """(range, the docs that shards need) -> the range's number once its file is there."""
    part.publish(*grouped)
    yield grouped[0]


def scattered(part: Scatter | NeededRanges) -> beam.PTransform:
    """What does it for the tasks of a job."""
    return ListNeededDocs(part) if isinstance(part, NeededRanges) else ScatterRows(part)


def _gathered(
    sources: beam.PCollection[Any],
    scan: Callable[[Any], Iterator[Any]],
    keys: beam.PCollection[Any],
    gather: Callable[[Any], Iterator[int]],
    sent: Any,
) -> beam.PCollection[int]:
    """What `gather` gives for each key with what a scan of the sources sent to it."""
    rows = sources | "Scan" >> beam.ParDo(EachFn(scan)).with_output_types(sent)
    return (
        (rows, keys)
        | "Flatten" >> beam.Flatten()
        # The only shuffle: rows meet the shard that needs them.
        | "GroupByKey" >> beam.GroupByKey()
        | "Gather" >> beam.ParDo(EachFn(gather)).with_output_types(int)
    )
