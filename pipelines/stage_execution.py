"""Runs the open shards of a stage for a launcher: a Beam job over them, or a join with the corpus."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam

from beamrank.config.run import RunConfig
from beamrank.config.score import JobConfig
from beamrank.errors import DataError
from beamrank.formats.corpora import list_units
from beamrank.stages.plan import Plan
from beamrank.stages.scan_reports import ScanWatch
from beamrank.stages.shards import Shard
from beamrank.stages.stage_record import StageRecord
from beamrank.stages.tasks import ShardTask
from beamrank.tables.join import NeededDocs
from models.stages.base import CorpusJoin, ShardWork
from pipelines.console.stage_progress import Scan
from pipelines.planning.join_passes import join_passes
from transforms.join import JoinCorpus, UnitSource
from transforms.shards import RunShards

# Runs one Beam job over some tasks, and shows its progress.
RunJob = Callable[[Sequence[ShardTask], beam.PTransform, Scan | None], None]


@dataclass(frozen=True)
class StageExecution:
    """The open shards of one stage: `models.stages.base.Execution`.

    Attributes:
        plan: the plan.
        config: its configuration.
        stage: the stage.
        tasks: its open shards.
        note: prints a note for the user.
        run_job: runs a job.
        needed_prefix: how the docs that a join needs are named.
        shuffles_in_memory: whether the runner keeps the shuffle in this machine's memory.
    """

    plan: Plan
    config: JobConfig
    stage: StageRecord
    tasks: Sequence[ShardTask]
    note: Callable[[str], None]
    run_job: RunJob
    needed_prefix: str
    shuffles_in_memory: bool

    @property
    def shards(self) -> Sequence[Shard]:
        """All shards of the plan."""
        return self.plan.shards

    def run_shards(self, stage: ShardWork) -> None:
        """One Beam job over all tasks."""
        self.run_job(self.tasks, RunShards(stage), None)

    def join_corpus(self, stage: CorpusJoin) -> None:
        """One Beam job, or several where the shuffle does not fit in the launcher's memory."""
        sources = self._open_corpus()
        needed = NeededDocs.collect(_wanted(stage, self.tasks))
        passes = self._passes(stage, needed, sources)
        if passes > 1:
            self.note(f"{self.stage.name}: the shuffle does not fit in memory at once; {passes} passes over the corpus")
        folder = self.plan.folder(self.stage.name)
        for number in range(passes):
            some = self.tasks[number * len(self.tasks) // passes : (number + 1) * len(self.tasks) // passes]
            if passes > 1:
                needed = NeededDocs.collect(_wanted(stage, some))
            needed_url = needed.publish(folder.url, self.needed_prefix)
            count = ScanWatch(folder.url).count
            scan = Scan(count, len(sources), before=number * len(sources), total=passes * len(sources))
            self.run_job(some, JoinCorpus(stage, folder, needed_url, sources), scan)

    def _open_corpus(self) -> list[UnitSource]:
        """The units of the corpus, each with its file as it was planned with; a worker checks the file when it reads.

        Raises:
            DataError: a file was added, removed or changed.
        """
        corpus = self.plan.corpus
        assert corpus is not None
        assert isinstance(self.config, RunConfig)
        with corpus.held():
            units = list_units(self.config.corpus)
        added = sorted({unit.url for unit in units} - corpus.files.keys())
        if added:
            raise DataError(
                f"{added[0]} was added to the corpus {self.config.corpus.path} after the run was planned, and the "
                "plan's digest does not cover it. Nothing was read from it, and finished shards are kept. Run the same "
                "command again to plan with it, or remove the file first"
            )
        return [(unit, corpus.files[unit.url]) for unit in units]

    def _passes(self, stage: CorpusJoin, needed: NeededDocs, sources: Sequence[UnitSource]) -> int:
        if not self.shuffles_in_memory:
            return 1
        units = [unit for unit, _ in sources]
        return join_passes(len(needed.hashes), units, len(self.tasks), stage.max_doc_tokens)


def _wanted(stage: CorpusJoin, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, Sequence[str]]]:
    for task in tasks:
        yield task.shard, stage.wanted(task)
