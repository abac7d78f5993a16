"""Runs the stages of a plan as Dataflow jobs: submits them, and optionally waits for them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from beamrank.commit.stage import StageRecord
from beamrank.errors import BeamrankError, ConfigError
from pipelines.launcher import Launcher
from pipelines.runners.dataflow import job_options
from pipelines.runners.watchdog import explain, wait_with_stall

# Receipts lie in a bucket: listing them costs money and time.
_POLL_SECONDS = 10.0


@dataclass
class DataflowLauncher(Launcher):
    """Executes a plan on Dataflow. `submitted` holds each job's id, or the file that it was written to."""

    poll_seconds: float = _POLL_SECONDS
    submitted: list[str] = field(default_factory=list, init=False)

    def submit_stage(self, stage: StageRecord) -> None:
        """Submits the job of a stage and leaves it alone; the stage is sealed when the next one is started.

        A flex template must always give a job, so with `--template_location` a finished stage gets an empty one.

        Raises:
            PreflightError: an input is not sealed.
            BeamrankError: Dataflow did not take the job.
        """
        self._waits = False
        inputs = [self._sealed_input(stage, name) for name in stage.inputs]
        digests = self.plan.shard_digests(stage, inputs)
        before = len(self.submitted)
        if self._sealed(stage, digests) is None:
            self._do(stage, self._open_tasks(stage, digests, inputs), digests)
        if len(self.submitted) == before and self.template:
            pipeline = self._new_pipeline(stage)
            _ = pipeline | "NothingToDo" >> beam.Impulse()
            self._submit(pipeline, stage)

    @property
    def template(self) -> str | None:
        """The file that the job is written to instead of being started."""
        location: str | None = PipelineOptions(list(self.beam_flags)).view_as(GoogleCloudOptions).template_location
        return location

    def _new_pipeline(self, stage: StageRecord) -> beam.Pipeline:
        try:
            return beam.Pipeline(options=job_options(self.plan, stage, self.beam_flags))
        except ValueError as error:
            raise ConfigError(f"Beam refuses the flags of the Dataflow job of {stage.name}: {error}") from error

    def _watch(self, pipeline: beam.Pipeline, stage: StageRecord, progress: Callable[[], int]) -> None:
        result = self._submit(pipeline, stage)
        if self._waits:
            self._wait(result, progress)

    def _submit(self, pipeline: beam.Pipeline, stage: StageRecord) -> Any:
        options = pipeline.options.view_as(GoogleCloudOptions)
        try:
            result = pipeline.run()
        except Exception as error:
            raise BeamrankError(
                f"Dataflow did not take the job of {stage.name} ({type(error).__name__}: {error}). If a job of this "
                "name is still active, it is from an earlier attempt: wait for it, or cancel it"
            ) from error
        if not result.has_job:
            self.submitted.append(options.template_location)
            self.console.note(f"{stage.name}: wrote the job to {options.template_location}")
            return result
        self.submitted.append(result.job_id())
        self.console.note(
            f"{stage.name}: Dataflow job {result.job_id()}, https://console.cloud.google.com/dataflow/jobs/"
            f"{options.region}/{result.job_id()}?project={options.project}"
        )
        return result

    def _wait(self, result: Any, progress: Callable[[], int]) -> None:
        """Waits for a job; a stalled job is cancelled, because its workers cost money."""
        outcome: list[BaseException] = []
        thread = threading.Thread(target=_finish, args=(result, outcome), name="dataflow", daemon=True)
        thread.start()
        try:
            wait_with_stall(
                thread,
                progress,
                self.config.stall_minutes * 60,
                on_stall=lambda: self._cancel(result),
                poll_seconds=self.poll_seconds,
            )
        except BeamrankError:
            raise
        except BaseException:
            self.console.warn(
                f"the Dataflow job {result.job_id()} continues without this command, and what it commits is kept. To "
                f"cancel it: gcloud dataflow jobs cancel {result.job_id()} --region REGION"
            )
            raise
        if outcome:
            raise explain(outcome[0]) from outcome[0]

    def _cancel(self, result: Any) -> str:
        """Cancels a job; returns the words for it."""
        result.cancel()
        return f"the Dataflow job {result.job_id()} was cancelled"


def _finish(result: Any, outcome: list[BaseException]) -> None:
    try:
        result.wait_until_finish()
    except BaseException as error:
        outcome.append(error)
