"""Where runs go while the parts of a plan are read: a file on disk until it is sorted, or the parts of a folder.

The parts are written by workers, or in the launcher's pass over the parts of the stages: by the same `PartWriter`.
"""

import hashlib
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beamrank.commit.part_folder import PartFolder
from beamrank.commit.parts import ShardParts
from beamrank.commit.receipts import PARQUET, ROW_GROUP_ROWS
from beamrank.commit.shards import ShardTask
from beamrank.formats.run_writer import RUN_TABLE
from pipelines.runs.run_file import RunFile

_CHUNK_BYTES = 1 << 20


class Sink(Protocol):
    """Takes a run, shard by shard."""

    def add(self, parts: ShardParts) -> None:
        """Takes the rankings of a shard."""


@dataclass(frozen=True)
class PartWriter:
    """Writes a run in parts."""

    run: RunFile
    run_tag: str
    folder: PartFolder

    def add(self, parts: ShardParts) -> None:
        self.folder.write(parts.shard, self.run.part(parts, self.run_tag))


@dataclass(frozen=True)
class ShardWriter:
    """Writes the parts of runs for a shard, on a worker; `stages` are those that rank, in order."""

    stages: tuple[Any, ...]
    writers: tuple[PartWriter, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the stages."""
        return tuple(stage.name for stage in self.stages)

    @property
    def folders(self) -> list[PartFolder]:
        """Where the parts are."""
        return [writer.folder for writer in self.writers]

    def done(self) -> set[int]:
        """The shards whose parts are all there."""
        shards = set(range(self.folders[0].shards))
        return shards.difference(*(folder.missing() for folder in self.folders))

    def __call__(self, task: ShardTask) -> None:
        inputs = dict(zip(self.reads, task.inputs, strict=True))
        parts = ShardParts(task.shard, self.stages, lambda name: inputs[name].read())
        for writer in self.writers:
            writer.add(parts)


class RunSpool:
    """A run on disk while it is made, so that memory holds an id and a number a query."""

    def __init__(self, run: RunFile, run_tag: str) -> None:
        self._run, self._tag = run, run_tag
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._query_ids: list[Any] = []
        # Where the rows of each query begin, and the last ones end.
        self._places = array("q", [0])

    def __enter__(self) -> "RunSpool":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, parts: ShardParts) -> None:
        query_ids = []
        for query_id, content in self._run.by_query(parts, self._tag):
            query_ids.append(query_id)
            self._places.append(self._places[-1] + self._file.write(content))
        self._query_ids.append(pa.array(query_ids, pa.string()))

    def sha256(self) -> str:
        """The SHA-256 of the run as a file, in hex."""
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def chunks(self) -> Iterator[bytes]:
        """The run as a file, queries sorted by id."""
        if not self._run.is_table:
            yield from self._by_query_id()
            return
        with tempfile.TemporaryFile() as file:
            self._write_table(file)
            file.seek(0)
            yield from iter(lambda: file.read(_CHUNK_BYTES), b"")

    def _by_query_id(self) -> Iterator[bytes]:
        for place in pc.sort_indices(pa.chunked_array(self._query_ids, pa.string())).to_numpy().tolist():
            self._file.seek(self._places[place])
            yield self._file.read(self._places[place + 1] - self._places[place])

    def _write_table(self, file: IO[bytes]) -> None:
        """Writes a table whose row groups do not depend on shards."""
        with pq.ParquetWriter(file, RUN_TABLE, **PARQUET) as writer:
            batches, rows = list[Any](), 0
            for content in self._by_query_id():
                batches.append(pa.ipc.read_record_batch(pa.py_buffer(content), RUN_TABLE))
                rows += len(batches[-1])
                if rows >= ROW_GROUP_ROWS:
                    writer.write_table(pa.Table.from_batches(batches))
                    batches, rows = [], 0
            writer.write_table(pa.Table.from_batches(batches, RUN_TABLE))
