"""One scan of units, of the corpus or of a given run, and one shuffle that brings rows to the
shards that need them; and the job before it that lists the needed docs, where they are many.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import pyarrow as pa

from models.stages.attempt import gather_shard
from models.stages.corpus_scan import NeededRanges
from models.stages.scatter import Scatter, SentRows
from transforms.coders import SENT_ROWS
from transforms.shards import EachFn, RunShards, WriteShards
from transforms.tasks import StoredTask, TaskFile


@dataclass
class ScatterRows(beam.PTransform):
    """Tasks of a file -> the numbers of the shards that have a receipt."""

    scatter: Scatter
    file: TaskFile

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        units = (
            tasks.pipeline
            | "UnitCount" >> beam.Create([self.scatter.count])
            | "Units" >> beam.FlatMap(lambda count: range(count))
            | "SpreadUnits" >> beam.Reshuffle()
        )
        # Every shard is gathered, also one without rows.
        shards = tasks | "Shards" >> beam.Map(_empty_rows, self.scatter.schema).with_output_types(
            SENT_ROWS
        )
        gather = partial(_gather, self.scatter, self.file)
        return _gathered(units, self.scatter.scan, shards, gather, SENT_ROWS)


def _empty_rows(stored: StoredTask, schema: pa.Schema) -> SentRows:
    return stored.shard, pa.RecordBatch.from_pylist([], schema)


def _gather(scatter: Scatter, file: TaskFile, sent: tuple[int, Iterable[Any]]) -> Iterator[int]:
    """(shard, batches) -> the shard's number once it has a receipt."""
    shard, rows = sent
    yield gather_shard(scatter, file.read(shard), list(rows))


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


def transform_of(work: Any, file: TaskFile) -> beam.PTransform:
    """What a job does with the tasks of a file."""
    if isinstance(work, NeededRanges):
        return ListNeededDocs(work)
    if isinstance(work, Scatter):
        return ScatterRows(work, file)
    return WriteShards(work) if callable(work) else RunShards(work)
