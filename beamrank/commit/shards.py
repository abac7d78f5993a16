"""Shards, the units of work: some topics, or rows of a file; their tasks, and the file in which a
plan lists them.
"""

import hashlib
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, Self, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.schemas import FILE_ROWS, topics_like
from beamrank.commit.stage import StageRecord
from beamrank.formats.topic_table import TopicTable
from beamrank.records import BM25_TEXT, Topic
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile, RowRange
from beamrank.storage.documents import SHORT, digest, hashes64, holds_content

Hashes: TypeAlias = npt.NDArray[np.uint64]
Places: TypeAlias = npt.NDArray[np.int64]
# A shard has 16 topics; from 4,096 shards on as many as keep it at 160 or fewer.
TOPICS_PER_SHARD = 16
_MANY_SHARDS, _MOST_TOPICS_PER_SHARD = 4096, 160
_ROWS_AT_ONCE, _GROUPS_AT_ONCE, _CHUNK_BYTES = 1 << 18, 1 << 11, 1 << 20
# Of a few topics, dictionaries and statistics take more room than they save.
_PARQUET = {
    "compression": "zstd",
    "write_statistics": False,
    "use_dictionary": False,
    "write_page_checksum": True,
}
# Loaded tables by the name of their file: plans with the same topics share one.
_read: "WeakValueDictionary[str, Shards]" = WeakValueDictionary()


@dataclass(frozen=True)
class Shard:
    """A fixed set of topics, sorted by query_id, or the rows of a file: the unit of work."""

    index: int
    topics: Sequence[Topic] = ()
    rows: RowRange | None = None

    @property
    def digest(self) -> str:
        """The digest of the topics' ids, texts, instructions and texts for BM25, or of the file's
        content and the rows.
        """
        if self.rows is not None:
            return digest([self.rows.file.content, *self.rows[1:]])
        topics = TopicTable.of(self.topics)
        others = [{BM25_TEXT: topics.bm25_texts}] if topics.bm25_texts else []
        return digest([*topics, *topics.instructions, *others])


class Shards:
    """All shards of a plan, over one Arrow table; a `Shard` is made when it is read.

    The table has the schema `topics_like` or FILE_ROWS of `schemas`, sorted by shard.
    """

    def __init__(self, table: Any) -> None:
        self.table = table
        numbers = table["shard"].to_numpy()
        self._starts = np.searchsorted(
            numbers, np.arange(int(numbers[-1]) + 2 if len(numbers) else 1)
        )

    @property
    def of_rows(self) -> bool:
        """Whether they are rows of files."""
        return "url" in self.table.schema.names

    @property
    def topics(self) -> TopicTable:
        """The topics of all shards, in their order; none where shards are rows of files."""
        return TopicTable(self.table.slice(0, 0) if self.of_rows else self.table)

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """`Shard.digest` of each."""
        return tuple(shard.digest for shard in self)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __iter__(self) -> Iterator[Shard]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Shard:
        rows = self.rows_of(range(len(self))[index])
        if not self.of_rows:
            return Shard(index, TopicTable(rows))
        (row,) = rows.to_pylist()
        file = DigestedFile(row["url"], row["version"], row["sha256"])
        return Shard(index, rows=RowRange(file, row["start"], row["end"]))

    def rows_of(self, index: int) -> Any:
        """The rows of the table that are a shard."""
        start, end = self._starts[index : index + 2].tolist()
        return self.table.slice(start, end - start)

    @cached_property
    def first_hashes(self) -> Hashes:
        """The lowest hash of a query_id of each shard, uint64[shards], ascending: see
        `find_shards`.
        """
        return self.firsts(_hashes(self.table))

    def firsts(self, hashes: Hashes) -> Hashes:
        """The lowest of some numbers of topics, uint64[topics], for each shard."""
        return np.minimum.reduceat(hashes, self._starts[:-1])

    def with_urls(self, change: Callable[[str], str]) -> "Shards":
        """The same with other URLs of the files, where they are rows of files."""
        if not self.of_rows:
            return self
        urls, at = map(cache(change), self.table["url"].to_pylist()), FILE_ROWS.names.index("url")
        column = pa.array(urls, pa.string())
        return Shards(self.table.set_column(at, FILE_ROWS.field(at), column))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shards) and bool(self.table.equals(other.table))

    __hash__ = None  # type: ignore[assignment]


class InputPart(NamedTuple):
    """The part of a stage before that a shard reads."""

    folder: StageFolder
    receipt: Receipt

    @property
    def url(self) -> str:
        """Its URL."""
        return self.folder.part_url(self.receipt)

    def read(self, columns: Collection[str] | None = None) -> Any:
        """The table, or the columns that it has of `columns`."""
        return self.folder.read_part(self.receipt, columns)


class ReusablePart(NamedTuple):
    """The part of an earlier plan whose scores a shard may reuse.

    Attributes:
        scores: the part.
        tokens: the part with the contents of the texts that were scored.
        stage: the stage that scored them.
        arithmetic: names what computed them: see `beamrank.commit.receipts.arithmetic_digest`.
    """

    scores: InputPart
    tokens: InputPart
    stage: StageRecord
    arithmetic: str


@dataclass(frozen=True)
class ShardTask:
    """One shard of one stage.

    Attributes:
        folder: the stage's.
        shard: the number of the shard.
        digest: the digest that the shard's receipt must have.
        topics: the shard's, sorted by query_id, made when they are read; empty for a stage that
            does not read them.
        inputs: the parts of the stages that it reads, in their order.
        rows: the shard's, for a stage that reads rows of a file.
        reusable: the parts of earlier plans with scores of the shard's queries, in the order in
            which they are read.
        beside: the folders of other stages whose parts are made of the same rows of a scan, each
            with the digest that the shard's receipt there must have.
    """

    folder: StageFolder
    shard: int
    digest: str
    topics: Sequence[Topic] = ()
    inputs: tuple[InputPart, ...] = ()
    rows: RowRange | None = None
    reusable: tuple[ReusablePart, ...] = ()
    beside: tuple[tuple[StageFolder, str], ...] = ()

    def receipt(self) -> Receipt | None:
        """The receipt, if the shard has one that counts."""
        return self.folder.receipt(self.shard, self.digest)

    @property
    def commit(self) -> "partial[Receipt]":
        """`StageFolder.commit` of the shard, which takes its table, seconds and counts."""
        return partial(self.folder.commit, self.shard, self.digest)


def cut_shards(topics: Iterable[Topic], shards: int | None, *, consume: bool = False) -> Shards:
    """Sorts topics by a stable hash of their ids and cuts them evenly into shards.

    The topics of a shard are then sorted by query_id: every table of a shard keeps that order.

    Args:
        topics: the topics.
        shards: how many; by default as `default_shards` says.
        consume: empties a `TopicTable` meanwhile, so that millions of topics are in memory once,
            not twice.
    """
    topics = TopicTable.of(topics)
    hashes, count = _hashes(topics.table), min(shards or default_shards(len(topics)), len(topics))
    # Topics whose hashes collide share a shard: `find_shards` relies on it.
    firsts = np.unique(
        np.sort(hashes)[np.linspace(0, len(topics), count, endpoint=False).astype(int)]
    )
    numbers = _places(firsts, hashes).astype(np.int32)
    schema = topics_like(topics.table)
    batches = topics.table.select(schema.names[1:]).to_batches()
    if consume:
        topics.table = topics.table.schema.empty_table()
    return Shards(pa.concat_tables(_sorted_shards(batches, numbers, len(firsts), schema)))


def _sorted_shards(
    batches: list[Any], numbers: npt.NDArray[np.int32], count: int, schema: Any
) -> Iterator[Any]:
    """The topics of some shards after the other, which are parted before they are sorted; `batches`
    is emptied.
    """
    step = max(1, count * _ROWS_AT_ONCE // max(1, len(numbers)))
    parts: list[list[Any]] = [[] for _ in range(0, max(1, count), step)]
    while batches:
        batch = batches.pop()
        numbers, of_batch = np.split(numbers, [len(numbers) - len(batch)])
        for part in np.unique(of_batch // step):
            chosen = of_batch // step == part
            columns = [pa.array(of_batch[chosen]), *batch.filter(pa.array(chosen)).columns]
            parts[part].append(pa.record_batch(columns, schema=schema))
    while parts:
        part = pa.Table.from_batches(parts.pop(0), schema)
        yield part.sort_by([("shard", "ascending"), ("query_id", "ascending")])
        # The allocator keeps what is freed, up to as much again.
        pa.default_memory_pool().release_unused()


def find_shards(first_hashes: Hashes, query_ids: Iterable[str]) -> Places:
    """The shard in which each query is if it is a topic of the plan: int64[n].

    Shards are ranges of the hash of query_ids, so `Shards.first_hashes` alone tells: no table of
    queries is needed.
    """
    return _places(first_hashes, hashes64(query_ids))


def _places(first_hashes: Hashes, hashes: Hashes) -> Places:
    return np.maximum(np.searchsorted(first_hashes, hashes, side="right") - 1, 0)


class SharedTopics(NamedTuple):
    """The topics that two plans share, by their hashes: which shards of the earlier plan have a
    shard's topics.

    Attributes:
        starts: int64[shards + 1], where the shards of the earlier plan begin, for each shard of the
            later one.
        earlier: int64[n], these shards.
    """

    starts: Places
    earlier: Places

    @classmethod
    def of(cls, later: Shards, earlier: Shards) -> Self:
        """The topics that two plans share; holds 8 bytes a topic of each plan meanwhile."""
        hashes = _hashes(later.table), _hashes(earlier.table)
        # In the order of the hashes, and so of the shards of both.
        shared = np.intersect1d(*hashes)
        mine, theirs = (
            _places(shards.firsts(of_plan), shared)
            for shards, of_plan in zip((later, earlier), hashes, strict=True)
        )
        is_new = np.ones(len(shared), np.bool_)
        is_new[1:] = (np.diff(mine) > 0) | (np.diff(theirs) > 0)
        return cls(np.searchsorted(mine[is_new], np.arange(len(later) + 1)), theirs[is_new])

    def shards(self, later: int) -> list[int]:
        """The shards of the earlier plan that have topics of a shard, ascending."""
        shards: list[int] = self.earlier[slice(*self.starts[later : later + 2])].tolist()
        return shards


def default_shards(topics: int) -> int:
    """How many shards so many topics have: one for 16, and above 4,096 as many as keep one at 160
    topics.
    """
    small = -(-topics // TOPICS_PER_SHARD)
    return (
        small if small <= _MANY_SHARDS else max(_MANY_SHARDS, -(-topics // _MOST_TOPICS_PER_SHARD))
    )


def cut_rows(files: Iterable[tuple[DigestedFile, int]], shard_rows: int) -> Shards:
    """Cuts files, each with its number of rows, into shards of `shard_rows`; the last of a file can
    have fewer.
    """
    ranges = [
        {**vars(file), "start": start, "end": min(start + shard_rows, rows)}
        for file, rows in files
        for start in range(0, rows, shard_rows)
    ]
    return Shards(
        pa.Table.from_pylist(
            [{"shard": index, **rows} for index, rows in enumerate(ranges)], FILE_ROWS
        )
    )


def first_topics(topics: Sequence[Topic], limit: int | None) -> Sequence[Topic]:
    """The first `limit` topics by a hash of their ids, as of the shards: a fair sample."""
    if limit is None or limit >= len(topics):
        return topics
    table = TopicTable.of(topics).table
    keyed = pa.table({"hash": _hashes(table), "query_id": table["query_id"]})
    order = pc.sort_indices(keyed, [("hash", "ascending"), ("query_id", "ascending")])
    return TopicTable(table.take(order[:limit]))


def _hashes(topics: Any) -> Hashes:
    """The hash of each query_id: uint64[n]."""
    batches = [
        hashes64(batch.column(0).to_pylist())
        for batch in topics.select(["query_id"]).to_batches(1 << 16)
    ]
    return np.concatenate([np.empty(0, np.uint64), *batches])


def write_shards(shards: Shards, folder: str) -> str:
    """Writes the file that lists the topics of all shards, a row group each, or their rows; returns
    its name.
    """
    kind = "rows" if shards.of_rows else "topics"
    # Not in memory, where 10 M topics take 400 MB.
    with tempfile.TemporaryFile() as spool:
        with pq.ParquetWriter(spool, shards.table.schema, **_PARQUET) as writer:
            for group in (
                [shards.table] if shards.of_rows else map(shards.rows_of, range(len(shards)))
            ):
                writer.write_table(group)
        spool.seek(0)
        content = hashlib.file_digest(spool, "sha256").hexdigest()
        name = f"{kind}-{content[:SHORT]}.parquet"
        url = storage.join(folder, name)
        if not storage.exists(url) or storage.sha256(url) != content:
            spool.seek(0)
            storage.replace_stream(url, iter(partial(spool.read, _CHUNK_BYTES), b""))
    return name


def read_shards(name: str, content: bytes, count: int) -> Shards:
    """The shards that a file of `write_shards` lists, `count` of them; raises ValueError where it
    is damaged.
    """
    if not holds_content(name, content):
        raise ValueError(f"{name} was changed after it was written")
    known = _read.get(name)
    if known is not None and len(known) == count:
        return known
    kind = name.partition("-")[0]
    try:
        table = pa.concat_tables(_read_groups(content))
        schema = FILE_ROWS if kind == "rows" else topics_like(table)
        table = table.select(schema.names).cast(schema)
        numbers = np.unique(table["shard"].to_numpy(zero_copy_only=False))
        if len(numbers) != count or not np.array_equal(numbers, np.arange(count)):
            raise ValueError(f"it has {len(numbers)}")
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise ValueError(f"{name} does not hold the {kind} of {count} shards: {error}") from error
    return _read.setdefault(name, Shards(table))


def _read_groups(content: bytes) -> Iterator[Any]:
    """The tables of some row groups after the other: one with a chunk for each would be slow to
    cut.
    """
    file = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
    for first in range(0, max(1, file.num_row_groups), _GROUPS_AT_ONCE):
        groups = range(first, min(first + _GROUPS_AT_ONCE, file.num_row_groups))
        yield file.read_row_groups(list(groups), use_threads=False).combine_chunks()
