"""Runs the stages of a plan: those shards of each that have no receipt, as Beam jobs or here; then
seals it.

`beamrank run --only I/N` is one of N processes without an engine, such as the tasks of an array
job. It takes its shards through all stages, because a shard's next stage needs the parts of that
shard alone. Whoever finishes the last shard of all seals the stages and writes the runs.
"""

import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import apache_beam as beam

from beamrank.commit.listing import RUNS, tasks_prefix
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, Receipt, StageFolder
from beamrank.commit.scans import read_scans
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
from beamrank.storage.urls import hide_credentials
from models.stages.attempt import done_here, inputs_done, shard_inputs
from models.stages.core import open_stages
from pipelines.console.progress import (
    ConsoleProgress,
    Scan,
    StageProgress,
    at_most_every,
    duration,
)
from pipelines.passes import Jobs
from pipelines.plan.reuse import Reuse
from pipelines.runners import dataflow
from pipelines.runners.options import IN_MEMORY, Runner, Share, new_pipeline, shuffle_room
from pipelines.runners.watchdog import in_mid_run, run_watched, watch
from pipelines.runs.run_file import ShardWriter
from pipelines.runs.run_files import warn_of_candidates
from transforms.scatter import transform_of
from transforms.shards import SpreadTasks
from transforms.tasks import TaskFile

_log = logging.getLogger(__name__)
RETRIES = 2
_REMOTE_POLL_SECONDS = 5.0


@contextmanager
def resumable() -> Iterator[None]:
    """Adds to a storage error that the run can be resumed."""
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
    """Executes a plan with one runner, or a share of its shards in this process.

    Attributes:
        wait: whether to wait for the jobs; only Dataflow's go on without this process.
        retries: how often open shards are started again, in all, after a worker or a job server
            died.
        share: without a runner, the shards that are done here.
        max_inferences: the most that the stages may make, after reuse.
        on_receipt: takes the receipt of each shard of a job as soon as it is done, those of earlier
            jobs too; an error that it raises ends the job.
        submitted: the id of each Dataflow job, or the file that the job was written to.
    """

    plan: Plan
    config: JobConfig
    console: ConsoleProgress
    runner: Runner = Runner.LOCAL
    beam_flags: Sequence[str] = ()
    wait: bool = True
    retries: int = RETRIES
    share: Share | None = None
    max_inferences: int | None = None
    on_receipt: Callable[[Receipt], None] | None = None
    submitted: list[str] = field(default_factory=list, init=False)
    _accepted: set[str] = field(default_factory=set, init=False, repr=False)
    _done: set[int] = field(default_factory=set, init=False, repr=False)
    _of_share: dict[str, Mapping[int, Receipt]] = field(
        default_factory=dict, init=False, repr=False
    )
    _inferences: int = field(default=0, init=False, repr=False)
    _attempt: int = field(default=1, init=False, repr=False)
    _started: bool = field(default=False, init=False, repr=False)

    def run(self, stages: Sequence[StageRecord] | None = None) -> None:
        """Runs these stages in order, by default all of the plan: see `run_stage`."""
        chosen = self.plan.stages if stages is None else stages
        for stage in chosen:
            needed = stage.waits_for
            if self.share is not None and needed and self.plan.seal(needed) is None:
                self.console.note(
                    f"{stage.name} needs all shards of {needed}: run --only again when all are done"
                )
                return
            with log_context(stage.name):
                self.run_stage(stage)
        if chosen and self.template and not self.submitted:
            # A flex template must always make a job.
            pipeline = self._new_pipeline(chosen[-1])
            _ = pipeline | "NothingToDo" >> beam.Impulse()
            self._submit(pipeline, chosen[-1])

    def run_stage(self, stage: StageRecord) -> Manifest | None:
        """Runs the shards of a stage that have no receipt, and seals it where all shards are this
        process's.

        Returns:
            The sealed stage; None for a share, or where its job was submitted and is not waited
            for.

        Raises:
            PreflightError: an input is not sealed.
            BeamrankError: the job failed; its finished shards are kept.
        """
        inputs = [self._input(stage, name) for name in stage.inputs]
        digests = self._digests(stage, inputs)
        folder, start = self.plan.folder(stage.name), time.monotonic()
        sealed = self._seal(stage, digests)
        if sealed is not None:
            self.console.note(f"{stage.name}: all {len(digests)} shards are already complete")
            return self._accept(stage, sealed)
        tasks = self._open_tasks(stage, digests, inputs)
        count = len(tasks)
        try:
            while tasks:
                with self._retrying(stage.name, tasks, lambda: folder.discard_broken(digests)):
                    self._run_tasks(stage, tasks, digests)
                    tasks = []
        except (BeamrankError, OSError) as error:
            # Receipts decide whether the stage is finished: a different run into this folder may
            # have finished it.
            if self._seal(stage, digests) is None:
                self._check_corpus(stage)
                if self._started and isinstance(error, BeamrankError):
                    # Other exit codes mean that nothing has started.
                    raise in_mid_run(type(error), str(error)) from error
                raise
        if not self.wait:
            return None
        self._started = True
        manifest = self._seal(stage, digests)
        of = "" if self.share is None else f" of --only {self.share}"
        if manifest is None:
            found = self._of_share[stage.name] = folder.receipts(digests)
            if self.share is None or len(found) < len(digests):
                left = counted(len(digests) - len(found), "shard")
                raise TemporaryError(
                    f"{stage.name} ended with {left}{of} missing: run the same command again to "
                    "complete it"
                )
        self.console.note(
            f"{stage.name}: {counted(count, 'shard')}{of} done in "
            f"{duration(time.monotonic() - start)}"
        )
        if manifest is not None:
            return self._accept(stage, manifest)
        folder.sweep(tuple(digests.values()))
        if stage.corpus_digest is not None:
            # Before anything is scored, and not once more by `finish_share`.
            self._check_corpus(stage)
            self._accepted.add(stage.name)
        return None

    def finish_share(self) -> bool:
        """Seals the stages if every shard of all shares is done; else notes what is left."""
        sealed = self.plan.manifests(StageFolder.seal)
        stage = next((each for each in self.plan.stages if each.name not in sealed), None)
        if stage is None:
            for name, manifest in sealed.items():
                self._accept(self.plan.stage(name), manifest)
            return True
        digests = self.plan.shard_digests(stage, [sealed[name] for name in stage.inputs])
        left = len(digests) - len(self.plan.folder(stage.name).done(digests))
        self.console.note(
            f"--only {self.share} is done. Left to others: {left:,} of "
            f"{counted(len(digests), 'shard')} in {stage.name} and after it; who finishes the "
            "last shard writes the runs"
        )
        return False

    def write_parts(self, write: ShardWriter, manifests: Mapping[str, Manifest]) -> None:
        """Workers write the parts of runs from sealed stages."""
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
                    self._run_job(record, last, digests, lambda _: progress, tasks, write, None)
                    tasks = []
        last.sweep(digests)

    def open_tasks(self, stage: StageRecord) -> list[ShardTask]:
        """The tasks that `run_stage` would run."""
        inputs = [self._input(stage, name) for name in stage.inputs]
        return self._open_tasks(stage, self._digests(stage, inputs), inputs)

    def _input(self, stage: StageRecord, name: str) -> Sequence[Receipt] | Mapping[int, Receipt]:
        """The receipts of a stage that this one reads, by shard."""
        if self.share is not None:
            return self._of_share[name]
        manifest = self.plan.seal(name)
        if manifest is None:
            raise PreflightError(
                f"{stage.name} reads {name}, which is not finished under {self.plan.output}: run "
                f"it first, with --stage {self.plan.stage(name).step} or without --stage"
            )
        return self._accept(self.plan.stage(name), manifest).receipts

    def _digests(self, stage: StageRecord, inputs: Sequence[Any]) -> dict[int, str]:
        """The digests of the shards that are this process's, in the order of the shards."""
        shards, of_all = range(len(self.plan.shards)), self.plan.digest_of_all(stage)
        own = shards if self.share is None else self.share.of(len(shards))
        return {
            shard: self.plan.shard_digest(stage, shard, [each[shard] for each in inputs], of_all)
            for shard in own
        }

    def _seal(self, stage: StageRecord, digests: Mapping[int, str]) -> Manifest | None:
        if self.share is not None:
            return None
        return self.plan.folder(stage.name).seal(stage.name, tuple(digests.values()))

    def _open_tasks(
        self, stage: StageRecord, digests: Mapping[int, str], inputs: Sequence[Any]
    ) -> list[ShardTask]:
        """The shards that have no receipt yet, with the parts of earlier runs that hold their
        scores.
        """
        done = self.plan.folder(stage.name).discard_broken(digests)
        if done:
            self.console.note(
                f"{stage.name}: resuming, {len(done)} of {len(digests)} shards are complete"
            )
        left = [shard for shard in digests if shard not in done]
        of_all = self.plan.digest_of_all(stage) if left else ""
        tasks = [
            self.plan.task(stage, shard, [each[shard] for each in inputs], of_all) for shard in left
        ]
        if not stage.input_docs or not tasks:
            return tasks
        scores = self._reuse.scores(stage)
        for reason in scores.refused:
            self.console.note(f"{stage.name}: not reused: {reason}")
        tasks = scores.given_to(tasks)
        if self.max_inferences is not None:
            self._check_inferences(stage, tasks, self.max_inferences)
        return tasks

    def _check_inferences(self, stage: StageRecord, tasks: Sequence[ShardTask], most: int) -> None:
        """Counts what is not reused, and raises BeamrankError where it is too much."""
        work = self._stages[stage.name]
        self._inferences += sum(work.count(shard_inputs(work, task)) for task in tasks)
        if self._inferences > most:
            raise BeamrankError(
                f"{stage.name} was not started: after reuse the run makes {self._inferences:,} "
                f"inferences up to it, and --max-inferences allows {most:,}. Raise the limit, or "
                "lower k"
            )

    @cached_property
    def _reuse(self) -> Reuse:
        assert isinstance(self.config, RunConfig)
        return Reuse(self.plan, self.config.reuse)

    @contextmanager
    def _retrying(
        self, stage: str, tasks: list[ShardTask], find_done: Callable[[], Container[int]]
    ) -> Iterator[None]:
        """Where a worker or a job server dies, leaves the tasks that are open: so often in all as
        there are retries.
        """
        try:
            yield
        except WorkerLostError as error:
            attempts = self.retries + 1
            if self._attempt == attempts:
                raise BeamrankError(
                    f"{error}; that was attempt {attempts} of {attempts} (--retries "
                    f"{self.retries}). Finished shards are kept: run the same command again to "
                    "resume"
                ) from error
            self._attempt += 1
            Retry(self.plan.digest, stage, hide_credentials(str(error)), time.time()).publish(
                self.plan.output
            )
            done = find_done()
            tasks[:] = [task for task in tasks if task.shard not in done]
            self.console.warn(
                f"retrying: {error}; {len(tasks)} of {counted(len(self.plan.shards), 'shard')} "
                f"are open; attempt {self._attempt} of {attempts}"
            )

    def _run_tasks(
        self, stage: StageRecord, tasks: Sequence[ShardTask], digests: Mapping[int, str]
    ) -> None:
        _log.info("stage started: %d of %d shards to do", len(tasks), len(digests))
        work, in_order = self._stages[stage.name], tuple(digests.values())
        folder, room_bytes = (
            self.plan.folder(stage.name),
            shuffle_room(self.runner, self.beam_flags),
        )
        self._done = digests.keys() - {task.shard for task in tasks}

        def read_receipt(shard: int) -> Receipt | None:
            return folder.receipt(shard, digests[shard])

        told = set[int]()

        def look() -> tuple[set[int], object]:
            done, files = (
                folder.progress(in_order) if self.share is None else (self._done.copy(), None)
            )
            if self.on_receipt is not None:
                for shard in sorted(done - told):
                    told.add(shard)
                    if (receipt := folder.receipt(shard, digests[shard])) is not None:
                        self.on_receipt(receipt)
            return done, files

        with self.console.bar(stage.name) as bar:
            show = partial(StageProgress, look, len(digests), bar, read_receipt, inputs_done)
            run_job = partial(self._run_job, stage, folder, in_order, show)
            if work.does == "shards":
                run_job(tasks, work.decided(self.plan) if stage.waits_for else work, None)
                return
            list_needed = self.wait and self.runner not in IN_MEMORY
            others = self._made_beside(stage) if work.does == "join" else {}
            tasks = [
                replace(task, beside=tuple((each, of[task.shard]) for each, of in others.values()))
                for task in tasks
            ]
            Jobs(run_job, room_bytes, list_needed, bar).scatter(
                *(work, self.plan, self.config, tasks, in_order),
                [self._stages[name] for name in others],
            )

    def _made_beside(self, stage: StageRecord) -> dict[str, tuple[StageFolder, dict[int, str]]]:
        """The later stages that the scan of the corpus for one makes too, with the digests of their
        shards; none where it is not waited for.
        """
        place = self.plan.stages.index(stage) + 1 if self.wait else len(self.plan.stages)
        others = {}
        for each in self.plan.stages[place:]:
            if each.corpus_digest is not None:
                digests = self._digests(each, [self._input(each, name) for name in each.inputs])
                folder = self.plan.folder(each.name)
                if len(folder.discard_broken(digests)) < len(digests):
                    others[each.name] = folder, digests
        return others

    def _run_job(
        self,
        stage: StageRecord,
        folder: StageFolder,
        digests: tuple[str, ...],
        show: Callable[[Scan | None], Callable[[], object]],
        tasks: Sequence[ShardTask],
        work: Any,
        scan: Scan | None,
    ) -> None:
        """Does some tasks: here those of a share, else as one Beam job; Dataflow's is left to it
        unless we wait.
        """
        progress, stall_seconds = show(scan), self.config.stall_minutes * 60
        if self.share is not None:
            here = partial(self._done.update, done_here(work, tasks))
            watch(here, progress, stall_seconds)
            return
        file = TaskFile.write(self.plan, folder.url, tasks_prefix(digests), tasks)
        pipeline = self._new_pipeline(stage)
        _ = pipeline | SpreadTasks(file) | transform_of(work, file)
        if self.runner is Runner.DATAFLOW:
            job = self._submit(pipeline, stage)
            if self.wait:
                dataflow.wait(job, progress, stall_seconds, self.console.warn)
            return
        # At an object store listings cost money.
        pause = _REMOTE_POLL_SECONDS if storage.is_remote(self.plan.output) else 0.0
        run_watched(pipeline, at_most_every(pause, progress), stall_seconds)
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
        return (
            dataflow.template_location(self.beam_flags) if self.runner is Runner.DATAFLOW else None
        )

    @cached_property
    def _stages(self) -> dict[str, Any]:
        return {stage.name: stage for stage in open_stages(self.plan.stages)}

    def _accept(self, stage: StageRecord, manifest: Manifest) -> Manifest:
        """Checks what a sealed stage read, tells of it, and removes leftovers of killed
        attempts.
        """
        if stage.name not in self._accepted:
            self._accepted.add(stage.name)
            self.plan.folder(stage.name).sweep(manifest.shard_digests)
            self._check_corpus(stage)
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
        if scan.bad_rows == 0:
            return
        text = (
            f"rows of the corpus that could not be read: {scan.bad_rows:,} (first: "
            f"{'; '.join(scan.examples)})"
        )
        most, rejects = self.config.max_bad_rows.docs, storage.join(self.plan.output, REJECTS)
        if scan.bad_rows > most:
            raise DataError(
                f"{text}: more than max_bad_rows {most:,}. Fix the corpus, or raise "
                f"max_bad_rows.docs to leave their docs out. They are in {rejects}"
            )
        self.console.warn(f"{text}; their docs are left out (see {rejects})")
