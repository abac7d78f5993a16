"""The join: one scan of the corpus tokenizes the needed docs, one shuffle brings their tokens to the query shards."""

import pickle
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora import CorpusUnit, place, read_unit
from beamrank.stages.receipts import Receipt, StageFolder
from beamrank.stages.scan_reports import ScanReport, read_scans
from beamrank.storage.digested import DigestedFile
from beamrank.tables import schemas
from beamrank.tables.join import JoinedShard, MissingDoc, NeededDocs, doc_tokens_schema, join_shard
from beamrank.tables.shard import tokenized_schema
from models.checkpoints.check import resolve_checkpoint
from models.tokenizer.bert import BertTokenizer, load_tokenizer
from transforms import coders as coders  # registers the coder of record batches
from transforms.shards import ShardTask, StorageDoFn, run_shard

_FLUSH_TOKENS = 4 << 20
_TASK = b"task"

# (a unit of the corpus, its file as it was digested)
UnitSource = tuple[CorpusUnit, DigestedFile]
# (shard, the tokens of docs that it needs)
ShardTokens = tuple[int, pa.RecordBatch]


@dataclass(frozen=True)
class TokenizeJob:
    """Joins candidates with their docs' tokens; `k` candidates a query are needed."""

    url: str
    candidates_url: str
    checkpoint: str
    kind: str
    tokenizer_digest: str
    corpus_digest: str
    needed_url: str
    units: tuple[CorpusUnit, ...]
    k: int
    max_doc_tokens: int
    on_missing_doc: str

    @property
    def folder(self) -> StageFolder:
        """Where the parts and receipts go."""
        return StageFolder(self.url)

    @property
    def tokenizer(self) -> BertTokenizer:
        """This process's tokenizer."""
        return _tokenizer(self.checkpoint, self.kind, self.tokenizer_digest)

    def place(self, unit: int, position: int) -> str:
        """Where in the corpus a doc stands."""
        return place(self.units[unit], position)

    def run(self, task: ShardTask, batches: Sequence[pa.RecordBatch]) -> Receipt:
        """Joins one shard from the tokens that the shuffle brought, and commits it."""
        start = time.monotonic()
        joined = self._join(task, batches)
        if joined.missing and self.on_missing_doc == "error":
            raise self._missing_error(task.shard, joined.missing)
        doc_ids = pc.list_flatten(joined.table["doc_ids"])
        counts = {
            "queries": joined.table.num_rows,
            "docs": len(doc_ids),
            "distinct_docs": pc.count_distinct(doc_ids).as_py(),
            "truncated_queries": joined.truncated_queries,
            "truncated_docs": joined.truncated_docs,
            "missing_docs": len(joined.missing),
        }
        return self.folder.commit(
            task.shard,
            task.digest,
            joined.table,
            seconds=time.monotonic() - start,
            counts=counts,
            bad_rows=len(joined.missing),
            examples=[f"doc {each} is not in the corpus" for each in joined.missing[:5]],
        )

    def _missing_error(self, shard: int, missing: Sequence[MissingDoc]) -> DataError:
        """Names the docs, and the rows of the corpus that could not be read: they may be among those."""
        scan = read_scans(self.url, self.corpus_digest)
        cause = "Check that the corpus is the one that the index or the given run was made from"
        if scan.bad_rows:
            cause = (
                f"Rows of the corpus that could not be read: {scan.bad_rows:,} (first: {scan.examples[0]}). These docs "
                "may be among them: correct those rows"
            )
        return DataError(
            f"candidate docs of shard {shard} that are not in the corpus: {len(missing)} (first: "
            f"{', '.join(map(str, missing[:5]))}). Their scores would be missing from the run. {cause}, or set "
            "on_missing_doc: drop"
        )

    def _join(self, task: ShardTask, batches: Sequence[pa.RecordBatch]) -> JoinedShard:
        topics = sorted(task.topics)
        queries = self.tokenizer.encode([topic.text for topic in topics], self.max_doc_tokens)
        candidates = StageFolder(self.candidates_url).read_part(task.inputs[0])
        return join_shard(
            tokenized_schema(self.tokenizer),
            [topic.query_id for topic in topics],
            queries.ids,
            int(np.count_nonzero(queries.truncated)),
            candidates.filter(pc.less_equal(candidates["rank"], self.k)),
            pa.Table.from_batches(batches, doc_tokens_schema(schemas.token_type(self.tokenizer.vocab_size))),
            self.place,
        )


@lru_cache(maxsize=2)
def _tokenizer(checkpoint: str, kind: str, digest: str) -> BertTokenizer:
    tokenizer = load_tokenizer(resolve_checkpoint(checkpoint, kind).folder)
    if tokenizer.digest != digest:
        raise PreflightError(
            f"the tokenizer of {checkpoint} changed since the run was planned: its digest is {tokenizer.digest[:12]}, "
            f"the plan has {digest[:12]}. Tokens of two vocabularies would be mixed: run again to plan it anew"
        )
    return tokenizer


@lru_cache(maxsize=1)
def _needed(url: str) -> NeededDocs:
    return NeededDocs.open(url)


def scan_unit(job: TokenizeJob, unit: CorpusUnit, file: DigestedFile) -> Iterator[ShardTokens]:
    """Tokenizes the needed docs of one corpus unit, each once, and addresses them to the shards that want them.

    Raises:
        DataError: the unit cannot be read, or its file is not, or no longer, the one that the corpus's digest covers.
    """
    with file.held():
        report = yield from _scan(job, unit)
    report.publish(job.url, job.corpus_digest)


def _scan(job: TokenizeJob, unit: CorpusUnit) -> Generator[ShardTokens, None, ScanReport]:
    needed, tokenizer = _needed(job.needed_url), job.tokenizer
    start = time.monotonic()
    docs, bad_rows = 0, 0
    examples: list[str] = []
    buffer: list[pa.RecordBatch] = []
    shards: list[np.ndarray] = []
    for batch in read_unit(unit):
        docs += len(batch.doc_ids)
        bad_rows += len(batch.bad)
        examples += [f"{row.place}: {row.reason}" for row in batch.bad[: max(0, 5 - len(examples))]]
        rows, wanted_by = needed.lookup(batch.doc_ids)
        if len(rows):
            distinct, row_of = np.unique(rows, return_inverse=True)
            tokens = tokenizer.encode([batch.texts[row] for row in distinct], job.max_doc_tokens)
            buffer.append(
                pa.record_batch(
                    [
                        pa.array([batch.doc_ids[row] for row in distinct], pa.string()),
                        pa.array(np.full(len(distinct), unit.index, np.int32)),
                        pa.array([batch.positions[row] for row in distinct], pa.int64()),
                        tokens.ids,
                        pa.array(tokens.truncated),
                    ],
                    schema=doc_tokens_schema(schemas.token_type(tokenizer.vocab_size)),
                ).take(pa.array(row_of))
            )
            shards.append(wanted_by)
        if sum(len(each["tokens"].values) for each in buffer) > _FLUSH_TOKENS:
            yield from _by_shard(buffer, shards)
            buffer, shards = [], []
    yield from _by_shard(buffer, shards)
    seconds = round(time.monotonic() - start, 3)
    return ScanReport(unit.index, docs, bad_rows, tuple(examples), seconds)


def _by_shard(buffer: Sequence[pa.RecordBatch], shards: Sequence[np.ndarray]) -> Iterator[ShardTokens]:
    """Cuts buffered rows into one batch a shard: thousands of small batches would be mostly headers."""
    if not buffer:
        return
    wanted_by = np.concatenate(shards)
    order = np.argsort(wanted_by, kind="stable")
    table = pa.Table.from_batches(buffer).combine_chunks().to_batches()[0].take(pa.array(order))
    found, starts = np.unique(wanted_by[order], return_index=True)
    for shard, start, end in zip(found, starts, [*starts[1:], len(order)], strict=True):
        yield int(shard), table.slice(start, end - start)


class ScanUnitFn(StorageDoFn):
    """Corpus units with their files -> the tokens of needed docs, by shard."""

    def __init__(self, job: TokenizeJob) -> None:
        super().__init__()
        self._job = job

    def process(self, source: UnitSource) -> Iterator[ShardTokens]:
        """Scans one unit."""
        yield from scan_unit(self._job, *source)


class JoinShardFn(StorageDoFn):
    """(shard, batches) -> the shard's number once its receipt is there."""

    def __init__(self, job: TokenizeJob) -> None:
        super().__init__()
        self._job = job

    def process(self, grouped: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[int]:
        """Joins one shard."""
        _, elements = grouped
        batches = list(elements)
        tasks = [batch.schema.metadata[_TASK] for batch in batches if batch.schema.metadata]
        # What `task_batch` pickled for this very job; no input is ever unpickled.
        task: ShardTask = pickle.loads(tasks[0])  # noqa: S301
        tokens = [batch for batch in batches if not batch.schema.metadata]
        yield run_shard(self._job.folder, task, lambda: self._job.run(task, tokens)).shard


def task_batch(task: ShardTask, vocab_size: int) -> ShardTokens:
    """A shard's task as the metadata of an empty batch: every shard is joined, also one whose queries found nothing.

    CoGroupByKey would bring task and tokens together too, but wraps its values and so loses their coder.
    """
    schema = doc_tokens_schema(schemas.token_type(vocab_size)).with_metadata({_TASK: pickle.dumps(task)})
    return task.shard, pa.RecordBatch.from_pylist([], schema=schema)


@dataclass
class TokenizeShards(beam.PTransform):
    """Tasks -> the numbers of the shards that have a receipt."""

    job: TokenizeJob
    vocab_size: int
    sources: Sequence[UnitSource]

    def expand(self, tasks: beam.PCollection[ShardTask]) -> beam.PCollection[int]:
        """Scans the corpus, groups the needed docs' tokens by shard, and joins."""
        vocab_size = self.vocab_size
        tokens = (
            tasks.pipeline
            | "Units" >> beam.Create(self.sources)
            | "SpreadUnits" >> beam.Reshuffle()
            # (shard, RecordBatch[doc_id, unit, position, tokens, truncated])
            | "ScanUnit" >> beam.ParDo(ScanUnitFn(self.job)).with_output_types(tuple[int, pa.RecordBatch])
        )
        addressed = tasks | "TaskBatch" >> beam.Map(task_batch, vocab_size).with_output_types(
            tuple[int, pa.RecordBatch]
        )
        return (
            (tokens, addressed)
            | "Flatten" >> beam.Flatten()
            # The only shuffle: tokens meet the shard that wants them.
            | "GroupByShard" >> beam.GroupByKey()
            | "JoinShard" >> beam.ParDo(JoinShardFn(self.job)).with_output_types(int)
        )
