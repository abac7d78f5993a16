"""Shards, the units of work: some topics, or some rows of a file; and the file in which a plan lists them."""

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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

    @property
    def digest(self) -> str:
        """The digest of the topics' ids and texts, or of the file's content and the rows."""
        return digest(self.topics if self.rows is None else [self.rows.file.content, *self.rows[1:]])


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


def lists_shards(name: str) -> bool:
    """Whether a file's name is that of a list of shards."""
    return name.startswith((_TOPICS_FILE, _ROWS_FILE))


def has_own_name(name: str, content: bytes) -> bool:
    """Whether a list of shards has the content of its name."""
    return name == _name(_ROWS_FILE if name.startswith(_ROWS_FILE) else _TOPICS_FILE, content)


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
    """The shards that a file of `write_shards` lists.

    Args:
        name: of the file.
        content: of the file.
        count: how many shards it must list.

    Raises:
        ValueError: the file is damaged.
    """
    if not has_own_name(name, content):
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
