"""The join: one scan of the corpus tokenizes the needed docs, one shuffle brings their tokens to the query shards."""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beamrank.commit.receipts import StageFolder
from beamrank.commit.shards import ShardTask
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join import schemas
from beamrank.join.join import doc_tokens_schema
from beamrank.storage.digested import DigestedFile
from models.scoring.reuse import UnusableTokensError
from models.stages.tokenize import SentTokens, TokenizeDocs
from transforms.shards import StorageDoFn, run_shard

_TASK = b"task"

# (a unit of the corpus, its file as it was digested)
UnitSource = tuple[CorpusUnit, DigestedFile]


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


class ScanUnitFn(StorageDoFn):
    """Corpus units with their files -> the tokens of needed docs, by shard."""

    def __init__(self, stage: TokenizeDocs, folder: StageFolder, needed_url: str) -> None:
        super().__init__()
        self._stage, self._folder, self._needed_url = stage, folder, needed_url

    def process(self, source: UnitSource) -> Iterator[SentTokens]:
        unit, file = source
        yield from self._stage.scan(unit, file, self._needed_url, self._folder)


class JoinShardFn(StorageDoFn):
    """(shard, batches) -> the shard's number once it has a receipt; nothing if tokens cannot be reused for it."""

    def __init__(self, stage: TokenizeDocs, units: Sequence[CorpusUnit], reused_url: str | None) -> None:
        super().__init__()
        self._stage, self._units, self._reused_url = stage, units, reused_url

    def process(self, grouped: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[int]:
        _, elements = grouped
        batches = list(elements)
        tasks = [batch.schema.metadata[_TASK] for batch in batches if batch.schema.metadata]
        # Pickled by `task_batch` for this job; inputs are never unpickled.
        task: ShardTask = pickle.loads(tasks[0])  # noqa: S301
        tokens = [batch for batch in batches if not batch.schema.metadata]
        try:
            receipt = run_shard(task, partial(self._stage.join, task, tokens, self._units, self._reused_url)).receipt
        except UnusableTokensError:
            # The launcher finds the shard without a receipt, and reads the whole corpus for it.
            return
        yield receipt.shard


def task_batch(task: ShardTask, vocab_size: int) -> SentTokens:
    """A shard's task as the metadata of an empty batch: every shard is joined, also one whose queries found nothing.

    CoGroupByKey would bring task and tokens together too, but wraps its values and so loses their coder.
    """
    schema = doc_tokens_schema(schemas.token_type(vocab_size)).with_metadata({_TASK: pickle.dumps(task)})
    return task.shard, pa.RecordBatch.from_pylist([], schema=schema)


@dataclass
class JoinCorpus(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt.

    Attributes:
        stage: the stage.
        folder: its folder.
        needed_url: where the needed docs are listed.
        sources: the units to read.
        units: all units of the corpus.
        reused_url: the list of the docs whose tokens are reused, if there are any.
    """

    stage: TokenizeDocs
    folder: StageFolder
    needed_url: str
    sources: Sequence[UnitSource]
    units: Sequence[CorpusUnit]
    reused_url: str | None = None

    def expand(self, tasks: beam.PCollection[ShardTask]) -> beam.PCollection[int]:
        scan = ScanUnitFn(self.stage, self.folder, self.needed_url)
        tokens = (
            tasks.pipeline
            | "Units" >> beam.Create(self.sources)
            | "SpreadUnits" >> beam.Reshuffle()
            # (shard, RecordBatch[doc_id, unit, position, tokens, truncated])
            | "ScanUnit" >> beam.ParDo(scan).with_output_types(tuple[int, pa.RecordBatch])
        )
        addressed = tasks | "TaskBatch" >> beam.Map(task_batch, self.stage.vocab_size).with_output_types(
            tuple[int, pa.RecordBatch]
        )
        return (
            (tokens, addressed)
            | "Flatten" >> beam.Flatten()
            # The only shuffle: tokens meet the shard that wants them.
            | "GroupByShard" >> beam.GroupByKey()
            | "JoinShard"
            >> beam.ParDo(JoinShardFn(self.stage, tuple(self.units), self.reused_url)).with_output_types(int)
        )
