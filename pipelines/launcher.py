"""Runs the stages of a plan, the shards without a receipt as Beam jobs, and seals each stage.

Beam is imported where a job is made: shares of `--only` run without it.
"""

import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from beamrank.commit.listing import RUNS, tasks_prefix
from beamrank.commit.owner import running
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, Receipt, StageFolder
from beamrank.commit.scans import ScanReport, read_scans
from beamrank.commit.shards import ShardTask
from beamrank.commit.stage import StageRecord
from beamrank.commit.status import Retry
from beamrank.config.run import JobConfig, RunConfig
from beamrank.errors import (
    BeamrankError,
    DataError,
    PreflightError,
    TemporaryError,
    WorkerLostError,
)
from beamrank.formats.rejects import REJECTS
from beamrank.logs import log_context
from beamrank.notes import counted
from beamrank.storage import files as storage
from models.stages.attempt import inputs_done, shard_inputs
from models.stages.core import open_stages
from pipelines.console.progress import (
    Bar,
    ConsoleProgress,
    Scan,
    StageProgress,
    at_most_every,
    duration,
)
from pipelines.console.tables import left_open_words
from pipelines.passes import Passes
from pipelines.plan.reuse import Reuse
from pipelines.runners.options import IN_MEMORY, Runner, new_pipeline, shuffle_room
from pipelines.runners.watchdog import of_started_job, run_watched
from pipelines.runs.run_file import ShardWriter
from pipelines.runs.run_files import warn_of_candidates

if TYPE_CHECKING:
    import apache_beam as beam

    from transforms.scatter import Work

_log = logging.getLogger(__name__)
RETRIES = 2
# Of a stage, by shard.
Receipts: TypeAlias = Sequence[Receipt] | Mapping[int, Receipt]
_REMOTE_POLL_SECONDS = 5.0


@contextmanager
def resumable() -> Iterator[None]:
    """Adds to a storage error that the work can be resumed."""
    try:
        yield
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        kind = TemporaryError if isinstance(error, TemporaryError) else BeamrankError
        raise kind(
            f"{error}. Finished shards are kept; run the same command again to resume"
        ) from error


@dataclass
class Launcher:
    """Executes a plan with one runner.

    Attributes:
        wait: whether to wait for the jobs; only Dataflow's go on without this process.
        retries: how often open shards are started again, in all, after a worker or a job server
            died.
        max_inferences: the most that the stages may make, after reuse.
        submitted: the id of each Dataflow job, or the file that the job was written to.
    """

    plan: Plan
    config: JobConfig
    console: ConsoleProgress
    runner: Runner = Runner.LOCAL
    beam_flags: Sequence[str] = ()
    wait: bool = True
    retries: int = RETRIES
    max_inferences: int | None = None
    submitted: list[str] = field(default_factory=list, init=False)
    _checked_stages: set[str] = field(default_factory=set, init=False, repr=False)
    _inferences: int = field(default=0, init=False, repr=False)
    _attempt: int = field(default=1, init=False, repr=False)
    _started: bool = field(default=False, init=False, repr=False)

    def run(self, stages: Sequence[StageRecord] | None = None) -> None:
        """Runs these stages in order, by default all of the plan: see `run_stage`."""
        for stage in self.plan.stages if stages is None else stages:
            with log_context(stage.name):
                self.run_stage(stage)

    def finish(self) -> bool:
        """Whether all shards of the plan are done, once `run` has done this process's shards."""
        return True

    def run_stage(self, stage: StageRecord) -> Manifest | None:
        """Runs the shards of a stage that have no receipt, and seals it.

        Returns:
            The sealed stage; None where its job was submitted and is not waited for.

        Raises:
            PreflightError: an input is not sealed.
            BeamrankError: the job failed; its finished shards are kept.
        """
        by_shard, before = self._digests(stage)
        digests = tuple(by_shard.values())
        folder, start = self.plan.folder(stage.name), time.monotonic()
        sealed = folder.seal(stage.name, digests)
        if sealed is not None:
            self.console.note(f"{stage.name}: all {len(digests)} shards are already complete")
            return self._check_sealed(stage, sealed)
        tasks = self._open_tasks(stage, by_shard, before)
        try:
            rest = tasks
            while rest:
                try:
                    self._run_tasks(stage, rest, by_shard)
                    break
                except WorkerLostError as error:
                    done = folder.valid_receipts(by_shard)
                    rest = self._retried(stage.name, error, rest, done)
        except (BeamrankError, OSError) as error:
            # Receipts decide whether the stage is finished: a different run into this folder may
            # have finished it.
            if folder.seal(stage.name, digests) is None:
                self._fail(stage, error)
        if not self.wait:
            return None
        self._started = True
        sealed = folder.seal(stage.name, digests)
        if sealed is None:
            raise incomplete(stage.name, folder, by_shard)
        self._note_done(stage.name, len(tasks), start)
        return self._check_sealed(stage, sealed)

    def _fail(self, stage: StageRecord, error: BeamrankError | OSError) -> NoReturn:
        """Raises the error of a stage that is not finished; errors of its inputs come first."""
        self._check_corpus(stage)
        if self._started and isinstance(error, BeamrankError):
            # Other exit codes mean that nothing has started.
            raise of_started_job(type(error), str(error)) from error
        raise error

    def _note_done(self, stage: str, shards: int, start: float, of: str = "") -> None:
        took = duration(time.monotonic() - start)
        self.console.note(f"{stage}: {counted(shards, 'shard')}{of} done in {took}")

    def write_parts(self, write: ShardWriter, manifests: Mapping[str, Manifest]) -> None:
        """Workers write the parts of runs from sealed stages."""
        record = StageRecord(RUNS, RUNS, RUNS, (), write.reads)
        inputs = [manifests[name] for name in record.inputs]
        tasks: Sequence[ShardTask] = self.plan.tasks(record, inputs)
        total, last = len(write.folders) * len(tasks), self.plan.folder(record.inputs[-1])
        # Names of tasks that no launcher of the plan sweeps with the stage.
        digests = (RUNS, *manifests[record.inputs[-1]].shard_digests)
        find_open = write.open_since()

        def progress() -> int:
            done = total - sum(map(len, find_open()))
            bar.update(done, total, "parts")
            return done

        def run(group: Sequence[ShardTask]) -> None:
            self._run_job(record, last, digests, progress, group, write)

        with log_context(RUNS), self.console.bar(RUNS) as bar:
            while tasks:
                try:
                    run(tasks)
                    break
                except WorkerLostError as error:
                    done = set(range(len(self.plan.shards))).difference(*find_open())
                    tasks = self._retried(RUNS, error, tasks, done)
        # Another launcher of the plan may be writing the same runs, by the same tasks.
        if len(running(self.plan.output)) < 2:
            last.sweep(digests)

    def _digests(self, stage: StageRecord) -> tuple[dict[int, str], list[Receipts]]:
        """The digests of the shards that are this process's, in their order, and the receipts of
        the stages that this one reads, by shard.
        """
        before, of_all = self._before(stage), self.plan.digest_of_all(stage)
        digests = {
            shard: self.plan.shard_digest(stage, shard, [of[shard] for of in before], of_all)
            for shard in self._own_shards()
        }
        return digests, before

    def _own_shards(self) -> Sequence[int]:
        return range(len(self.plan.shards))

    def _before(self, stage: StageRecord) -> list[Receipts]:
        return [self._sealed(stage, name).receipts for name in stage.inputs]

    def _sealed(self, stage: StageRecord, name: str) -> Manifest:
        """A sealed stage that this one reads."""
        manifest = self.plan.seal(name)
        if manifest is None:
            raise PreflightError(
                f"{stage.name} reads {name}, which is not finished under {self.plan.output}: run "
                f"it first, with --stage {self.plan.stage(name).step} or without --stage"
            )
        return self._check_sealed(self.plan.stage(name), manifest)

    def _open_tasks(
        self,
        stage: StageRecord,
        digests: Mapping[int, str],
        before: Sequence[Receipts],
    ) -> Sequence[ShardTask]:
        """The shards that have no receipt yet, with the parts of earlier plans that hold their
        scores. `before` are the receipts of the stages that it reads, by shard.
        """
        done = self.plan.folder(stage.name).valid_receipts(digests)
        if done:
            self.console.note(
                f"{stage.name}: resuming, {len(done)} of {len(digests)} shards are complete"
            )
        of_all = self.plan.digest_of_all(stage)
        tasks = [
            self.plan.task(stage, shard, [receipts[shard] for receipts in before], of_all)
            for shard in digests
            if shard not in done
        ]
        if not stage.input_docs or not tasks:
            return tasks
        reusing = self._reuse.given_to(stage, tasks, self.console.note)
        if self.max_inferences is not None or stage.asks:
            self._check_inferences(stage, reusing, self.max_inferences)
        return reusing

    def _check_inferences(
        self, stage: StageRecord, tasks: Sequence[ShardTask], most: int | None
    ) -> None:
        """Counts what is not reused, and raises BeamrankError where it is too much."""
        work = self._stages[stage.name]
        count = cache(lambda: sum(work.count(shard_inputs(work, task)) for task in tasks))
        work.allow(lambda: self._of_all_shares(count()))
        if most is None:
            return
        self._inferences += count()
        if self._inferences > most:
            raise BeamrankError(
                f"{stage.name} was not started: after reuse the run makes {self._inferences:,} "
                f"inferences up to it, and --max-inferences allows {most:,}. Raise the limit, or "
                "lower k"
            )

    def _of_all_shares(self, count: int) -> int:
        """What all processes make that run the plan, if this one makes so many."""
        return count

    @cached_property
    def _reuse(self) -> Reuse:
        assert isinstance(self.config, RunConfig)
        return Reuse(self.plan, self.config.reuse)

    def _retried(
        self, stage: str, error: WorkerLostError, tasks: Sequence[ShardTask], done: Container[int]
    ) -> Sequence[ShardTask]:
        """The tasks that are open after a worker or a job server died; raises BeamrankError where
        all retries are used.
        """
        self._count_retry(stage, error)
        tasks = [task for task in tasks if task.shard not in done]
        self.console.warn(
            f"retrying: {error}; {len(tasks)} of {counted(len(self.plan.shards), 'shard')} "
            f"are open; attempt {self._attempt} of {self.retries + 1}"
        )
        return tasks

    def _count_retry(self, stage: str, error: WorkerLostError) -> None:
        """Records a retry; raises BeamrankError where it was the last."""
        attempts = self.retries + 1
        if self._attempt == attempts:
            raise BeamrankError(
                f"{error}; that was attempt {attempts} of {attempts} (--retries "
                f"{self.retries}). Finished shards are kept: run the same command again to "
                "resume"
            ) from error
        self._attempt += 1
        Retry.now(self.plan.digest, stage, str(error)).publish(self.plan.output)

    def look(self, folder: StageFolder, digests: Mapping[int, str]) -> tuple[set[int], object]:
        """The shards of a stage that are done, and the files in which workers tell how far they
        are; an error that it raises ends the job.
        """
        return folder.progress(digests.values())

    def _run_tasks(
        self, stage: StageRecord, tasks: Sequence[ShardTask], digests: Mapping[int, str]
    ) -> None:
        _log.info("stage started: %d of %d shards to do", len(tasks), len(digests))
        folder, in_order = self.plan.folder(stage.name), tuple(digests.values())
        look = partial(self.look, folder, digests)

        def read_receipt(shard: int) -> Receipt | None:
            return folder.receipt(shard, digests[shard])

        with self.console.bar(stage.name) as bar:
            for group, work, scan in self._jobs(stage, tasks, in_order, bar):
                progress = StageProgress(look, len(digests), bar, read_receipt, inputs_done, scan)
                self._run_job(stage, folder, in_order, progress, group, work)

    def _jobs(
        self,
        record: StageRecord,
        tasks: Sequence[ShardTask],
        digests: Sequence[str],
        bar: Bar,
    ) -> Iterator[tuple[Sequence[ShardTask], "Work", Scan | None]]:
        """The jobs that do some tasks of a stage, one after the other: see `passes.Job`."""
        stage = self._stages[record.name]
        if stage.does == "shards":
            yield tasks, stage.decided(self.plan) if record.waits_for else stage, None
            return
        room_bytes = shuffle_room(self.runner, self.beam_flags)
        passes = Passes(room_bytes, self.wait and self.runner not in IN_MEMORY, bar)
        others = self._made_beside(record) if stage.does == "join" else {}
        tasks = [
            replace(task, beside=tuple((folder, of[task.shard]) for folder, of in others.values()))
            for task in tasks
        ]
        beside = [self._stages[name] for name in others]
        yield from passes.jobs(stage, self.plan, self.config, tasks, digests, beside)

    def _made_beside(self, stage: StageRecord) -> dict[str, tuple[StageFolder, dict[int, str]]]:
        """The later stages that the scan of the corpus for one makes too, with the digests of their
        shards; none where it is not waited for.
        """
        place = self.plan.stages.index(stage) + 1 if self.wait else len(self.plan.stages)
        others = {}
        for other in self.plan.stages[place:]:
            if other.corpus_digest is not None:
                digests, _ = self._digests(other)
                folder = self.plan.folder(other.name)
                if len(folder.valid_receipts(digests)) < len(digests):
                    others[other.name] = folder, digests
        return others

    def _run_job(
        self,
        stage: StageRecord,
        folder: StageFolder,
        digests: tuple[str, ...],
        progress: Callable[[], object],
        tasks: Sequence[ShardTask],
        work: "Work",
    ) -> None:
        """Does some tasks as one Beam job."""
        from transforms.scatter import transform_of
        from transforms.shards import SpreadTasks, TaskFile

        stall_seconds = self.config.stall_minutes * 60
        file = TaskFile.write(self.plan, folder.url, tasks_prefix(digests), tasks)
        pipeline = self._new_pipeline(stage)
        _ = pipeline | SpreadTasks(file) | transform_of(work, file)
        if self.runner is Runner.DATAFLOW:
            job = self._submit(pipeline, stage)
            if self.wait:
                from pipelines.runners import dataflow

                dataflow.wait(job, progress, stall_seconds, self.console.warn)
            return
        # At an object store listings cost money.
        pause = _REMOTE_POLL_SECONDS if storage.is_remote(self.plan.output) else 0.0
        run_watched(pipeline, at_most_every(pause, progress), stall_seconds)
        progress()

    def _new_pipeline(self, stage: StageRecord) -> "beam.Pipeline":
        """An empty pipeline for one job of a stage."""
        if self.runner is Runner.DATAFLOW:
            from pipelines.runners import dataflow

            return dataflow.new_pipeline(self.plan, stage, self.beam_flags)
        return new_pipeline(self.runner, self.beam_flags)

    def _submit(self, pipeline: "beam.Pipeline", stage: StageRecord) -> Any:
        from pipelines.runners import dataflow

        job, name = dataflow.submit(pipeline, stage.name, self.console.note)
        self.submitted.append(name)
        return job

    def submit_nothing(self, stage: StageRecord) -> None:
        """Submits a job of a stage whose shards are all done: a flex template must make one."""
        import apache_beam as beam

        pipeline = self._new_pipeline(stage)
        _ = pipeline | "NothingToDo" >> beam.Impulse()
        self._submit(pipeline, stage)

    @cached_property
    def _stages(self) -> dict[str, Any]:
        return {stage.name: stage for stage in open_stages(self.plan.stages)}

    def _check_sealed(self, stage: StageRecord, manifest: Manifest) -> Manifest:
        """Checks what a sealed stage read, tells of it, and removes leftovers of killed
        attempts.
        """
        if stage.name not in self._checked_stages:
            self._checked_stages.add(stage.name)
            self.plan.folder(stage.name).sweep(manifest.shard_digests)
            self._check_corpus(stage)
            scan = ScanReport(0, 0, 0, ())
            if stage.scan_digest is not None:
                scan = read_scans(self.plan.folder(stage.name).url, stage.scan_digest)
            for line in self._stages[stage.name].review(manifest, scan):
                self.console.note(line)
            if stage == self.plan.stages[0] and isinstance(self.config, RunConfig):
                first = self._stages[stage.name]
                warn_of_candidates(self.plan, self.config, first, manifest, self.console)
        return manifest

    def _check_corpus(self, stage: StageRecord) -> None:
        """Reports rows that the scan could not read. Every run checks them: receipts do not hold
        them.
        """
        if stage.corpus_digest is None:
            return
        assert isinstance(self.config, RunConfig)
        scan = read_scans(self.plan.folder(stage.name).url, stage.corpus_digest)
        if scan.bad_rows:
            self._tell_of_bad_rows(scan, self.config.max_bad_rows.docs)

    def _tell_of_bad_rows(self, scan: ScanReport, most: int) -> None:
        text = (
            f"rows of the corpus that could not be read: {scan.bad_rows:,} (first: "
            f"{'; '.join(scan.examples)})"
        )
        rejects = storage.join(self.plan.output, REJECTS)
        if scan.bad_rows > most:
            raise DataError(
                f"{text}: more than max_bad_rows {most:,}. Fix the corpus, or raise "
                f"max_bad_rows.docs to leave their docs out. They are in {rejects}"
            )
        self.console.warn(f"{text}; their docs are left out (see {rejects})")


def incomplete(
    stage: str, folder: StageFolder, digests: Mapping[int, str], of: str = ""
) -> TemporaryError:
    """The error of a stage that ended without some shards, with the reasons of the shards that were
    left open.
    """
    missing = len(digests) - len(folder.receipts(digests))
    reasons = "".join(f"; {words}" for words in left_open_words(folder.left_open(digests)))
    return TemporaryError(
        f"{stage} ended with {counted(missing, 'shard')}{of} missing{reasons}: run the same "
        "command again to complete it"
    )
