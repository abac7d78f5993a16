"""The sources of examples: files of examples, runs, top1000 files and triples, recognized by their
content.

A source has parts. Each is made on its own, in any process, and they are written in order.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from beamrank.commit.plan import read_plan
from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.schemas import special_tokens, token_type
from beamrank.errors import PreflightError
from beamrank.formats.corpora import FORMATS, CorpusConfig, list_units, read_unit
from beamrank.formats.files import Beginning, InputFile
from beamrank.formats.rejects import NO_LIMIT, Rejects
from beamrank.formats.texts.units import CorpusUnit
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.formats.values import RowError
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.streams import text_bytes
from contrib.tensorflow2019.examples.files import SCHEMAS, WRITERS, kind_of, lists, stored_examples
from contrib.tensorflow2019.examples.layout import (
    ExampleSettings,
    Relevant,
    Texts,
    examples_in_tables,
    lay_out_examples,
)
from contrib.tensorflow2019.examples.tfrecord import join
from models.checkpoints.checkpoint import fetch_tokenizer
from models.tokenizers.base import Tokenizer
from models.training.data.texts import distinct, keys_of
from models.training.data.triples import are_usable, blocks_of, open_triples, texts_of

# As many of a text as the tokenize stage stores.
MAX_TOKENS = 512
# Bytes of a top1000 file whose queries are made into examples at a time.
_BUCKET_BYTES = 32 << 20
_BATCH_TEXTS = 8192
# Of a file of triples, before a part is made.
_CHECKED_BLOCKS = 3

# A function, and the items that it takes.
Map: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]


@dataclass(frozen=True)
class Conversion:
    """How parts are made.

    Attributes:
        settings: of the examples.
        checkpoint: whose tokenizer is used.
        relevance: the qrels; empty if there are none.
        processes: how many work at a time.
        work: a folder for intermediate files.
        unit_bytes: of a file that is read in ranges.
        vocab_size: of the tokenizer that made files of examples, where it is known.
    """

    settings: ExampleSettings
    checkpoint: str
    relevance: Mapping[str, Mapping[str, int]]
    processes: int
    work: Path
    unit_bytes: int = 64 << 20
    vocab_size: int | None = None

    def relevant(self, query_ids: Sequence[str]) -> dict[str, set[str]]:
        """The relevant docs of some queries."""
        judged = {query_id: self.relevance.get(query_id, {}) for query_id in query_ids}
        return {
            query_id: {doc_id for doc_id, level in docs.items() if level > 0}
            for query_id, docs in judged.items()
        }


class Part(Protocol):
    """A part of a conversion; also the examples of a file."""

    def tables(self, bad: Rejects) -> Iterator[pa.Table]:
        """Its examples, and the rows that cannot be used."""


def parts_of(source: str, conversion: Conversion, bad: Rejects, in_order: Map) -> Iterator[Part]:
    """The parts of a source, in order.

    Raises:
        PreflightError: it is none of the sources that are read.
    """
    if storage.is_folder(source):
        return _run_parts(source, conversion)
    kind = kind_of(source)
    if kind is not None:
        return iter(stored_examples(source, kind, conversion.vocab_size))
    if (look := FORMATS["top1000"].look) and look.matches(Beginning(source)):
        return _top1000_parts(source, conversion, bad, in_order)
    triples = open_triples(InputFile(source))
    list(islice(blocks_of(triples), _CHECKED_BLOCKS))
    return iter(
        [
            TriplesPart(source, start, end, conversion.checkpoint, conversion.settings)
            for start, end in triples.decoder.ranges(conversion.unit_bytes)
        ]
    )


@contextmanager
def several(processes: int) -> Iterator[Map]:
    """`map` in several processes, which start when they are needed; the results are in the order of
    the items.
    """
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        try:
            yield (
                lambda work, items: (
                    map(work, items) if processes == 1 or len(items) == 1 else pool.map(work, items)
                )
            )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def write_part(to: str, numbered: tuple[Path, Part]) -> tuple[int, int, Rejects]:
    """How many examples a part has, how many of them have label 1, and its bad rows; without
    examples, no file.
    """
    path, part = numbered
    count, relevant, bad = 0, 0, Rejects("examples", NO_LIMIT)
    with ExitStack() as files:
        write = None
        for table in part.tables(bad):
            write = write or files.enter_context(WRITERS[to][1](path, table.schema))
            write(table)
            count += table.num_rows
            relevant += int(table["label"].to_numpy().sum())
    return count, relevant, bad


@lru_cache(maxsize=1)
def _open_tokenizer(checkpoint: str) -> Tokenizer:
    """This process's tokenizer."""
    return fetch_tokenizer(checkpoint)


# Runs.


@dataclass(frozen=True)
class ShardPart:
    """A shard of a run's tokenize stage."""

    folder: StageFolder
    receipt: Receipt
    relevant: Relevant
    settings: ExampleSettings

    def tables(self, bad: Rejects) -> Iterator[pa.Table]:  # noqa: ARG002
        tokenized = self.folder.read_part(self.receipt)
        settings = replace(self.settings, special=special_tokens(tokenized.schema))
        yield from examples_in_tables(tokenized, self.relevant, settings)


def _run_parts(output: str, conversion: Conversion) -> Iterator[Part]:
    plan = read_plan(output)
    stages = plan.of_step("tokenize")
    manifest = plan.gather(stages[0].name) if stages else None
    if manifest is None:
        raise PreflightError(
            f"the tokenize stage of {output} is not finished, and examples are made from its "
            "tokens. Run it first: beamrank run CONFIG --stage retrieve, then --stage tokenize"
        )
    folder = plan.folder(stages[0].name)
    for shard, receipt in zip(plan.shards, manifest.receipts, strict=True):
        relevant = conversion.relevant([topic.query_id for topic in shard.topics])
        yield ShardPart(folder, receipt, relevant, conversion.settings)


# Triples.


@dataclass(frozen=True)
class TriplesPart:
    """A range of a file of triples: for each, the relevant passage with label 1, and the other one
    with label 0.
    """

    url: str
    start: int
    end: int
    checkpoint: str
    settings: ExampleSettings

    def tables(self, bad: Rejects) -> Iterator[pa.Table]:
        tokenizer, schema = _open_tokenizer(self.checkpoint), SCHEMAS[self.settings.schema]
        orders = [[0, 1, 2], [0, 2, 1]] if self.settings.schema == "duo" else [[0, 1], [0, 2]]
        file = open_triples(InputFile(self.url), rejects=bad)
        for rows in filter(len, blocks_of(file, self.start, self.end)):
            texts = texts_of(rows)
            places = {text: number for number, text in enumerate(dict.fromkeys(texts))}
            ids = tokenizer.encode(list(places), MAX_TOKENS).ids
            numbers = np.array([places[text] for text in texts]).reshape(-1, 3)
            usable = are_usable(distinct(keys_of(list(places), ids))[numbers])
            for place in rows["place"].filter(~usable).to_pylist():
                file.bad(place, RowError("has a text without a token, or one passage twice"))
            lengths, tokens = (
                ids.value_lengths().to_numpy().astype(np.int64),
                ids.flatten().to_numpy(),
            )
            encoded = Texts(
                np.append(tokens, tokens.dtype.type(0)), np.cumsum(lengths) - lengths, lengths
            )
            inputs = numbers[usable][:, orders].reshape(2 * np.count_nonzero(usable), -1)
            features = lay_out_examples(encoded, inputs, self.settings)
            features["label"] = pa.array(np.arange(len(inputs), dtype=np.int32) % 2 ^ 1)
            yield pa.table(
                [features[name] for name in schema.features], schema=schema.arrow(with_ids=False)
            )


# MS MARCO's top1000 files: scanned in ranges, and sorted by query through a folder, so that no
# memory holds them.


def _top1000_parts(
    source: str, conversion: Conversion, bad: Rejects, in_order: Map
) -> Iterator[Part]:
    topics = read_topics(TopicsConfig(path=source, format="top1000"))
    work = str(conversion.work)
    write_query_ids(work, topics)
    units = list_units(CorpusConfig(path=source, format="top1000"), conversion.unit_bytes)
    buckets = min(len(topics), math.ceil(text_bytes(source) / _BUCKET_BYTES))
    scans = [
        ScanPart(unit, work, buckets, conversion.checkpoint, conversion.unit_bytes)
        for unit in units
    ]
    for more in in_order(ScanPart.scan, scans):
        join(bad, more)
    borders = [math.ceil(len(topics) * bucket / buckets) for bucket in range(buckets + 1)]
    for bucket, (first, end) in enumerate(pairwise(borders)):
        part = topics[first:end]
        relevant = conversion.relevant([topic.query_id for topic in part])
        where = (work, bucket, buckets, len(units), first)
        yield BucketPart(*where, part, conversion.checkpoint, relevant, conversion.settings)


@dataclass(frozen=True)
class ScanPart:
    """A range of a top1000 file, whose passages are tokenized and sorted into buckets of
    queries.
    """

    unit: CorpusUnit
    work: str
    buckets: int
    checkpoint: str
    sorted_bytes: int

    def scan(self) -> Rejects:
        """Writes a file with a batch for each bucket: the query's number, the doc_id and the tokens
        of each row.

        A compressed file is one range of any size: each `sorted_bytes` of its rows give another
        batch for each bucket.
        """
        rejects = Rejects("docs", NO_LIMIT)
        tokenizer, numbers = _open_tokenizer(self.checkpoint), _query_numbers(self.work)
        token = token_type(tokenizer.vocab_size)
        schema = pa.schema({"query": pa.int32(), "doc_id": pa.string(), "tokens": pa.list_(token)})
        with (
            pa.OSFile(scan_path(self.work, self.unit.index), "wb") as sink,
            pa.ipc.new_file(sink, schema) as file,
        ):
            tables = [schema.empty_table()]
            for batch in read_unit(self.unit, rejects, _BATCH_TEXTS):
                # The released files are sorted by passage: most that repeat stand beside each
                # other.
                distinct = {text: number for number, text in enumerate(dict.fromkeys(batch.texts))}
                tokens = tokenizer.encode(list(distinct), MAX_TOKENS).ids
                rows = pa.array([distinct[text] for text in batch.texts], pa.int32())
                queries = [numbers[query_id] for query_id in batch.query_ids]
                tables.append(pa.table([queries, batch.doc_ids, tokens.take(rows)], schema=schema))
                if sum(table.nbytes for table in tables) > self.sorted_bytes:
                    self._write(file, tables, len(numbers))
                    tables = [schema.empty_table()]
            self._write(file, tables, len(numbers))
        return rejects

    def _write(
        self, file: pa.RecordBatchFileWriter, tables: Sequence[pa.Table], queries: int
    ) -> None:
        """Writes a batch for each bucket."""
        table = pa.concat_tables(tables)
        bucket = table["query"].to_numpy().astype(np.int64) * self.buckets // queries
        order = np.argsort(bucket, kind="stable")
        columns = [column.combine_chunks() for column in table.take(pa.array(order)).columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=table.schema)
        ends = np.searchsorted(bucket[order], np.arange(1, self.buckets + 1))
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            file.write_batch(batch.slice(start, end - start))


@dataclass(frozen=True)
class BucketPart:
    """Some queries of a top1000 file, with their rows from the scans of all ranges."""

    work: str
    bucket: int
    buckets: int
    scans: int
    first_query: int
    topics: Sequence[Topic]
    checkpoint: str
    relevant: Relevant
    settings: ExampleSettings

    def tables(self, bad: Rejects) -> Iterator[pa.Table]:  # noqa: ARG002
        batches: list[pa.RecordBatch] = []
        for scan in range(self.scans):
            with pa.memory_map(scan_path(self.work, scan)) as source:
                file = pa.ipc.open_file(source)
                batches += map(
                    file.get_batch, range(self.bucket, file.num_record_batches, self.buckets)
                )
        table = pa.Table.from_batches(batches)
        queries = table["query"].to_numpy() - self.first_query
        table = table.take(pa.array(np.argsort(queries, kind="stable"))).combine_chunks()
        counts = np.bincount(queries, minlength=len(self.topics))
        texts = [topic.text for topic in self.topics]
        columns: dict[str, Any] = {
            "query_id": [topic.query_id for topic in self.topics],
            "query_tokens": _open_tokenizer(self.checkpoint).encode_queries(texts, MAX_TOKENS).ids,
            "doc_ids": lists(table["doc_id"].combine_chunks(), counts),
            "doc_tokens": lists(table["tokens"].combine_chunks(), counts),
        }
        yield from examples_in_tables(pa.table(columns), self.relevant, self.settings)


def scan_path(work: str, unit: int) -> str:
    """The file of a range's scan."""
    return os.path.join(work, f"scan-{unit:05}.arrow")


def write_query_ids(work: str, topics: Sequence[Topic]) -> None:
    """Writes the query_ids for all processes."""
    Path(work, "queries").write_text(
        "\n".join(topic.query_id for topic in topics), encoding="utf-8"
    )


@lru_cache(maxsize=1)
def _query_numbers(work: str) -> dict[str, int]:
    """The number of each query, in the order of the file."""
    query_ids = Path(work, "queries").read_text(encoding="utf-8").split("\n")
    return {query_id: number for number, query_id in enumerate(query_ids)}
