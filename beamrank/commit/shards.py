"""Shards, the units of work: some topics, or rows of a file; their tasks, and the file in which a plan lists them."""

import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.commit.listing import holds_content
from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.join.schemas import FILE_ROWS, TOPICS
from beamrank.records import Topic
from beamrank.storage.digested import DigestedFile, RowRange
from beamrank.storage.documents import SHORT, digest, hash64, sha256

TOPICS_PER_SHARD = 16
_TOPICS_FILE, _ROWS_FILE = "topics-", "rows-"


@dataclass(frozen=True)
class Shard:
    """A fixed set of topics, sorted by query_id, or the rows of a file: the unit of work."""

    index: int
    topics: tuple[Topic, ...] = ()
    rows: RowRange | None = None

    @cached_property
    def digest(self) -> str:
        """The digest of the topics' ids and texts, or of the file's content and the rows."""
        return digest(self.topics if self.rows is None else [self.rows.file.content, *self.rows[1:]])


class InputPart(NamedTuple):
    """The part of a stage before that a shard reads."""

    folder: StageFolder
    receipt: Receipt

    def read(self) -> Any:
        """The table."""
        return self.folder.read_part(self.receipt)


class ReusablePart(NamedTuple):
    """The part of an earlier run whose scores a shard may reuse.

    Attributes:
        scores: the part.
        tokens: the part with the tokens that were scored.
        keys: of the stage that scored them.
        arithmetic: names what computed them: see `beamrank.commit.receipts.arithmetic_digest`.
    """

    scores: InputPart
    tokens: InputPart
    keys: Mapping[str, Any]
    arithmetic: str


@dataclass(frozen=True)
class ShardTask:
    """One shard of one stage.

    Attributes:
        folder: the stage's.
        shard: the number of the shard.
        digest: the digest that the shard's receipt must have.
        topics: the shard's, sorted by query_id; empty for a stage that does not read them.
        inputs: the parts of the stages that it reads, in their order.
        rows: the shard's, for a stage that reads rows of a file.
        reusable: the parts of earlier runs with scores of the shard's queries, in the order in which they are read.
        reusable_tokens: the parts of an earlier run with the tokens of docs that are not read from the corpus.
    """

    folder: StageFolder
    shard: int
    digest: str
    topics: tuple[Topic, ...] = ()
    inputs: tuple[InputPart, ...] = ()
    rows: RowRange | None = None
    reusable: tuple[ReusablePart, ...] = ()
    reusable_tokens: tuple[InputPart, ...] = ()

    def receipt(self) -> Receipt | None:
        """The receipt, if the shard has one that counts."""
        return self.folder.receipt(self.shard, self.digest)

    @property
    def commit(self) -> "partial[Receipt]":
        """`StageFolder.commit` of the shard, which takes its table, seconds and counts."""
        return partial(self.folder.commit, self.shard, self.digest)


def cut_shards(topics: Iterable[Topic], shards: int | None) -> tuple[Shard, ...]:
    """Sorts topics by a stable hash of their ids and cuts them evenly, by default into one shard for 16.

    The topics of a shard are then sorted by query_id: every table of a shard keeps that order.
    """
    ordered = sorted(topics, key=_place)
    count = min(shards or -(-len(ordered) // TOPICS_PER_SHARD), len(ordered))
    borders = np.linspace(0, len(ordered), count + 1).astype(int)
    return tuple(
        Shard(index, tuple(sorted(ordered[start:end])))
        for index, (start, end) in enumerate(itertools.pairwise(borders))
    )


def cut_rows(files: Iterable[tuple[DigestedFile, int]], shard_rows: int) -> tuple[Shard, ...]:
    """Cuts files, each with its number of rows, into shards of `shard_rows`; the last of a file can have fewer."""
    ranges = (
        RowRange(file, start, min(start + shard_rows, rows))
        for file, rows in files
        for start in range(0, rows, shard_rows)
    )
    return tuple(Shard(index, rows=each) for index, each in enumerate(ranges))


def first_topics(topics: Sequence[Topic], limit: int | None) -> Sequence[Topic]:
    """The first `limit` topics in the order of the shards."""
    return topics if limit is None or limit >= len(topics) else sorted(topics, key=_place)[:limit]


def _place(topic: Topic) -> tuple[int, str]:
    """The sort key of topics: a hash, so that the first topics are a fair sample."""
    return hash64(topic.query_id), topic.query_id


def _name(prefix: str, content: bytes) -> str:
    return f"{prefix}{sha256(content)[:SHORT]}.parquet"


def write_shards(shards: Sequence[Shard]) -> tuple[str, bytes]:
    """The name and the content of the file that lists the topics of all shards, or their rows."""
    if any(shard.rows for shard in shards):
        prefix, table = _ROWS_FILE, pa.Table.from_pylist(list(_stored_rows(shards)), FILE_ROWS)
    else:
        topics = [(shard.index, *topic) for shard in shards for topic in shard.topics]
        prefix, table = _TOPICS_FILE, pa.table(list(zip(*topics, strict=True)), schema=TOPICS)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return _name(prefix, sink.getvalue()), sink.getvalue()


def _stored_rows(shards: Iterable[Shard]) -> Iterator[dict[str, object]]:
    for shard in shards:
        assert shard.rows is not None
        yield {"shard": shard.index, **vars(shard.rows.file), "start": shard.rows.start, "end": shard.rows.end}


def read_shards(name: str, content: bytes, count: int) -> tuple[Shard, ...]:
    """The shards that a file of `write_shards` lists, which must be `count`.

    Raises:
        ValueError: the file is damaged.
    """
    if not holds_content(name, content):
        raise ValueError(f"{name} was changed after it was written")
    schema = FILE_ROWS if name.startswith(_ROWS_FILE) else TOPICS
    try:
        rows = pq.read_table(pa.BufferReader(content)).select(schema.names).cast(schema).to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ValueError(f"{name} does not hold {name.partition('-')[0]}: {error}") from error
    if count > len(rows) or not all(0 <= row["shard"] < count for row in rows):
        raise ValueError(f"{name} does not hold the {name.partition('-')[0]} of {count} shards")
    if schema is FILE_ROWS:
        return tuple(
            Shard(
                index, rows=RowRange(DigestedFile(row["url"], row["version"], row["sha256"]), row["start"], row["end"])
            )
            for index, row in enumerate(rows)
        )
    topics: list[list[Topic]] = [[] for _ in range(count)]
    for row in rows:
        topics[row["shard"]].append(Topic(row["query_id"], row["text"]))
    return tuple(Shard(index, tuple(each)) for index, each in enumerate(topics))
