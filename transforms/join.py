"""The join: one scan of the corpus tokenizes the needed docs, one shuffle brings their tokens to the query shards.

A job before it lists the needed docs, where they are many.
"""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beamrank.commit.receipts import StageFolder
from beamrank.commit.shards import ShardTask
from beamrank.commit.tasks import StoredTask
from beamrank.commit.unit_file import UnitFile
from beamrank.join import schemas
from beamrank.join.doc_hashes import NeededDocs, NeededList, write_needed
from beamrank.join.join import doc_tokens_schema
from models.scoring.reuse import UnusableTokensError
from models.stages.tokenize import SentTokens, TokenizeDocs
from transforms.shards import StorageDoFn, run_shard

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

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


beam.coders.registry.register_coder(pa.RecordBatch, RecordBatchCoder)


class ListNeededFn(StorageDoFn):
    """Tasks -> the docs that they need, by range of the hash."""

    def __init__(self, stage: TokenizeDocs, ranges: int) -> None:
        super().__init__()
        self._stage, self._ranges = stage, ranges

    def process(self, stored: StoredTask) -> Iterator[tuple[int, bytes]]:
        yield from self._stage.needed(stored.read(), self._ranges)


class PublishNeededFn(StorageDoFn):
    """(range, the docs that shards need) -> the range's number once its file is there."""

    def __init__(self, folder: StageFolder, prefix: str) -> None:
        super().__init__()
        self._folder, self._prefix = folder, prefix

    def process(self, grouped: tuple[int, Iterable[bytes]]) -> Iterator[int]:
        number, contents = grouped
        NeededDocs.of(contents).publish(self._folder.url, self._prefix, number)
        yield number


@dataclass
class ListNeededDocs(beam.PTransform):
    """Tasks -> the numbers of the ranges whose files of needed docs are there.

    Attributes:
        stage: the stage.
        folder: its folder.
        prefix: how the files are named.
        ranges: how many there are.
    """

    stage: TokenizeDocs
    folder: StageFolder
    prefix: str
    ranges: int

    def run_here(self, tasks: Sequence[ShardTask], note: Callable[[int], None]) -> None:  # noqa: ARG002
        """The same without Beam, in this process. No shard has a receipt yet that could be noted."""
        entries = (each for task in tasks for each in self.stage.needed(task, self.ranges))
        write_needed(entries, self.ranges, self.folder.url, self.prefix)

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        # (range, the entries of a shard)
        listing = beam.ParDo(ListNeededFn(self.stage, self.ranges)).with_output_types(tuple[int, bytes])
        needed = tasks | "ListNeeded" >> listing
        # A range without docs has a file too.
        every = tasks.pipeline | "Ranges" >> beam.Create([(number, b"") for number in range(self.ranges)])
        return (
            (needed, every)
            | "Flatten" >> beam.Flatten()
            | "GroupByRange" >> beam.GroupByKey()
            | "PublishRange" >> beam.ParDo(PublishNeededFn(self.folder, self.prefix)).with_output_types(int)
        )


class ScanUnitFn(StorageDoFn):
    """The numbers of corpus units -> the tokens of needed docs, by shard."""

    def __init__(self, stage: TokenizeDocs, folder: StageFolder, needed: NeededList, units: UnitFile) -> None:
        super().__init__()
        self._stage, self._folder, self._needed, self._units = stage, folder, needed, units

    def process(self, number: int) -> Iterator[SentTokens]:
        yield from self._stage.scan(*self._units.read(number), self._needed, self._folder)


class JoinShardFn(StorageDoFn):
    """(shard, batches) -> the shard's number once it has a receipt; nothing if tokens cannot be reused for it."""

    def __init__(self, stage: TokenizeDocs, units: UnitFile, reusable: NeededList | None) -> None:
        super().__init__()
        self._stage, self._units, self._reusable = stage, units, reusable

    def process(self, grouped: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[int]:
        _, batches = grouped
        yield from self.join(*task_and_rows(batches))

    def join(self, task: ShardTask, tokens: Sequence[pa.RecordBatch]) -> Iterator[int]:
        """The shard's number once it has a receipt; nothing if tokens cannot be reused for it."""
        try:
            receipt = run_shard(
                task, partial(self._stage.join, task, tokens, self._units.place, self._reusable)
            ).receipt
        except UnusableTokensError:
            # The launcher finds the shard without a receipt, and reads the whole corpus for it.
            return
        yield receipt.shard


def task_batch(stored: StoredTask, schema: pa.Schema) -> tuple[int, pa.RecordBatch]:
    """Where a shard's task is as the metadata of an empty batch: every shard is joined, also one without rows.

    CoGroupByKey would bring task and rows together too, but wraps its values and so loses their coder.
    """
    return stored.shard, pa.RecordBatch.from_pylist([], schema=schema.with_metadata({_TASK: pickle.dumps(stored)}))


def task_and_rows(elements: Iterable[pa.RecordBatch]) -> tuple[ShardTask, list[pa.RecordBatch]]:
    """The task that `task_batch` made of a shard's batches, and the others."""
    batches = list(elements)
    tasks = [batch.schema.metadata[_TASK] for batch in batches if batch.schema.metadata]
    # Pickled by `task_batch` for this job; inputs are never unpickled.
    stored: StoredTask = pickle.loads(tasks[0])  # noqa: S301
    return stored.read(), [batch for batch in batches if not batch.schema.metadata]


def _numbers(of_range: tuple[int, int]) -> Iterable[int]:
    return range(*of_range)


@dataclass
class JoinCorpus(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt.

    Attributes:
        stage: the stage.
        folder: its folder.
        needed: the list of the needed docs.
        units: those of the corpus.
        read: ranges of the numbers of those to read.
        reusable: the list of the docs whose tokens are reused, if there are any.
    """

    stage: TokenizeDocs
    folder: StageFolder
    needed: NeededList
    units: UnitFile
    read: Sequence[tuple[int, int]]
    reusable: NeededList | None = None

    def run_here(self, tasks: Sequence[ShardTask], note: Callable[[int], None]) -> None:
        """The same without Beam, in this process: notes the number of each shard that has a receipt."""
        tokens: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for number in chain.from_iterable(map(_numbers, self.read)):
            for shard, batch in self.stage.scan(*self.units.read(number), self.needed, self.folder):
                tokens[shard].append(batch)
        join = JoinShardFn(self.stage, self.units, self.reusable).join
        for task in tasks:
            for shard in join(task, tokens.pop(task.shard, [])):
                note(shard)

    def expand(self, tasks: beam.PCollection[StoredTask]) -> beam.PCollection[int]:
        scan = ScanUnitFn(self.stage, self.folder, self.needed, self.units)
        tokens = (
            tasks.pipeline
            | "UnitRanges" >> beam.Create(self.read)
            | "Units" >> beam.FlatMap(_numbers)
            | "SpreadUnits" >> beam.Reshuffle()
            # (shard, RecordBatch[doc_id, unit, position, tokens, truncated])
            | "ScanUnit" >> beam.ParDo(scan).with_output_types(tuple[int, pa.RecordBatch])
        )
        schema = doc_tokens_schema(schemas.token_type(self.stage.vocab_size))
        addressed = tasks | "TaskBatch" >> beam.Map(task_batch, schema).with_output_types(tuple[int, pa.RecordBatch])
        return (
            (tokens, addressed)
            | "Flatten" >> beam.Flatten()
            # The only shuffle: tokens meet the shard that wants them.
            | "GroupByShard" >> beam.GroupByKey()
            | "JoinShard" >> beam.ParDo(JoinShardFn(self.stage, self.units, self.reusable)).with_output_types(int)
        )
