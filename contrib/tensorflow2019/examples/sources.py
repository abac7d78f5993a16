"""What examples are made from: files of examples, runs, top1000 files and triples, recognized by their content."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from beamrank.commit.plan import read_plan
from beamrank.errors import PreflightError
from beamrank.formats.checks import RowError
from beamrank.formats.corpora import CorpusConfig, list_units
from beamrank.formats.files import Beginning
from beamrank.formats.texts.lines import byte_ranges, is_top1000, read_lines
from beamrank.formats.texts.units import CorpusUnit, DocBatch, TextFormat, check_batches
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.storage import files as storage
from beamrank.storage.streams import text_bytes
from contrib.tensorflow2019.examples.layout import ExampleSettings
from contrib.tensorflow2019.examples.parts import (
    BadRows,
    Part,
    ShardPart,
    StoredPart,
    TriplesPart,
    map_in_order,
    relevant_of,
)
from contrib.tensorflow2019.examples.reader import kind_of, stored_examples
from contrib.tensorflow2019.examples.top1000 import BucketPart, ScanPart, scan, write_query_ids
from models.training.data.texts import normal_text
from models.training.data.triple_columns import has_header, is_header

# Bytes of a top1000 file whose queries are made into examples at a time.
_BUCKET_BYTES = 32 << 20

Relevance = Mapping[str, Mapping[str, int]]


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
    relevance: Relevance
    processes: int
    work: Path
    unit_bytes: int = 64 << 20
    vocab_size: int | None = None


def parts_of(source: str, conversion: Conversion, bad: BadRows) -> Iterator[Part]:
    """The parts of a source, in order.

    Raises:
        PreflightError: it is none of those that are read.
    """
    if storage.is_folder(source):
        return _run_parts(source, conversion)
    kind = kind_of(source)
    if kind is not None:
        return iter([StoredPart(stored) for stored in stored_examples(source, kind, conversion.vocab_size)])
    if is_top1000(Beginning(source)):
        return _top1000_parts(source, conversion, bad)
    _check_triples(CorpusUnit(0, source, TRIPLES, None, 0, 0))
    ranges = enumerate(byte_ranges(source, conversion.unit_bytes))
    units = [CorpusUnit(number, source, TRIPLES, None, start, end) for number, (start, end) in ranges]
    return iter([TriplesPart(unit, conversion.checkpoint, conversion.settings) for unit in units])


def _run_parts(output: str, conversion: Conversion) -> Iterator[Part]:
    plan = read_plan(output)
    stages = plan.of_step("tokenize")
    manifest = plan.finished(stages[0].name) if stages else None
    if manifest is None:
        raise PreflightError(
            f"the tokenize stage of {output} is not finished, and examples are made from its tokens. Run it first: "
            "beamrank run CONFIG --stage retrieve, then --stage tokenize"
        )
    folder = plan.folder(stages[0].name)
    for shard, receipt in zip(plan.shards, manifest.receipts, strict=True):
        relevant = relevant_of(conversion.relevance, [topic.query_id for topic in shard.topics])
        yield ShardPart(folder, receipt, relevant, conversion.settings)


def _top1000_parts(source: str, conversion: Conversion, bad: BadRows) -> Iterator[Part]:
    topics = read_topics(TopicsConfig(path=source, format="top1000"))
    write_query_ids(str(conversion.work), topics)
    units = list_units(CorpusConfig(path=source, format="top1000"), conversion.unit_bytes)
    buckets = min(len(topics), math.ceil(text_bytes(source) / _BUCKET_BYTES))
    scans = [
        ScanPart(unit, str(conversion.work), buckets, conversion.checkpoint, conversion.unit_bytes) for unit in units
    ]
    for found in map_in_order(scan, scans, conversion.processes):
        bad.add(found.first, found.count)
    borders = [math.ceil(len(topics) * bucket / buckets) for bucket in range(buckets + 1)]
    for bucket, (first, end) in enumerate(pairwise(borders)):
        some = topics[first:end]
        relevant = relevant_of(conversion.relevance, [topic.query_id for topic in some])
        where = (str(conversion.work), bucket, buckets, len(units), first)
        yield BucketPart(*where, some, conversion.checkpoint, relevant, conversion.settings)


def _parse_triple(line: str) -> tuple[str, str]:
    """The line as a text; its id is not used."""
    columns = [column.strip() for column in line.split("\t")]
    if len(columns) != 3 or not all(columns):
        raise RowError("is not query<TAB>relevant passage<TAB>other passage")
    if is_header(columns):
        raise RowError("is a header")
    query, positive, negative = map(normal_text, columns)
    if not (query and positive and negative) or positive == negative:
        raise RowError("has a text without a visible character, or the same passage twice")
    return "triple", "\t".join(columns)


def _read_triples(unit: CorpusUnit) -> Iterator[DocBatch]:
    return read_lines(unit, _parse_triple)


def _check_triples(unit: CorpusUnit) -> None:
    check_batches(unit, _read_triples(unit))
    has_header(unit.url, ids=False)


TRIPLES = TextFormat("triples", (".tsv",), byte_ranges, _read_triples, check=_check_triples)
