"""A run that the user already has, as the first stage."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.commit.receipts import Manifest, Receipt, StageFolder
from beamrank.commit.scan_reports import ScanReport, ScanTotal, read_scans
from beamrank.commit.shards import ShardTask, find_shards
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.config.stages import CandidatesConfig
from beamrank.errors import PreflightError
from beamrank.formats.columns import RunColumns, column_names
from beamrank.formats.files import paths_of, shown_paths
from beamrank.formats.notes import counted
from beamrank.formats.rejects import Rejects
from beamrank.formats.runs import Ties
from beamrank.join.join import by_shard
from beamrank.join.run_files import SMALL_BYTES, digest_run, run_bytes
from beamrank.join.run_shards import ShardRun, in_place_order, order_shard, sent
from beamrank.join.run_units import RunBatch, RunReader, RunUnit, open_run
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.digested import reread
from beamrank.storage.documents import digest
from models.stages.base import Key
from models.stages.first_stage import FirstStage
from models.stages.planning import Planning, Trial

_TRIAL_ROWS, _ANY = 100_000, 1 << 62
# Of a unit, so many rows are kept until they are cut by shard: a batch for each shard has a header.
_FLUSH_ROWS = 2_000_000
_SHARDS_AT_ONCE = 4
_NO_TOPIC = " is not a topic"
_AS_THEY_ARE = "read as they are. Another file of these docs, as the corpus, may have them correct"
_TIES: dict[Ties, str] = {
    "rank": "ordered by their ranks. `beamrank eval` and trec_eval order them by doc_id, descending, so their measures "
    "of this file can differ; `candidates.ties: doc_id` takes that order here too",
    "doc_id": "ordered by doc_id, descending, as `beamrank eval` and trec_eval do",
}
# (shard, rows of a run)
SentRows = tuple[int, pa.RecordBatch]


class OpenShards(NamedTuple):
    """The shards of a plan, and which of them a job does: what tells the shard of a query.

    Attributes:
        first_hashes: `Shards.first_hashes`.
        is_open: bool[shards].
    """

    first_hashes: npt.NDArray[np.uint64]
    is_open: npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class GivenRun(FirstStage):
    """Takes each topic's best `k` docs of a run, in the order of its scores; `ties` decides among equal ones."""

    type_name = "candidates"
    does = "run"
    section: ClassVar[type[CandidatesConfig]] = CandidatesConfig

    run_digest: Annotated[str, Key("candidates.run")]
    k: Annotated[int, Key("candidates.k")]
    ties: Annotated[Ties, Key("candidates.ties")] = "rank"
    columns: Annotated[RunColumns | None, Key("candidates.columns")] = None
    url: str | tuple[str, ...]
    max_bad_rows: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_config(cls, section: CandidatesConfig, planning: Planning) -> Self:
        return cls(
            run_digest=digest_run(section.run).digest,
            k=section.k,
            ties=section.ties,
            columns=section.columns,
            url=section.run,
            max_bad_rows=planning.config.max_bad_rows.model_dump(),
        )

    @classmethod
    def trial(cls, config: RunConfig, topics: Sequence[Topic]) -> Trial:  # noqa: ARG003
        """The docs of the first rows; the time is negligible. None where a corpus lists them: they are its docs.

        Raises:
            PreflightError: there is no such run, or it cannot be read.
        """
        section = config.candidates
        assert section is not None
        reader, units = open_run(section.run, column_names(section.columns))
        doc_ids, rows = set[str](), 0
        rejects = Rejects("run", _ANY)
        for batch in chain.from_iterable(reader.read(unit, rejects) for unit in units if not reader.layout.listed):
            doc_ids.update(batch.rows.column("doc_id").to_pylist())
            rows += len(batch.rows)
            if rows >= _TRIAL_ROWS:
                break
        return Trial(doc_ids=doc_ids)

    @classmethod
    def needs_workers(cls, own: ConfiguredStage, config: RunConfig) -> bool:  # noqa: ARG003
        """Whether the run is too large for the launcher."""
        return run_bytes(own.section.run) > SMALL_BYTES

    @classmethod
    def worker_paths(cls, own: ConfiguredStage, config: RunConfig) -> dict[str, str]:
        """The run, where workers read it."""
        paths = super().worker_paths(own, config)
        if cls.needs_workers(own, config):
            # Of several, one that workers may not reach.
            paths["candidates.run"] = min(paths_of(own.section.run), key=storage.is_remote)
        return paths

    @property
    def scan_digest(self) -> str:
        columns = column_names(self.columns)
        return digest([self.run_digest, columns]) if columns else self.run_digest

    def open(self) -> tuple[RunReader, list[RunUnit]]:
        """Reads how the run is laid out, and divides it.

        Raises:
            PreflightError: it cannot be read, or has no rows.
            DataError: it changed after its digest was taken.
        """
        return open_run(self.url, column_names(self.columns), self.run_digest)

    def scan(
        self, reader: RunReader, units: Sequence[RunUnit], start: int, end: int, shards: OpenShards, folder: StageFolder
    ) -> Iterator[SentRows]:
        """Reads some units, and addresses their rows to the shards of their queries; others than open ones are left.

        Args:
            reader: reads the run.
            units: all units.
            start: the first unit to read.
            end: the end of the units to read, exclusive.
            shards: those of the plan.
            folder: the stage's, where a report on the units is left.

        Raises:
            PreflightError: a unit cannot be read, or has wrong rows.
            DataError: a file is not, or no longer, the one that was digested.
        """
        began = time.monotonic()
        batches: list[pa.RecordBatch] = []
        found: list[npt.NDArray[np.uint32]] = []
        kept = 0
        rejects = Rejects(reader.layout.kind, self._limit(reader.layout.kind))
        report = ScanReport(start, 0, 0, (), remark=reader.layout.order_remark, kind=rejects.kind)
        for number in range(start, end):
            with units[number].file.unchanged():
                for batch in reader.read(units[number], rejects):
                    report = _plus(report, batch)
                    numbers, is_open = _shards_of(batch.rows, shards)
                    batches.append(sent(batch.rows.filter(pa.array(is_open)), number))
                    found.append(numbers)
                    kept += len(numbers)
                    if kept > _FLUSH_ROWS:
                        yield from by_shard(batches, found)
                        batches, found, kept = [], [], 0
        yield from by_shard(batches, found)
        rejects_file = rejects.publish(storage.parent(folder.url), start)
        replace(
            report,
            bad_rows=rejects.count,
            examples=rejects.examples,
            rejects_file=rejects_file,
            seconds=round(time.monotonic() - began, 3),
        ).publish(folder.url, self.scan_digest)

    def order(
        self, task: ShardTask, batches: Sequence[pa.RecordBatch], reader: RunReader, units: Sequence[RunUnit]
    ) -> ShardRun:
        """The candidates of a shard from its rows, in any order.

        Raises:
            PreflightError: a query has a doc twice.
        """
        query_ids = [topic.query_id for topic in task.topics]
        return order_shard(
            in_place_order(batches),
            query_ids,
            self.to_retrieve(task, self.k),
            reader.layout,
            self.ties,
            lambda unit, position: reader.where(units[unit], position),
        )

    def join(
        self, task: ShardTask, batches: Sequence[pa.RecordBatch], reader: RunReader, units: Sequence[RunUnit]
    ) -> Receipt:
        """Puts a shard's rows in their order, and commits it."""
        start = time.monotonic()
        return self._commit(task, self.order(task, batches, reader, units), start)

    def _commit(self, task: ShardTask, found: ShardRun, start: float) -> Receipt:
        examples = [] if found.foreign is None else [f"query {found.foreign[1]!r}{_NO_TOPIC}"]
        return self.commit(task, found.candidates, start, found.counts, examples)

    def run(self, task: ShardTask) -> Receipt:
        reader, units = self.open()
        shards = OpenShards(np.zeros(1, np.uint64), np.ones(1, np.bool_))
        rows = reread(lambda: [batch for _, batch in self.scan(reader, units, 0, len(units), shards, task.folder)])
        return self.join(task, rows, reader, units)

    def run_here(
        self,
        tasks: Sequence[ShardTask],
        reader: RunReader,
        units: Sequence[RunUnit],
        shards: OpenShards,
        done: Callable[[int], None],
    ) -> None:
        """Does all open shards in this process; commits none where a row of the run is wrong.

        Args:
            tasks: the open shards.
            reader: reads the run.
            units: its units.
            shards: those of the plan.
            done: receives the number of each shard that has a receipt.

        Raises:
            PreflightError: the run has wrong rows (duplicates among them), or none of the topics.
        """
        folder, start = tasks[0].folder, time.monotonic()
        rows: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for shard, batch in reread(lambda: list(self.scan(reader, units, 0, len(units), shards, folder))):
            rows[shard].append(batch)
        self.check_scan(read_scans(folder.url, self.scan_digest))
        found = [self.order(task, rows.pop(task.shard, []), reader, units) for task in tasks]
        if shards.is_open.all() and not any(len(each.candidates) for each in found):
            _, first = min((each.foreign for each in found if each.foreign is not None), default=(None, None))
            topic = tasks[0].topics[0].query_id
            raise self._without_topics(f"its first query_id is {first!r}, the topics' {topic!r}")
        with ThreadPoolExecutor(_SHARDS_AT_ONCE) as pool:
            for receipt in pool.map(lambda task, each: self._commit(task, each, start), tasks, found):
                done(receipt.shard)

    def check_scan(self, scan: ScanTotal) -> None:
        """Raises PreflightError where too many rows cannot be used."""
        if scan.bad_rows > self._limit(scan.kind):
            first = "".join(f"\n  {example}" for example in scan.examples)
            raise PreflightError(
                f"{counted(scan.bad_rows, 'row')} of {shown_paths(self.url)} cannot be used, and max_bad_rows."
                f"{scan.kind} is {self._limit(scan.kind)}{first}"
            )

    def _limit(self, kind: str) -> int:
        return self.max_bad_rows.get(kind, 0)

    def review(self, manifest: Manifest, scan: ScanTotal) -> list[str]:
        """Notes on the run, by what its shards and units counted.

        Raises:
            PreflightError: it has none of the topics, or too many rows that cannot be read.
        """
        self.check_scan(scan)
        total = manifest.total
        examples = (text for receipt in manifest.receipts for text in receipt.examples)
        foreign = next((text.removesuffix(_NO_TOPIC)[6:] for text in examples if text.endswith(_NO_TOPIC)), "")
        if total("topics_without_candidates") == total("topics") and not total("excluded"):
            raise self._without_topics(f"it has, for example, {foreign}")
        ties: Ties = "doc_id" if total("without_ranks") else self.ties
        counts = (
            ("rows that cannot be used", scan.bad_rows, f" (first: {next(iter(scan.examples), '')}); left out"),
            (
                "texts that were encoded as UTF-8 twice",
                scan.twice_encoded,
                f" (first: {scan.twice_example}); {_AS_THEY_ARE}",
            ),
            ("queries that are not topics", total("foreign_queries"), f" ({foreign}, ...); they are ignored"),
            ("rows with the score of the row before", total("tied_scores"), f"; {_TIES[ties]}"),
            ("rows whose rank disagrees with the scores", total("rank_disagreements"), "; the scores decide"),
            ("rows with the rank of the row before", total("tied_ranks"), "; in the order of the file"),
        )
        notes = [f"{what}: {count:,}{more}" for what, count, more in counts if count]
        return [f"{shown_paths(self.url)}: {note}" for note in ([scan.remark] if scan.remark else []) + notes]

    def _without_topics(self, shown: str) -> PreflightError:
        return PreflightError(
            f"the run {shown_paths(self.url)} has none of the topics: {shown}. Give the run that was made for these "
            "topics"
        )


def _shards_of(rows: pa.RecordBatch, shards: OpenShards) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """The shards of the rows of a batch that are open, and which rows these are."""
    encoded = rows.column("query_id").dictionary_encode()
    of_queries = find_shards(shards.first_hashes, encoded.dictionary.to_pylist())
    numbers = of_queries[encoded.indices.to_numpy()]
    is_open = shards.is_open[numbers]
    return numbers[is_open].astype(np.uint32), is_open


def _plus(report: ScanReport, batch: RunBatch) -> ScanReport:
    """A report with a batch more."""
    return replace(
        report,
        docs=report.docs + len(batch.rows),
        twice_encoded=report.twice_encoded + batch.twice_encoded,
        twice_example=report.twice_example or batch.twice_example,
        remark="" if batch.is_scored else report.remark,
    )
