"""Runs the stages of a plan: those shards of each that have no receipt, as one Beam job or several; then seals it."""

import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import apache_beam as beam

from beamrank.commit.listing import RUNS, tasks_prefix
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest
from beamrank.commit.scan_reports import read_scans
from beamrank.commit.shards import ShardTask
from beamrank.commit.stage import StageRecord
from beamrank.commit.status import Retry
from beamrank.commit.tasks import TaskFile
from beamrank.config.run import JobConfig, RunConfig
from beamrank.errors import BeamrankError, DataError, PreflightError, WorkerLostError
from beamrank.formats.notes import counted
from beamrank.formats.rejects import REJECTS
from beamrank.logs import log_context
from beamrank.storage import files as storage
from models.scoring.engine import inputs_done
from models.stages.core import open_stages
from pipelines.console.progress import Bar, ConsoleProgress, RunTimes, Scan, StageProgress, at_most_every, duration
from pipelines.corpus_join import CorpusJoin
from pipelines.plan.reuse import ReusableTokens, Reuse
from pipelines.run_join import join_run
from pipelines.runners import dataflow
from pipelines.runners.options import IN_MEMORY, Runner, new_pipeline
from pipelines.runners.watchdog import StallLimit, in_mid_run, run_watched
from pipelines.runs.spools import ShardWriter
from transforms.shards import RunShards, SpreadTasks, WriteShards

_log = logging.getLogger(__name__)
RETRIES = 2
_REMOTE_POLL_SECONDS = 5.0
# Without stall_minutes: so long may no shard be done, or as long as this many are expected to take.
_STALL_SECONDS, _STALL_SHARDS = 1800.0, 3


@contextmanager
def resumable() -> Iterator[None]:
    """Adds to a storage error that the run can be resumed."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BeamrankError(f"{error}. Finished shards are kept; run the same command again to resume") from error


@dataclass
class Launcher:
    """Executes a plan with one runner.

    Attributes:
        wait: whether to wait for the jobs; only Dataflow's go on without this process.
        retries: how often open shards are started again, in all, after a worker or a job server died.
        shard_seconds: what a shard of a stage is expected to take; asked where none was done for half an hour.
        seconds: the time of each stage in this process.
        submitted: the id of each Dataflow job, or the file that the job was written to.
    """

    plan: Plan
    config: JobConfig
    console: ConsoleProgress
    runner: Runner = Runner.LOCAL
    beam_flags: Sequence[str] = ()
    wait: bool = True
    retries: int = RETRIES
    shard_seconds: Callable[[StageRecord], float] = lambda _: 0.0
    seconds: dict[str, float] = field(default_factory=dict, init=False)
    submitted: list[str] = field(default_factory=list, init=False)
    _accepted: set[str] = field(default_factory=set, init=False, repr=False)
    _attempt: int = field(default=1, init=False, repr=False)

    def run(self, stages: Sequence[StageRecord] | None = None) -> None:
        """Runs these stages in order, by default all of the plan: see `run_stage`."""
        chosen = self._times.stages = self.plan.stages if stages is None else stages
        for stage in chosen:
            with log_context(stage.name):
                self.run_stage(stage)
        if chosen and self.template and not self.submitted:
            # A flex template must always make a job.
            pipeline = self._new_pipeline(chosen[-1])
            _ = pipeline | "NothingToDo" >> beam.Impulse()
            self._submit(pipeline, chosen[-1])

    def run_stage(self, stage: StageRecord) -> Manifest | None:
        """Runs the shards of a stage that have no receipt, and seals it.

        Returns:
            The sealed stage; None where its job was submitted and is not waited for.

        Raises:
            PreflightError: an input is not sealed.
            BeamrankError: the job failed; its finished shards are kept.
        """
        inputs = [self._sealed_input(stage, name) for name in stage.inputs]
        digests = self.plan.shard_digests(stage, inputs)
        folder = self.plan.folder(stage.name)
        sealed = folder.seal(stage.name, digests)
        if sealed is not None:
            self.console.note(f"{stage.name}: all {len(digests)} shards are already complete")
            return self._accept(stage, sealed)
        start = time.monotonic()
        tasks = self._open_tasks(stage, digests, inputs)
        count = len(tasks)
        try:
            while tasks:
                with self._retrying(stage.name, tasks, lambda: folder.discard_broken(digests)):
                    self._run_tasks(stage, tasks, digests)
                    tasks = []
        except (BeamrankError, OSError) as error:
            # Receipts decide whether the stage is finished: a different run into this folder may have finished it.
            if folder.seal(stage.name, digests) is None:
                self._check_corpus(stage)
                if self.seconds and isinstance(error, BeamrankError):
                    # Other exit codes mean that nothing has started.
                    raise in_mid_run(type(error), str(error)) from error
                raise
        if not self.wait:
            return None
        manifest = folder.seal(stage.name, digests)
        if manifest is None:
            left = counted(len(digests) - len(folder.receipts(digests)), "shard")
            raise BeamrankError(f"{stage.name} ended with {left} missing: run the same command again to complete it")
        self.seconds[stage.name] = time.monotonic() - start
        self.console.note(f"{stage.name}: {counted(count, 'shard')} done in {duration(self.seconds[stage.name])}")
        return self._accept(stage, manifest)

    def write_parts(self, write: ShardWriter, manifests: Mapping[str, Manifest]) -> None:
        """Workers write the parts of runs from sealed stages.

        Raises:
            BeamrankError: the job failed.
        """
        record = StageRecord(RUNS, RUNS, RUNS, (), write.reads)
        tasks = self.plan.tasks(record, [manifests[name] for name in record.inputs])
        total, last = len(write.folders) * len(tasks), self.plan.folder(record.inputs[-1])
        digests = manifests[record.inputs[-1]].shard_digests

        def progress() -> int:
            done = total - sum(len(folder.missing()) for folder in write.folders)
            bar.update(done, total, "parts")
            return done

        with log_context(RUNS), self.console.bar(RUNS) as bar:
            while tasks:
                with self._retrying(RUNS, tasks, write.done):
                    file = TaskFile.write(self.plan, last.url, tasks_prefix(digests), tasks)
                    pipeline = self._job(record, file, WriteShards(write))
                    if not self._submitted(record, pipeline, progress):
                        run_watched(pipeline, self._at_times(progress), self._stall_limit(record))
                        progress()
                    tasks = []
        last.sweep(digests)

    def open_tasks(self, stage: StageRecord) -> list[ShardTask]:
        """The tasks that `run_stage` would run.

        Raises:
            PreflightError: an input is not sealed.
        """
        inputs = [self._sealed_input(stage, name) for name in stage.inputs]
        return self._open_tasks(stage, self.plan.shard_digests(stage, inputs), inputs)

    def _open_tasks(self, stage: StageRecord, digests: tuple[str, ...], inputs: Sequence[Manifest]) -> list[ShardTask]:
        """The shards that have no receipt yet."""
        tasks = self.plan.tasks(stage, inputs, skip=self.plan.folder(stage.name).discard_broken(digests))
        if len(tasks) < len(digests):
            self.console.note(
                f"{stage.name}: resuming, {len(digests) - len(tasks)} of {len(digests)} shards are complete"
            )
        return self.with_reuse(stage, tasks)

    def with_reuse(self, stage: StageRecord, tasks: list[ShardTask]) -> list[ShardTask]:
        """Tasks with the parts of earlier runs that hold their scores."""
        if stage.work is None or not isinstance(self.config, RunConfig):
            return tasks
        scores = self._reuse.scores(stage)
        self._explain(stage, scores.refused)
        return scores.given_to(tasks)

    def _reusable_tokens(self, stage: StageRecord) -> ReusableTokens | None:
        """The tokens for a join, which may turn out unusable: a launcher that waits then reads the corpus."""
        if not self.wait or stage.corpus_digest is None:
            return None
        tokens, refused = self._reuse.tokens(stage)
        self._explain(stage, refused)
        return tokens

    def _explain(self, stage: StageRecord, refused: Sequence[str]) -> None:
        for reason in refused:
            self.console.note(f"{stage.name}: not reused: {reason}")

    @cached_property
    def _reuse(self) -> Reuse:
        return Reuse(self.plan, self.config.reuse if isinstance(self.config, RunConfig) else ())

    @contextmanager
    def _retrying(self, stage: str, tasks: list[ShardTask], find_done: Callable[[], Container[int]]) -> Iterator[None]:
        """Where a worker or a job server dies, leaves the tasks that are open: so often in all as there are retries.

        Raises:
            BeamrankError: it was once too often.
        """
        try:
            yield
        except WorkerLostError as error:
            attempts = self.retries + 1
            if self._attempt == attempts:
                raise BeamrankError(
                    f"{error}; that was attempt {attempts} of {attempts} (--retries {self.retries}). Finished shards "
                    "are kept: run the same command again to resume"
                ) from error
            self._attempt += 1
            Retry(self.plan.digest, stage, str(error), time.time()).publish(self.plan.output)
            done = find_done()
            tasks[:] = [task for task in tasks if task.shard not in done]
            self.console.warn(
                f"retrying: {error}; {len(tasks)} of {counted(len(self.plan.shards), 'shard')} are open; "
                f"attempt {self._attempt} of {attempts}"
            )

    def _run_tasks(self, stage: StageRecord, tasks: Sequence[ShardTask], digests: tuple[str, ...]) -> None:
        _log.info("stage started: %d of %d shards to do", len(tasks), len(digests))
        work = self._stages[stage.name]
        with self.console.bar(stage.name, partial(self._times.words, stage)) as bar:
            run_job = partial(self._run_job, stage, digests, bar)
            if work.does == "run":
                prefix, in_memory = tasks_prefix(digests), self.runner in IN_MEMORY
                join_run(self.plan, work, tasks, run_job, bar, self.console.note, prefix, in_memory)
            elif work.does == "join":
                assert isinstance(self.config, RunConfig)
                in_memory, tokens = self.runner in IN_MEMORY, self._reusable_tokens(stage)
                CorpusJoin(
                    *(self.plan, self.config, work, tasks, self.console.note, run_job),
                    *(digests, in_memory, self.wait, tokens),
                ).run()
            else:
                run_job(tasks, RunShards(work), None)

    def _run_job(
        self,
        stage: StageRecord,
        digests: tuple[str, ...],
        bar: Bar,
        tasks: Sequence[ShardTask],
        work: beam.PTransform,
        scan: Scan | None,
    ) -> None:
        """Runs one Beam job over some tasks, and shows its progress."""
        file = TaskFile.write(self.plan, self.plan.folder(stage.name).url, tasks_prefix(digests), tasks)
        first_done = partial(self._times.note_first, stage)
        progress = StageProgress(self.plan.folder(stage.name), digests, bar, scan, first_done, inputs_done)
        pipeline = self._job(stage, file, work)
        if not self._submitted(stage, pipeline, progress):
            run_watched(pipeline, self._at_times(progress), self._stall_limit(stage))
            progress()

    def _job(self, stage: StageRecord, file: TaskFile, work: beam.PTransform) -> beam.Pipeline:
        """One Beam job over the tasks of a file."""
        pipeline = self._new_pipeline(stage)
        _ = pipeline | SpreadTasks(file) | type(work).__name__ >> work
        return pipeline

    def _submitted(self, stage: StageRecord, pipeline: beam.Pipeline, progress: Callable[[], int]) -> bool:
        """Whether the job is Dataflow's, which it is left to; waits for it unless nobody does."""
        if self.runner is not Runner.DATAFLOW:
            return False
        job = self._submit(pipeline, stage)
        if self.wait:
            dataflow.wait(job, progress, self._stall_limit(stage), self.console.warn)
        return True

    def _at_times(self, progress: Callable[[], int]) -> Callable[[], int]:
        """Progress that is looked at rarely where listings cost money: at an object store."""
        return at_most_every(_REMOTE_POLL_SECONDS if storage.is_remote(self.plan.output) else 0.0, progress)

    def _stall_limit(self, stage: StageRecord) -> StallLimit:
        minutes = self.config.stall_minutes
        if minutes is not None or stage.name == RUNS:
            return StallLimit(_STALL_SECONDS if minutes is None else minutes * 60)
        return StallLimit(_STALL_SECONDS, partial(self._longer, stage))

    def _longer(self, stage: StageRecord) -> float:
        """How long a job of a stage may complete no shard, by what a shard is expected to take."""
        try:
            expected = self.shard_seconds(stage)
        except (BeamrankError, OSError, RuntimeError) as error:
            self.console.warn(f"{stage.name}: what a shard takes is unknown: {error}")
            return 0.0
        limit = _STALL_SHARDS * expected
        if limit > _STALL_SECONDS:
            self.console.note(
                f"{stage.name}: a shard is expected to take {duration(expected)}; the job is stopped after "
                f"{duration(limit)} without a shard (stall_minutes)"
            )
        return limit

    def _new_pipeline(self, stage: StageRecord) -> beam.Pipeline:
        """An empty pipeline for one job of a stage."""
        if self.runner is Runner.DATAFLOW:
            return dataflow.new_pipeline(self.plan, stage, self.beam_flags)
        return new_pipeline(self.runner, self.beam_flags)

    def _submit(self, pipeline: beam.Pipeline, stage: StageRecord) -> Any:
        job, name = dataflow.submit(pipeline, stage.name, self.console.note)
        self.submitted.append(name)
        return job

    @property
    def template(self) -> str | None:
        """The file that a Dataflow job is written to instead of being started."""
        return dataflow.template_location(self.beam_flags) if self.runner is Runner.DATAFLOW else None

    @cached_property
    def _times(self) -> RunTimes:
        return RunTimes(len(self.plan.shards))

    @cached_property
    def _stages(self) -> dict[str, Any]:
        return {stage.name: stage for stage in open_stages(self.plan.stages)}

    def _accept(self, stage: StageRecord, manifest: Manifest) -> Manifest:
        """Checks what a sealed stage read, tells of it, and removes leftovers of killed attempts."""
        if stage.name not in self._accepted:
            self._accepted.add(stage.name)
            self.plan.folder(stage.name).sweep(tuple(receipt.digest for receipt in manifest.receipts))
            self._check_corpus(stage)
            if stage.scan_digest is not None:
                scan = read_scans(self.plan.folder(stage.name).url, stage.scan_digest)
                for line in self._stages[stage.name].review(manifest, scan):
                    self.console.note(line)
        return manifest

    def _sealed_input(self, stage: StageRecord, name: str) -> Manifest:
        manifest = self.plan.sealed(name)
        if manifest is None:
            raise PreflightError(
                f"{stage.name} reads {name}, which is not finished under {self.plan.output}: run it first, with "
                f"--stage {self.plan.stage(name).step} or without --stage"
            )
        return self._accept(self.plan.stage(name), manifest)

    def _check_corpus(self, stage: StageRecord) -> None:
        """Reports rows that the scan could not read. Every run checks them: receipts do not hold them."""
        if stage.corpus_digest is None:
            return
        assert isinstance(self.config, RunConfig)
        scan = read_scans(self.plan.folder(stage.name).url, stage.corpus_digest)
        if scan.bad_rows == 0:
            return
        text = f"rows of the corpus that could not be read: {scan.bad_rows:,} (first: {'; '.join(scan.examples)})"
        most = self.config.max_bad_rows.docs
        if scan.bad_rows > most:
            raise DataError(
                f"{text}: more than max_bad_rows {most:,}. Fix the corpus, or raise max_bad_rows.docs to leave their "
                f"docs out. They are in {storage.join(self.plan.output, REJECTS)}"
            )
        self.console.warn(f"{text}; their docs are left out (see {storage.join(self.plan.output, REJECTS)})")
