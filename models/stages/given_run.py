"""A run that the user already has, as the first stage."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.commit.receipts import Manifest, Receipt, StageFolder
from beamrank.commit.scans import ScanReport, report_scan
from beamrank.commit.shards import ShardTask, find_shards
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.config.stages import CandidatesConfig
from beamrank.errors import PreflightError
from beamrank.formats.columns import TABLES, RunColumns, hints_of
from beamrank.formats.corpora import FORMATS
from beamrank.formats.decode.base import unit_ranges
from beamrank.formats.files import shown_paths
from beamrank.formats.rejects import NO_LIMIT, Rejects
from beamrank.formats.run_order import Ties
from beamrank.formats.run_units import (
    SMALL_BYTES,
    UNIT_BYTES,
    RunReader,
    RunUnit,
    digest_run,
    open_run,
    read_units,
    run_bytes,
    write_units,
)
from beamrank.formats.schemas import NO_HINTS
from beamrank.join.join import by_shard
from beamrank.join.run_shards import ROUTED, in_place_order, order_shard, routed
from beamrank.notes import counted
from beamrank.storage.documents import digest
from models.stages.base import Key
from models.stages.first_stage import FirstStage
from models.stages.planning import Planning
from models.stages.scatter import Scatter, SentRows

# Of a unit, so many rows are kept until they are cut by shard: a batch for each shard has a header.
_FLUSH_ROWS, _SHARD_ROWS = 2_000_000, 500
_NO_TOPIC = " is not a topic"
_AS_THEY_ARE = "read as they are. Another file of these docs, as the corpus, may have them correct"
_TIES: dict[Ties, str] = {
    "rank": "ordered by their ranks. `beamrank eval` and trec_eval order them by doc_id, "
    "descending, so their measures of this file can differ; `candidates.ties: doc_id` takes that "
    "order here too",
    "doc_id": "ordered by doc_id, descending, as `beamrank eval` and trec_eval do",
}
_RULES = 2


@dataclass(frozen=True, kw_only=True)
class GivenRun(FirstStage):
    """Takes each topic's best `k` docs of a run, in the order of its scores; `ties` decides among
    equal ones.
    """

    type_name = "candidates"
    does = "run"
    section = CandidatesConfig

    run_digest: Annotated[str, Key("candidates.run")]
    ties: Annotated[Ties, Key("candidates.ties")] = "rank"
    columns: Annotated[RunColumns | None, Key("candidates.columns")] = None
    format: Annotated[str, Key("candidates.format")] = TABLES[0]
    quotes: Annotated[bool, Key("candidates.quotes")] = False
    # To raise when the same files are read differently.
    rules: Annotated[int, Key("candidates.run")] = 1
    url: str | tuple[str, ...]
    max_bad_rows: dict[str, int] = field(default_factory=dict)

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        run, max_bad_rows = own.section.run, planning.config.max_bad_rows.model_dump()
        of_run = {"run_digest": digest_run(run).digest, "url": run, "max_bad_rows": max_bad_rows}
        return super().settings(own, planning) | of_run | {"rules": _RULES}

    @classmethod
    def needs_workers(cls, config: RunConfig) -> bool:
        """Whether the run is too large for the launcher."""
        section = config.first_stage
        assert isinstance(section, CandidatesConfig)
        return run_bytes(section.run) > SMALL_BYTES

    @property
    def scan_digest(self) -> str:
        hints = hints_of(self)
        return self.run_digest if hints == NO_HINTS else digest([self.run_digest, hints])

    @property
    def has_scores(self) -> bool:
        """Whether any row has one. One with ranks alone has minus the ranks."""
        reader, units = open_run(self.url, hints_of(self), self.run_digest)
        rejects = Rejects(reader.kind, NO_LIMIT)
        return any(batch.is_scored for unit in units for batch in reader.read(unit, rejects))

    def limit(self, kind: str) -> int:
        """How many rows of a kind may be left out."""
        return self.max_bad_rows.get(kind, 0)

    def review(self, manifest: Manifest, scan: ScanReport) -> list[str]:
        """Notes on the run, by what its shards and units counted.

        Raises:
            PreflightError: it has none of the topics, or too many rows that cannot be read.
        """
        paths, total = shown_paths(self.url), manifest.total
        if scan.bad_rows > self.limit(scan.kind):
            first = "".join(f"\n  {example}" for example in scan.examples)
            raise PreflightError(
                f"{counted(scan.bad_rows, 'row')} of {paths} cannot be used, and "
                f"max_bad_rows.{scan.kind} is {self.limit(scan.kind)}{first}"
            )
        examples = (text for receipt in manifest.receipts for text in receipt.examples)
        foreign = next(
            (text.removesuffix(_NO_TOPIC)[6:] for text in examples if text.endswith(_NO_TOPIC)), ""
        )
        if total("topics_without_candidates") == total("topics") and not total("excluded"):
            raise PreflightError(
                f"the run {paths} has none of the topics: it has, for example, {foreign}. Give the "
                "run that was made for these topics"
            )
        ties: Ties = "doc_id" if total("without_ranks") else self.ties
        counts = (
            (
                "rows that cannot be used",
                scan.bad_rows,
                f" (first: {next(iter(scan.examples), '')}); left out",
            ),
            (
                "texts that were encoded as UTF-8 twice",
                scan.twice_encoded,
                f" (first: {scan.twice_example}); {_AS_THEY_ARE}",
            ),
            (
                "queries that are not topics",
                total("foreign_queries"),
                f" ({foreign}, ...); they are ignored",
            ),
            ("rows with the score of the row before", total("tied_scores"), f"; {_TIES[ties]}"),
            (
                "rows whose rank disagrees with the scores",
                total("rank_disagreements"),
                "; the scores decide",
            ),
            (
                "rows with the rank of the row before",
                total("tied_ranks"),
                "; in the order of the file",
            ),
        )
        notes = [f"{what}: {count:,}{more}" for what, count, more in counts if count]
        return [f"{paths}: {note}" for note in ([scan.remark] if scan.remark else []) + notes]


@dataclass(frozen=True)
class RunScan(Scatter):
    """Reads a run, of which each unit here is some of the reader's units.

    Attributes:
        stage: the stage.
        folder: its folder, where a report of each unit is left.
        reader: reads the run.
        url: the file that lists the reader's units.
        ranges: of these units, from the first to the last, exclusive.
        first_hashes: `Shards.first_hashes` of the plan.
        is_open: bool[shards]: rows of other shards are not kept.
    """

    stage: GivenRun
    folder: StageFolder
    reader: RunReader
    url: str
    ranges: Sequence[tuple[int, int]]
    first_hashes: npt.NDArray[np.uint64]
    is_open: npt.NDArray[np.bool_]

    source = "run"
    schema = ROUTED

    @classmethod
    def open(
        cls,
        stage: GivenRun,
        folder: StageFolder,
        prefix: str,
        first_hashes: npt.NDArray[np.uint64],
    ) -> Self:
        """Lists the units of a stage's run in a file with a prefix: see `open_run`."""
        reader, units = open_run(stage.url, hints_of(stage), stage.run_digest)
        url = write_units(folder.url, prefix, units)
        ranges = unit_ranges([unit.size_bytes for unit in units], UNIT_BYTES)
        is_open = np.ones(len(first_hashes), np.bool_)
        return cls(stage, folder, reader, url, ranges, first_hashes, is_open)

    @property
    def _units(self) -> Sequence[RunUnit]:
        return read_units(self.url)

    @property
    def count(self) -> int:
        return len(self.ranges)

    @property
    def is_small(self) -> bool:
        """Whether the launcher reads it, without a job."""
        return sum(unit.size_bytes for unit in self._units) <= SMALL_BYTES

    def for_shards(self, shards: Sequence[int]) -> Self:
        return replace(self, is_open=np.isin(np.arange(len(self.is_open)), shards))

    def sent_bytes(self) -> float:
        with self._units[0].file.unchanged():
            return self.reader.sent_bytes(self._units)

    def scan(self, number: int) -> Iterator[SentRows]:
        began = time.monotonic()
        batches: list[pa.RecordBatch] = []
        shards: list[npt.NDArray[np.uint32]] = []
        kept = docs = twice = 0
        example, listed = "", self.reader.layout.listed
        is_scored = not listed
        rejects = Rejects(self.reader.kind, self.stage.limit(self.reader.kind))
        start, end = self.ranges[number]
        most = min(_FLUSH_ROWS, _SHARD_ROWS * int(np.count_nonzero(self.is_open)))
        for index, unit in enumerate(self._units[start:end], start):
            with unit.file.unchanged():
                for batch in self.reader.read(unit, rejects):
                    docs, twice = docs + len(batch.rows), twice + batch.twice_encoded
                    example = example or batch.twice_example
                    is_scored = is_scored or batch.is_scored
                    encoded = batch.rows.column("query_id").dictionary_encode()
                    of_queries = find_shards(self.first_hashes, encoded.dictionary.to_pylist())
                    numbers = of_queries[encoded.indices.to_numpy()]
                    is_open = self.is_open[numbers]
                    batches.append(routed(batch.rows.filter(pa.array(is_open)), index))
                    shards.append(numbers[is_open].astype(np.uint32))
                    kept += len(shards[-1])
                    if kept > most:
                        yield from by_shard(batches, shards)
                        batches, shards, kept = [], [], 0
        yield from by_shard(batches, shards)
        report_scan(
            self.folder.url,
            self.stage.scan_digest,
            start,
            docs,
            rejects,
            began,
            twice_encoded=twice,
            twice_example=example,
            remark="" if is_scored else f"unranked; {FORMATS[listed].candidate_order}",
        )

    def gather(self, task: ShardTask, rows: Sequence[pa.RecordBatch]) -> Receipt:
        """Puts the rows of a shard in their order, and commits its candidates; raises
        PreflightError where a query has a doc twice.
        """
        start = time.monotonic()
        run = order_shard(
            in_place_order(rows),
            [topic.query_id for topic in task.topics],
            self.stage.to_retrieve(task.topics),
            self.reader.layout,
            self.stage.ties,
            lambda unit, position: self.reader.where(self._units[unit], position),
        )
        examples = [] if run.foreign is None else [f"query {run.foreign!r}{_NO_TOPIC}"]
        computed = self.stage.computed(task.topics, run.candidates, run.counts, examples)
        return computed.commit(task, time.monotonic() - start)
