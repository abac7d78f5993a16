"""The training loop: one for mono and duo, for one process and several, from the beginning or from a state."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import torch

from beamrank.errors import BeamrankError
from beamrank.storage import files as storage
from models.training.curves import Curves, DevRow, StepRow
from models.training.data.examples import Group, Position, Source
from models.training.dev import DevSet
from models.training.initial_model import publish_checkpoint, save_checkpoint
from models.training.loop.distributed import Processes
from models.training.loop.losses import check_finite
from models.training.loop.optimizer import BertAdam, clip_gradients, learning_rate_at, without_denormals
from models.training.loop.state import Progress, StateFolder
from models.training.loop.tasks import Task

RECORDS = "training"
_CANDIDATE = "candidate"


class Listener(Protocol):
    """Who is told how the training goes."""

    def note(self, text: str) -> None:
        """One line of talk."""

    def update(self, done: int, total: int, what: str) -> None:
        """How many steps are done."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast.

    Attributes:
        steps: changes of the weights.
        groups_a_step: over all processes and micro-batches.
        accumulation: micro-batches of a step in each process.
        dev_steps: a measurement on the dev run after so many steps, and at the end.
        save_minutes: how often a state is written.
    """

    steps: int
    groups_a_step: int
    learning_rate: float
    warmup_steps: int
    accumulation: int = 1
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    dev_steps: int = 1000
    save_minutes: float = 10.0
    weights: str = "float32"
    threads: int = 1


class Trainer:
    """One training. Its checkpoint goes to `output`, its curves and states to `output`/training."""

    def __init__(
        self,
        task: Task,
        source: Source,
        schedule: Schedule,
        start_folder: str,
        output: str,
        states: StateFolder,
        processes: Processes,
        listener: Listener,
        dev: DevSet | None = None,
    ) -> None:
        self._task = task
        self._model = task.model
        self._source = source
        self._schedule = schedule
        self._start_folder = start_folder
        self._output = output
        self._records = storage.join(output, RECORDS)
        self._states = states
        self._processes = processes
        self._listener = listener
        self._dev = dev
        self._optimizer = BertAdam(self._model.named_parameters(), schedule.weight_decay)

    @without_denormals()
    def train(self, stop: Callable[[], bool]) -> Progress:
        """Trains to the end, or until `stop` says so; then a state is left from which the next call goes on.

        Raises:
            DataError: the loss or its gradient is no longer finite.
            BeamrankError: the device's memory does not suffice.
        """
        progress = self._states.read()
        if progress.finished:
            return progress
        if progress.step:
            self._states.restore(self._model, self._optimizer)
            self._listener.note(f"going on after step {progress.step:,}")
        curves = Curves(self._records, self._dev.measure if self._dev else "", progress.step) if self._first else None
        self._model.train()
        stream = self._source.stream(progress.position)
        saved = started = time.monotonic() - progress.seconds
        saved += progress.seconds
        while progress.step < self._schedule.steps:
            row, stopping, saving = self._step(stream, progress, stop, saved)
            progress.seconds = time.monotonic() - started
            if curves:
                curves.add_step(row)
                self._listener.update(progress.step, self._schedule.steps, f"loss {row.loss:.4f}")
            # A state with each measurement, so that it and the published model tell of the same step.
            saving |= self._measure_if_due(progress, curves)
            if progress.step < self._schedule.steps and (stopping or saving):
                self._states.save(self._model, self._optimizer, progress)
                saved = time.monotonic()
                if stopping:
                    return progress
        self._finish(progress, curves)
        return progress

    @property
    def _first(self) -> bool:
        return self._processes.first

    def _step(
        self, stream: Iterator[tuple[Group, Position]], progress: Progress, stop: Callable[[], bool], saved: float
    ) -> tuple[StepRow, bool, bool]:
        """One change of the weights; whether to stop and whether to write a state is decided by all together."""
        schedule = self._schedule
        taken = list(islice(stream, schedule.groups_a_step))
        share = self._processes.share(schedule.groups_a_step)
        number = progress.step * schedule.groups_a_step + share.start
        loss = self._accumulate([group for group, _ in taken[share]], number)
        self._processes.average_gradients(self._optimizer.parameters)
        due = self._first and time.monotonic() - saved > 60 * schedule.save_minutes
        loss_sum, stops, saves = self._processes.sum(torch.tensor([loss, stop(), due], dtype=torch.float64)).tolist()
        mean = loss_sum / self._processes.count
        check_finite("loss", mean, progress.step + 1)
        norm = clip_gradients(self._optimizer.parameters, schedule.clip_norm)
        check_finite("gradient", norm, progress.step + 1)
        rate = learning_rate_at(progress.step, schedule.learning_rate, schedule.warmup_steps, schedule.steps)
        self._optimizer.step(rate)
        progress.step += 1
        progress.position = taken[-1][1]
        return StepRow(progress.step, mean, rate), stops > 0, saves > 0

    def _accumulate(self, groups: list[Group], number: int) -> float:
        """The mean loss over this process's groups, of which there were `number` before; leaves their gradients."""
        size = len(groups) // self._schedule.accumulation
        total = 0.0
        try:
            for start in range(0, len(groups), size):
                loss = self._task.loss(groups[start : start + size], number + start) / self._schedule.accumulation
                torch.autograd.backward(loss)
                total += loss.item()
        except torch.OutOfMemoryError as error:
            raise BeamrankError(
                f"there is not memory enough on {self._processes.device} for {size} groups at once: raise "
                "optimizer.accumulation, or set optimizer.gradient_checkpointing or dtype bfloat16"
            ) from error
        return total

    def _measure_if_due(self, progress: Progress, curves: Curves | None) -> bool:
        """Measures the dev run and publishes the best model; whether it was time to."""
        last = progress.step == self._schedule.steps
        if self._dev is None or not (last or progress.step % self._schedule.dev_steps == 0):
            return False
        if curves:
            folder = self._save_candidate()
            value = self._dev.measured(folder, self._processes.device, self._schedule.threads)
            curves.add_dev(DevRow(progress.step, value))
            curves.draw()
            self._listener.note(f"step {progress.step:,}: dev {self._dev.measure} {value:.4f}")
            if value > progress.best_value:
                progress.best_step, progress.best_value = progress.step, value
                publish_checkpoint(folder, self._output)
            shutil.rmtree(folder, ignore_errors=True)
        self._processes.wait()
        return True

    def _finish(self, progress: Progress, curves: Curves | None) -> None:
        if curves:
            if self._dev is None:
                publish_checkpoint(self._save_candidate(), self._output)
            curves.draw()
            for line in self._source.notes(progress.position):
                self._listener.note(line)
        progress.finished = True
        self._states.finish(progress)

    def _save_candidate(self) -> str:
        folder = storage.join(self._records, _CANDIDATE)
        os.makedirs(folder, exist_ok=True)
        save_checkpoint(self._model, self._start_folder, folder, self._schedule.weights)
        return folder
