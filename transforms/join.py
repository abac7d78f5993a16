"""Joins: one scan of units, of the corpus or of a given run, and one shuffle that brings rows to
the query shards.

Of the corpus, the needed docs are tokenized; a job before it lists them, where they are many.
"""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beamrank.commit.job_files import StoredTask, UnitFile
from beamrank.commit.receipts import StageFolder
from beamrank.commit.shards import ShardTask
from beamrank.join import schemas
from beamrank.join.doc_hashes import NeededDocs, NeededList
from beamrank.join.join import doc_tokens_schema
from beamrank.join.run_shards import SENT
from models.stages.attempt import attempt
from models.stages.given_run import RunScan, SentRows
from models.stages.tokenize import SentTokens, TokenizeDocs
from transforms.shards import EachFn

_TASK = b"task"


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


def _list_needed(
    stage: TokenizeDocs, ranges: int, chosen: range, stored: StoredTask
) -> Iterator[tuple[int, bytes]]:
    """A task -> the docs that it needs in the chosen ranges of the hash, by range."""
    yield from (each for each in stage.needed(stored.read(), ranges) if each[0] in chosen)


def _publish_range(folder: str, prefix: str, grouped: tuple[int, Iterable[bytes]]) -> Iterator[int]:
    """(range, the docs that shards need) -> the range's number once its file is there."""
    number, contents = grouped
    NeededDocs.of(contents).publish(folder, prefix, number)
    yield number


@dataclass
class ListNeededDocs(beam.PTransform):
    """Tasks -> the chosen ranges, of so many, whose files of needed docs are there, named with a
    prefix.
    """

    stage: TokenizeDocs
    folder: StageFolder
    prefix: str
    ranges: int
    chosen: range

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        listing = EachFn(partial(_list_needed, self.stage, self.ranges, self.chosen))
        publish = EachFn(partial(_publish_range, self.folder.url, self.prefix))
        # (range, the entries of a shard)
        needed = tasks | "ListNeeded" >> beam.ParDo(listing).with_output_types(tuple[int, bytes])
        # A range without docs has a file too.
        every = tasks.pipeline | "Ranges" >> beam.Create([(number, b"") for number in self.chosen])
        return (
            (needed, every)
            | "Flatten" >> beam.Flatten()
            | "GroupByRange" >> beam.GroupByKey()
            | "PublishRange" >> beam.ParDo(publish).with_output_types(int)
        )


def task_batch(stored: StoredTask, schema: pa.Schema) -> tuple[int, pa.RecordBatch]:
    """Where a shard's task is as the metadata of an empty batch: every shard is joined, also one
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


@dataclass(frozen=True)
class _Work:
    """What workers need to know of a join beside the tasks: see `JoinCorpus`."""

    stage: TokenizeDocs
    folder: StageFolder
    needed: NeededList
    units: UnitFile

    def scan(self, number: int) -> Iterator[SentTokens]:
        """The number of a corpus unit -> the tokens of needed docs, by shard."""
        yield from self.stage.scan(*self.units.read(number), self.needed, self.folder)

    def join_group(self, grouped: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[int]:
        """(shard, batches) -> the shard's number, as `join`."""
        yield self.join(*task_and_rows(grouped[1]))

    def join(self, task: ShardTask, tokens: Sequence[pa.RecordBatch]) -> int:
        """The shard's number once it has a receipt."""
        join = partial(self.stage.join, task, tokens, self.units.place)
        return attempt(task, join).receipt.shard


@dataclass
class JoinCorpus(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt.

    Attributes:
        needed: the list of the needed docs.
        units: those of the corpus.
    """

    stage: TokenizeDocs
    folder: StageFolder
    needed: NeededList
    units: UnitFile

    @property
    def _work(self) -> _Work:
        return _Work(self.stage, self.folder, self.needed, self.units)

    def run_here(self, tasks: Sequence[ShardTask], note: Callable[[int], None]) -> None:
        """The same without Beam, in this process: notes the number of each shard that has a
        receipt.
        """
        tokens: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for number in range(self.units.count):
            for shard, batch in self._work.scan(number):
                tokens[shard].append(batch)
        for task in tasks:
            note(self._work.join(task, tokens.pop(task.shard, [])))

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        count = tasks.pipeline | "UnitCount" >> beam.Create([self.units.count])
        units = count | "Units" >> beam.FlatMap(lambda end: range(end))
        schema = doc_tokens_schema(schemas.token_type(self.stage.vocab_size))
        return _joined(tasks, units, self._work.scan, schema, self._work.join_group)


def _read_range(scan: RunScan, units: tuple[int, int]) -> Iterator[SentRows]:
    """A range of units of a run -> its rows, by shard."""
    yield from scan.read(*units)


def _order_shard(scan: RunScan, grouped: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[int]:
    """(shard, batches) -> the shard's number once it has a receipt."""
    task, rows = task_and_rows(grouped[1])
    yield attempt(task, partial(scan.join, task, rows)).receipt.shard


@dataclass
class ReadRun(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt, by some ranges of units of a given
    run.
    """

    scan: RunScan
    ranges: Sequence[tuple[int, int]]

    def run_here(self, tasks: Sequence[ShardTask], note: Callable[[int], None]) -> None:
        """The same without Beam, in this process: notes the number of each shard that has a
        receipt.
        """
        self.scan.run_here(tasks, note)

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        units = tasks.pipeline | "UnitRanges" >> beam.Create(self.ranges)
        return _joined(
            tasks, units, partial(_read_range, self.scan), SENT, partial(_order_shard, self.scan)
        )


def _joined(
    tasks: beam.PCollection[StoredTask],
    units: beam.PCollection[Any],
    scan: Callable[[Any], Iterator[tuple[int, pa.RecordBatch]]],
    schema: pa.Schema,
    join: Callable[[tuple[int, Iterable[pa.RecordBatch]]], Iterator[int]],
) -> beam.PCollection[int]:
    """What `join` gives for each shard: its task and the rows of `schema` that a scan of the units
    found for it.
    """
    batch: Any = tuple[int, pa.RecordBatch]
    rows = (
        units
        | "SpreadUnits" >> beam.Reshuffle()
        | "ScanUnit" >> beam.ParDo(EachFn(scan)).with_output_types(batch)
    )
    addressed = tasks | "TaskBatch" >> beam.Map(task_batch, schema).with_output_types(batch)
    return (
        (rows, addressed)
        | "Flatten" >> beam.Flatten()
        # The only shuffle: rows meet the shard that wants them.
        | "GroupByShard" >> beam.GroupByKey()
        | "JoinShard" >> beam.ParDo(EachFn(join)).with_output_types(int)
    )
