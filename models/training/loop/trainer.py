"""The training loop of mono, duo and tcp, in one process or several, from the beginning or from a state."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from beamrank.errors import BeamrankError
from beamrank.progress import Progress
from beamrank.storage import files as storage
from models.training.curves import Curves
from models.training.data.groups import Group, Position, Source
from models.training.dev import DevSet
from models.training.initial_model import save_checkpoint
from models.training.loop.distributed import Processes
from models.training.loop.losses import check_finite
from models.training.loop.optimizer import BertAdam, clip_gradients, learning_rate_at, without_denormals
from models.training.loop.publishing import checkpoint_hashes, publish_checkpoint
from models.training.loop.state import StateFolder, TrainState
from models.training.loop.tasks import Task
from models.training.report_section import FOLDER, GIVEN, DevRow, StepRow

_CANDIDATE = "candidate"


def candidate_folder(output: str) -> Path:
    """Where a model is written before it is published to the output folder."""
    return Path(output, FOLDER, _CANDIDATE)


@dataclass(frozen=True)
class Schedule:
    """The length and speed of a training.

    Attributes:
        steps: updates of the weights.
        groups_per_step: groups of a step, over all processes and micro-batches.
        accumulation: micro-batches of a step in each process.
        dev_steps: the dev run is measured each so many steps, and at the end.
        save_minutes: how often a state is written.
    """

    steps: int
    groups_per_step: int
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
    """One training. It writes its checkpoint to `output`, its curves and states to `output`/training."""

    def __init__(
        self,
        task: Task,
        source: Source,
        schedule: Schedule,
        start_folder: str,
        output: str,
        states: StateFolder,
        processes: Processes,
        progress: Progress,
        dev: DevSet | None = None,
    ) -> None:
        self._task = task
        self._model = task.model
        self._source = source
        self._schedule = schedule
        self._start_folder = start_folder
        self._output = output
        self._records = storage.join(output, FOLDER)
        self._states = states
        self._processes = processes
        self._progress = progress
        self._dev = dev
        self._optimizer = BertAdam(self._model.named_parameters(), schedule.weight_decay)

    @without_denormals()
    def train(self, state: TrainState, stop: Callable[[], bool]) -> TrainState:
        """Trains on from a state to the end, or until `stop` returns true; then it saves a state to resume from.

        Raises:
            DataError: the loss or its gradient is not finite.
            PreflightError: the records of an earlier call are damaged.
            BeamrankError: the device is out of memory.
        """
        if state.finished:
            return state
        if state.step:
            self._states.restore(self._model, self._optimizer)
            self._progress.note(f"resuming after step {state.step:,}")
        curves = self._curves(state) if self._first else None
        self._model.train()
        stream = self._source.stream(state.position)
        saved = started = time.monotonic() - state.seconds
        saved += state.seconds
        while state.step < self._schedule.steps:
            row, stopping, saving = self._step(stream, state, stop, saved)
            state.seconds = time.monotonic() - started
            if curves:
                curves.add_step(row)
                self._progress.update(state.step, self._schedule.steps, f"loss {row.loss:.4f}")
            # Each measurement also saves a state, so that state and published model belong to the same step.
            saving |= self._measure_if_due(state, curves)
            if state.step < self._schedule.steps and (stopping or saving):
                self._states.save(self._model, self._optimizer, state)
                self._publish(state)
                saved = time.monotonic()
                if stopping:
                    return state
        self._finish(state, curves)
        return state

    @property
    def _first(self) -> bool:
        return self._processes.first

    def _step(
        self, stream: Iterator[tuple[Group[Any], Position]], state: TrainState, stop: Callable[[], bool], saved: float
    ) -> tuple[StepRow, bool, bool]:
        """One update of the weights. All processes together decide whether to stop and whether to save a state."""
        schedule = self._schedule
        taken = list(islice(stream, schedule.groups_per_step))
        share = self._processes.share(schedule.groups_per_step)
        number = state.step * schedule.groups_per_step + share.start
        loss = self._accumulate([group for group, _ in taken[share]], number)
        self._processes.sum_gradients(self._optimizer.parameters)
        due = self._first and time.monotonic() - saved > 60 * schedule.save_minutes
        mean, stops, saves = self._processes.sum(torch.tensor([loss, stop(), due], dtype=torch.float64)).tolist()
        check_finite("loss", mean, state.step + 1)
        norm = clip_gradients(self._optimizer.parameters, schedule.clip_norm)
        check_finite("gradient", norm, state.step + 1)
        rate = learning_rate_at(state.step, schedule.learning_rate, schedule.warmup_steps, schedule.steps)
        self._optimizer.step(rate)
        state.step += 1
        state.position = taken[-1][1]
        return StepRow(state.step, mean, rate), stops > 0, saves > 0

    def _accumulate(self, groups: list[Group[Any]], number: int) -> float:
        """Computes the gradients of this process's groups, with `number` groups before them.

        Returns the loss, or this process's part of it.
        """
        size = len(groups) // self._schedule.accumulation
        whole = self._schedule.accumulation == self._processes.count == 1
        counts = None if whole else self._processes.sum(self._task.counts(groups, number))
        total = 0.0
        try:
            for start in range(0, len(groups), size):
                loss = self._task.loss(groups[start : start + size], number + start, counts)
                torch.autograd.backward(loss)
                total += loss.item()
        except torch.OutOfMemoryError as error:
            raise BeamrankError(
                f"out of memory on {self._processes.device} with {size} groups at once: raise "
                "optimizer.accumulation, or set optimizer.gradient_checkpointing or dtype bfloat16"
            ) from error
        return total

    def _curves(self, state: TrainState) -> Curves:
        if self._dev is None:
            return Curves(self._records, "", state.step)
        given = self._dev.first_stage()
        self._progress.note(f"{GIVEN}: dev {self._dev.measure} {given:.4f}")
        return Curves(self._records, self._dev.measure, state.step, given)

    def _measure_if_due(self, state: TrainState, curves: Curves | None) -> bool:
        """Measures the dev run and records the best model, if it is time; returns whether it was."""
        last = state.step == self._schedule.steps
        if self._dev is None or not (last or state.step % self._schedule.dev_steps == 0):
            return False
        if curves:
            folder = self._save_candidate()
            value = self._dev.measured(str(folder), self._processes.device, self._schedule.threads)
            curves.add_dev(DevRow(state.step, value))
            curves.draw()
            self._progress.note(f"step {state.step:,}: dev {self._dev.measure} {value:.4f}")
            if value > state.best_value:
                state.best_step, state.best_value = state.step, value
                state.published = checkpoint_hashes(folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)
        self._processes.wait()
        return True

    def _finish(self, state: TrainState, curves: Curves | None) -> None:
        if curves:
            if self._dev is None:
                state.published = checkpoint_hashes(self._save_candidate())
            curves.draw()
            for line in self._source.notes(state.position):
                self._progress.note(line)
        state.finished = True
        self._states.finish(state)
        self._publish(state)

    def _save_candidate(self) -> Path:
        folder = candidate_folder(self._output)
        folder.mkdir(parents=True, exist_ok=True)
        save_checkpoint(self._model, self._start_folder, str(folder), self._schedule.weights)
        return folder

    def _publish(self, state: TrainState) -> None:
        """Publishes the model that a saved state records."""
        if self._first:
            publish_checkpoint(candidate_folder(self._output), Path(self._output), state.published)
