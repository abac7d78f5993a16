"""One scan of units, of the corpus or of a given run, and one shuffle that brings rows to the
shards that need them; and the job before it that lists the needed docs, where they are many.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import apache_beam as beam
import pyarrow as pa

from beamrank.commit.shards import ShardTask
from models.stages.attempt import gather_shard
from models.stages.base import Stage
from models.stages.corpus_scan import NeededRanges
from models.stages.scatter import Scatter, SentRows
from transforms.shards import EachFn, RunShards, TaskFile, WriteShards

SENT_ROWS: Any = tuple[int, pa.RecordBatch]
"""The type of rows on their way to a shard: without it, Beam pickles them."""
# The work of a job with its tasks.
Work: TypeAlias = Stage | Scatter | NeededRanges | Callable[[ShardTask], None]


class RecordBatchCoder(beam.coders.Coder):
    """A record batch as an Arrow IPC stream: pickle would carry the whole parent of a slice."""

    def encode(self, value: pa.RecordBatch) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return bytes(sink.getvalue())

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        with pa.ipc.open_stream(encoded) as reader:
            return reader.read_next_batch()

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return pa.RecordBatch


beam.coders.registry.register_coder(pa.RecordBatch, RecordBatchCoder)


@dataclass
class ScatterRows(beam.PTransform):
    """Shards -> shards that have a receipt."""

    scatter: Scatter
    file: TaskFile

    def expand(self, shards: beam.PCollection[int]) -> beam.PCollection[int]:
        units = (
            shards.pipeline
            | "UnitCount" >> beam.Create([self.scatter.count])
            | "Units" >> beam.FlatMap(lambda count: range(count))
            | "SpreadUnits" >> beam.Reshuffle()
        )
        # Every shard is gathered, also one without rows.
        empty = shards | "Shards" >> beam.Map(_empty_rows, self.scatter.schema).with_output_types(
            SENT_ROWS
        )
        gather = partial(_gather, self.scatter, self.file)
        return _gathered(units, self.scatter.scan, empty, gather, SENT_ROWS)


def _empty_rows(shard: int, schema: pa.Schema) -> SentRows:
    return shard, pa.RecordBatch.from_pylist([], schema)


def _gather(scatter: Scatter, file: TaskFile, sent: tuple[int, Iterable[Any]]) -> Iterator[int]:
    """(shard, batches) -> the shard's number once it has a receipt."""
    shard, rows = sent
    yield gather_shard(scatter, file.read(shard), list(rows))


@dataclass
class ListNeededDocs(beam.PTransform):
    """Shards -> the ranges whose files of needed docs are there."""

    part: NeededRanges
    file: TaskFile

    def expand(self, shards: beam.PCollection[int]) -> beam.PCollection[int]:
        # A range without docs has a file too.
        ranges = shards.pipeline | "Ranges" >> beam.Create(
            [(number, b"") for number in self.part.chosen]
        )
        # (range, the entries of a shard)
        return _gathered(
            shards,
            partial(_list_needed, self.part, self.file),
            ranges,
            partial(_publish, self.part),
            tuple[int, bytes],
        )


def _list_needed(part: NeededRanges, file: TaskFile, shard: int) -> Iterator[tuple[int, bytes]]:
    """A shard -> the docs that it needs, by range."""
    yield from part.needed(file.read(shard))


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
    """The results of `gather` for each key, from the rows that a scan of the sources sent to it."""
    rows = sources | "Scan" >> beam.ParDo(EachFn(scan)).with_output_types(sent)
    return (
        (rows, keys)
        | "Flatten" >> beam.Flatten()
        # The only shuffle: rows meet the shard that needs them.
        | "GroupByKey" >> beam.GroupByKey()
        | "Gather" >> beam.ParDo(EachFn(gather)).with_output_types(int)
    )


def transform_of(work: Work, file: TaskFile) -> beam.PTransform:
    """The work of a job with the tasks of a file."""
    if isinstance(work, NeededRanges):
        return ListNeededDocs(work, file)
    if isinstance(work, Scatter):
        return ScatterRows(work, file)
    return RunShards(work, file) if isinstance(work, Stage) else WriteShards(work, file)
