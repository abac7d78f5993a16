"""A run to write: its name, its rows from the parts of a shard, and where they go: one file, or a
folder of parts.
"""

import hashlib
import re
import tempfile
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.listing import LAUNCHER, RUNS
from beamrank.commit.parts import ShardParts
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import ROW_GROUP_ROWS, part_bytes, table_chunks
from beamrank.commit.shards import ShardTask
from beamrank.commit.stage import Stage
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, PreflightError
from beamrank.formats.run_writer import FORMATS, RUN_TABLE, run_lines
from beamrank.ranking.rankings import Rankings, rows_by_query
from beamrank.storage import files as storage
from beamrank.storage.digested import FileState, file_states
from beamrank.storage.local_files import final_name

SUCCESS = "_SUCCESS"


@dataclass(frozen=True)
class RunFile:
    """One run to write.

    Attributes:
        name: the run's: the file's, without its ending.
        stage: the stage that ranks.
        run_format: of the file.
        k: how many docs count as received by the stage; None for all that it received.
        variant: settings of the stage that its parts can be ranked with, in place of its own, such
            as an aggregation.
        in_parts: whether it is a folder with a part for each shard, and not one file.
    """

    name: str
    stage: str
    run_format: str = "trec"
    k: int | None = None
    variant: tuple[tuple[str, Any], ...] = ()
    in_parts: bool = False

    @property
    def ending(self) -> str:
        """The ending of its file, or of its parts."""
        return FORMATS[self.run_format].ending

    @property
    def base(self) -> str:
        """The name of the file, or of the folder."""
        return f"{self.name}.{self.ending}"

    @property
    def is_table(self) -> bool:
        """Whether it is Parquet."""
        return FORMATS[self.run_format].is_table

    def rankings(self, parts: ShardParts) -> Rankings:
        """Each query's ranking, from the parts of a shard."""
        if self.k is None and not self.variant:
            return parts.rankings(self.stage)
        stage: Any = next(stage for stage in parts.stages if stage.name == self.stage)
        return parts.rank(replace(stage, **dict(self.variant)), self.k)

    def by_query(self, parts: ShardParts, run_tag: str) -> Iterator[tuple[str, bytes]]:
        """The rows of each query of a shard: lines, or a serialized batch of a table."""
        if self.is_table:
            yield from self._batches(parts)
            return
        for query_id, ranking in self.rankings(parts).items():
            lines = run_lines(query_id, ranking, run_tag, self.run_format)
            yield query_id, "".join(f"{line}\n" for line in lines).encode()

    def _batches(self, parts: ShardParts) -> Iterator[tuple[str, bytes]]:
        table = self._table(parts)
        for query_id, rows in rows_by_query(table).items():
            (batch,) = table.slice(rows.start, rows.stop - rows.start).to_batches()
            yield query_id, batch.serialize().to_pybytes()

    def part(self, parts: ShardParts, run_tag: str) -> bytes:
        """The part of a shard: the same bytes wherever it is made."""
        if self.is_table:
            return part_bytes(self._table(parts))
        return b"".join(lines for _, lines in self.by_query(parts, run_tag))

    def _table(self, parts: ShardParts) -> Any:
        return parts.table(self.stage, self.rankings(parts))

    def url(self, plan: Plan) -> str:
        """Its URL."""
        return storage.join(plan.output, RUNS, self.base)

    def folder(self, plan: Plan) -> "PartFolder":
        """The folder of its parts, which may also be what an earlier run wrote in place of a
        file.
        """
        return PartFolder(self.url(plan), self.ending, len(plan.shards))


def run_files(stages: Sequence[Stage], config: RunConfig) -> list[RunFile]:
    """The runs of a plan, in the order of its stages, each in every format that the configuration
    asks for.
    """
    return [
        RunFile(str(stage.run_name), stage.name, run_format, in_parts=config.in_parts(run_format))
        for stage in stages
        if stage.ranks
        for run_format in config.run_formats
    ]


def parse_run_file(stages: Sequence[Stage], base: str, in_parts: bool) -> RunFile | None:
    """The run of a variant of a stage that has this name, of a file or of a folder; None if no run
    has it.
    """
    name, _, ending = base.partition(".")
    run_format = next((key for key, kind in FORMATS.items() if kind.ending == ending), None)
    for stage in stages if run_format else ():
        parsed = stage.parse_run_name(name)
        if parsed is not None:
            return RunFile(name, stage.name, run_format or "", parsed[1], parsed[0], in_parts)
    return None


class RunSpool:
    """A run on disk while it is made, so that memory holds an id and a number a query."""

    def __init__(self, run: RunFile, run_tag: str) -> None:
        self._run, self._tag = run, run_tag
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._query_ids: list[Any] = []
        # The places where the rows of each query begin, and the last rows end.
        self._places = array("q", [0])

    def __enter__(self) -> "RunSpool":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, parts: ShardParts) -> None:
        """Takes the rankings of a shard."""
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
        if self._run.is_table:
            return table_chunks(RUN_TABLE, self._row_groups())
        return self._by_query_id()

    def _by_query_id(self) -> Iterator[bytes]:
        for place in (
            pc.sort_indices(pa.chunked_array(self._query_ids, pa.string())).to_numpy().tolist()
        ):
            self._file.seek(self._places[place])
            yield self._file.read(self._places[place + 1] - self._places[place])

    def _row_groups(self) -> Iterator[pa.Table]:
        """The rows of a table, in groups that do not depend on shards."""
        batches, rows = list[Any](), 0
        for content in self._by_query_id():
            batches.append(pa.ipc.read_record_batch(pa.py_buffer(content), RUN_TABLE))
            rows += len(batches[-1])
            if rows >= ROW_GROUP_ROWS:
                yield pa.Table.from_batches(batches)
                batches, rows = [], 0
        yield pa.Table.from_batches(batches, RUN_TABLE)


@dataclass(frozen=True)
class PartFolder:
    """A run or a table as a folder of parts, one for each shard, for readers that know nothing of
    plans: Spark, DuckDB.

    It holds exactly the parts of one plan wherever it holds `_SUCCESS`, which is removed first and
    written last. The names of the parts have the `ending`.
    """

    records: ClassVar[tuple[str, ...]] = (SUCCESS,)
    """The names of the files beside the parts."""
    url: str
    ending: str
    shards: int

    def part(self, shard: int) -> str:
        """The name of a shard's part."""
        return f"part-{shard:05d}.{self.ending}"

    @property
    def names(self) -> Iterator[str]:
        """The names of all files of a whole folder."""
        yield from map(self.part, range(self.shards))
        yield from self.records

    def written_names(self) -> set[str] | None:
        """The names of what this or an earlier run wrote here; None where no folder is.

        Raises:
            PreflightError: there is something else, which is not ours to remove.
        """
        if storage.is_link(self.url) or not storage.is_folder(self.url):
            return None
        return self._own_names()

    def _own_names(self) -> set[str]:
        names = {
            name
            for name in storage.entry_names(self.url)
            if not re.fullmatch(LAUNCHER.pattern, name)
        }
        known = re.compile(rf"part-\d{{5,}}\.{re.escape(self.ending)}")
        ours = {
            name
            for name in names
            if (base := final_name(name) or name) in self.records or known.fullmatch(base)
        }
        others = (names - ours) | {
            name
            for name in ours & storage.folder_names(self.url)
            if not storage.is_link(storage.join(self.url, name))
        }
        if others:
            raise PreflightError(
                f"{storage.join(self.url, min(others))} is not a file of beamrank, and the folder "
                "that holds it is written anew: move it away, and run the same command again"
            )
        return ours

    def begin(self) -> None:
        """Removes `_SUCCESS`, then all that is no part: a link or a file of the folder's name too.
        The parts are replaced: another process may be writing the same.

        Raises:
            PreflightError: see `written_names`; then nothing is removed.
        """
        if not self.remove(kept=set(map(self.part, range(self.shards)))):
            storage.remove(self.url)

    def remove(self, kept: Collection[str] = ()) -> bool:
        """Removes the folder, or what is not kept of it, `_SUCCESS` first; returns whether there
        was one.
        """
        ours = self.written_names()
        if ours is not None:
            storage.remove(storage.join(self.url, SUCCESS))
            storage.remove_files(self.url, ours.difference(kept))
        return ours is not None

    def write(self, shard: int, content: bytes) -> None:
        """Writes a shard's part; another attempt's is replaced, by the same bytes."""
        url = storage.join(self.url, self.part(shard))
        try:
            storage.replace(url, content)
        except FileNotFoundError:
            # Another process has begun to write the same run, and removed the folder in between.
            storage.replace(url, content)

    def missing(self, older: Mapping[str, FileState] = MappingProxyType({})) -> list[int]:
        """The shards without a part, or with one that is still as in `older`."""
        present = file_states(self.url)
        names = map(self.part, range(self.shards))
        return [
            shard
            for shard, name in enumerate(names)
            if present.get(name) in (None, older.get(name))
        ]

    def problems(self, expected: Mapping[int, str]) -> Iterator[tuple[str, str]]:
        """The names of files that are wrong, each with its problem; `expected` are the SHA-256 of
        parts, by shard.
        """
        names = set(self.names)
        present = storage.sizes_bytes(self.url).keys() | storage.folder_names(self.url)
        for shard, sha256 in expected.items():
            name = self.part(shard)
            if name in present and storage.sha256(storage.join(self.url, name)) != sha256:
                yield name, "is not the part that the sealed stages of the current plan give"
        yield from ((name, "is missing") for name in sorted(names - present))
        yield from (
            (name, "is none of its parts, and would be read as one")
            for name in sorted(present - names)
        )

    def seal(self) -> None:
        """Removes all but the parts, and writes `_SUCCESS`; an error where a part is missing."""
        missing = self.missing()
        if missing:
            raise BeamrankError(
                f"{self.url} lacks {self.part(missing[0])} and the parts of {len(missing) - 1:,} "
                "more shards: run again, which writes it again"
            )
        storage.remove_files(self.url, (self.written_names() or set()) - set(self.names))
        storage.replace(storage.join(self.url, SUCCESS), b"")


@dataclass(frozen=True)
class ShardWriter:
    """Writes the parts of runs, shard by shard: in a pass over the parts of the stages that rank,
    or on a worker.
    """

    stages: tuple[Any, ...]
    runs: tuple[tuple[RunFile, PartFolder], ...]
    run_tag: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the stages."""
        return tuple(stage.name for stage in self.stages)

    @property
    def folders(self) -> list[PartFolder]:
        """The folders of the parts."""
        return [folder for _, folder in self.runs]

    def open_since(self) -> Callable[[], list[list[int]]]:
        """A function that returns the shards whose part was not written since this call, for each
        folder.
        """
        older = [file_states(folder.url) for folder in self.folders]
        return lambda: [folder.missing(of) for folder, of in zip(self.folders, older, strict=True)]

    def write(self, parts: ShardParts) -> None:
        """Writes the parts of a shard: the same bytes wherever that is done."""
        for run, folder in self.runs:
            folder.write(parts.shard, run.part(parts, self.run_tag))

    def __call__(self, task: ShardTask) -> None:
        inputs = dict(zip(self.reads, task.inputs, strict=True))
        self.write(ShardParts(task.shard, self.stages, lambda name: inputs[name].read()))
