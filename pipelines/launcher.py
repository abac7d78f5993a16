"""Runs the stages of a plan: those shards of each that have no receipt, as one Beam job or several; then seals it."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import apache_beam as beam

from beamrank.commit.listing import needed_prefix
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest
from beamrank.commit.scan_reports import read_scans
from beamrank.commit.shards import ShardTask
from beamrank.commit.stage import StageRecord
from beamrank.config.run import JobConfig, RunConfig
from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.notes import counted
from beamrank.logs import log_context
from beamrank.storage import files as storage
from models.scoring.engine import inputs_done
from models.stages.core import open_stages
from pipelines.console.progress import Bar, ConsoleProgress, RunTimes, Scan, StageProgress, at_most_every, duration
from pipelines.corpus_join import CorpusJoin
from pipelines.plan.reuse import ReusableTokens, Reuse
from pipelines.runners import dataflow
from pipelines.runners.options import IN_MEMORY, Runner, new_pipeline
from pipelines.runners.watchdog import in_mid_run, run_watched
from transforms.shards import RunShards

_log = logging.getLogger(__name__)
_REMOTE_POLL_SECONDS = 5.0


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
        seconds: the time of each stage in this process.
        submitted: the id of each Dataflow job, or the file that the job was written to.
    """

    plan: Plan
    config: JobConfig
    console: ConsoleProgress
    runner: Runner = Runner.LOCAL
    beam_flags: Sequence[str] = ()
    wait: bool = True
    seconds: dict[str, float] = field(default_factory=dict, init=False)
    submitted: list[str] = field(default_factory=list, init=False)
    _accepted: set[str] = field(default_factory=set, init=False, repr=False)

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
        try:
            self._run_tasks(stage, tasks, digests)
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
        self.console.note(f"{stage.name}: {counted(len(tasks), 'shard')} done in {duration(self.seconds[stage.name])}")
        return self._accept(stage, manifest)

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
        if stage.work is None or not isinstance(self.config, RunConfig):
            return tasks
        scores = self._reuse.scores(stage)
        self._explain(stage, scores.refused)
        return scores.given_to(tasks, self.plan)

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

    def _run_tasks(self, stage: StageRecord, tasks: Sequence[ShardTask], digests: tuple[str, ...]) -> None:
        _log.info("stage started: %d of %d shards to do", len(tasks), len(digests))
        work = self._stages[stage.name]
        with self.console.bar(stage.name, partial(self._times.words, stage)) as bar:
            run_job = partial(self._run_job, stage, digests, bar)
            if work.does == "launcher":
                work.run_all(tasks, self.plan.shards, self.console.note)
            elif work.does == "join":
                assert isinstance(self.config, RunConfig)
                in_memory, tokens = self.runner in IN_MEMORY, self._reusable_tokens(stage)
                CorpusJoin(
                    *(self.plan, self.config, work, tasks, self.console.note, run_job),
                    *(needed_prefix(digests), in_memory, tokens),
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
        pipeline = self._new_pipeline(stage)
        _ = pipeline | "Tasks" >> beam.Create(tasks) | type(work).__name__ >> work
        first_done = partial(self._times.note_first, stage)
        progress = StageProgress(self.plan.folder(stage.name), digests, bar, scan, first_done, inputs_done)
        stall_seconds = self.config.stall_minutes * 60
        if self.runner is Runner.DATAFLOW:
            job = self._submit(pipeline, stage)
            if self.wait:
                dataflow.wait(job, progress, stall_seconds, self.console.warn)
            return
        # Listings of an object store cost money.
        interval = _REMOTE_POLL_SECONDS if storage.is_remote(self.plan.output) else 0.0
        run_watched(pipeline, at_most_every(interval, progress), stall_seconds)
        progress()

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
        """Checks the bad rows of a sealed stage's corpus, and removes leftovers of killed attempts."""
        if stage.name not in self._accepted:
            self._accepted.add(stage.name)
            self.plan.folder(stage.name).sweep(tuple(receipt.digest for receipt in manifest.receipts))
            self._check_corpus(stage)
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
        if scan.bad_rows > self.config.max_bad_rows:
            raise DataError(
                f"{text}: more than max_bad_rows {self.config.max_bad_rows}. Fix the corpus, or raise max_bad_rows to "
                "leave their docs out"
            )
        self.console.warn(f"{text}; their docs are left out")
