"""MS MARCO's top1000 files: scanned in ranges, and sorted by query through a folder, so that no memory holds them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from beamrank.formats.corpora import read_unit
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join.schemas import token_type
from beamrank.records import Topic
from contrib.tensorflow2019.examples.layout import ExampleSettings, Relevant, examples_in_tables
from contrib.tensorflow2019.examples.parts import BATCH_TEXTS, MAX_TOKENS, BadRows, open_tokenizer


@dataclass(frozen=True)
class ScanPart:
    """A range of a top1000 file, whose passages are tokenized and sorted into buckets of queries."""

    unit: CorpusUnit
    work: str
    buckets: int
    checkpoint: str
    sorted_bytes: int

    def scan(self) -> BadRows:
        """Writes a file with a batch for each bucket: the query's number, the doc_id and the tokens of each row.

        A compressed file is one range of any size: each `sorted_bytes` of its rows give another batch for each bucket.
        """
        bad = BadRows()
        path = scan_path(self.work, self.unit.index)
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, _schema(self.checkpoint)) as file:
            tables: list[pa.Table] = []
            for table in self._tables(bad):
                tables.append(table)
                if sum(each.nbytes for each in tables) > self.sorted_bytes:
                    self._write(file, tables)
                    tables = []
            self._write(file, tables)
        return bad

    def _tables(self, bad: BadRows) -> Iterator[pa.Table]:
        tokenizer, numbers = open_tokenizer(self.checkpoint), _numbers(self.work)
        for batch in read_unit(self.unit, BATCH_TEXTS):
            bad.add(batch.bad)
            # The released files are sorted by passage: most that repeat stand beside each other.
            distinct = {text: number for number, text in enumerate(dict.fromkeys(batch.texts))}
            tokens = tokenizer.encode(list(distinct), MAX_TOKENS).ids
            rows = pa.array([distinct[text] for text in batch.texts], pa.int32())
            queries = [numbers[query_id] for query_id in batch.query_ids]
            yield pa.table([queries, batch.doc_ids, tokens.take(rows)], schema=_schema(self.checkpoint))

    def _write(self, file: pa.RecordBatchFileWriter, tables: Sequence[pa.Table]) -> None:
        """Writes a batch for each bucket."""
        schema = _schema(self.checkpoint)
        table = pa.concat_tables([schema.empty_table(), *tables])
        bucket = table["query"].to_numpy().astype(np.int64) * self.buckets // len(_numbers(self.work))
        order = np.argsort(bucket, kind="stable")
        columns = [column.combine_chunks() for column in table.take(pa.array(order)).columns]
        found = pa.RecordBatch.from_arrays(columns, schema=schema)
        ends = np.searchsorted(bucket[order], np.arange(1, self.buckets + 1))
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            file.write_batch(found.slice(start, end - start))


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

    def tables(self, bad: BadRows) -> Iterator[pa.Table]:  # noqa: ARG002
        batches: list[pa.RecordBatch] = []
        for scan in range(self.scans):
            with pa.memory_map(scan_path(self.work, scan)) as source:
                file = pa.ipc.open_file(source)
                batches += map(file.get_batch, range(self.bucket, file.num_record_batches, self.buckets))
        table = pa.Table.from_batches(batches)
        queries = table["query"].to_numpy() - self.first_query
        table = table.take(pa.array(np.argsort(queries, kind="stable"))).combine_chunks()
        counts = np.bincount(queries, minlength=len(self.topics))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        tokenizer = open_tokenizer(self.checkpoint)
        tokenized = pa.table(
            {
                "query_id": [topic.query_id for topic in self.topics],
                "query_tokens": tokenizer.encode_queries([topic.text for topic in self.topics], MAX_TOKENS).ids,
                "doc_ids": pa.ListArray.from_arrays(offsets, table["doc_id"].combine_chunks()),
                "doc_tokens": pa.ListArray.from_arrays(offsets, table["tokens"].combine_chunks()),
            }
        )
        yield from examples_in_tables(tokenized, self.relevant, self.settings)


def scan(part: ScanPart) -> BadRows:
    """`ScanPart.scan`, for other processes."""
    return part.scan()


def _schema(checkpoint: str) -> pa.Schema:
    token = token_type(open_tokenizer(checkpoint).vocab_size)
    return pa.schema({"query": pa.int32(), "doc_id": pa.string(), "tokens": pa.list_(token)})


def scan_path(work: str, unit: int) -> str:
    """Where the scan of a range is written."""
    return os.path.join(work, f"scan-{unit:05}.arrow")


def write_query_ids(work: str, topics: Sequence[Topic]) -> None:
    """Writes the query_ids for all processes."""
    Path(work, "queries").write_text("\n".join(topic.query_id for topic in topics), encoding="utf-8")


@lru_cache(maxsize=1)
def _numbers(work: str) -> dict[str, int]:
    """The number of each query, in the order of the file."""
    query_ids = Path(work, "queries").read_text(encoding="utf-8").split("\n")
    return {query_id: number for number, query_id in enumerate(query_ids)}
