"""What `beamrank train` leaves of a training: its curves, and what they are to be compared with."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import checked_json, checked_record

FOLDER, RECORD, STEPS, DEV = "training", "training.json", "curve.csv", "dev.csv"
# The first column of the row of the candidates, which belong to no step.
GIVEN = "as given"
_SMOOTHED_SHARE = 50
_Row = TypeVar("_Row")


class StepRow(NamedTuple):
    """One step."""

    step: int
    loss: float
    learning_rate: float


class DevRow(NamedTuple):
    """One measurement of the dev run."""

    step: int
    value: float


@dataclass(frozen=True)
class TrainingRecord:
    """A training, as far as a report needs to know it.

    Attributes:
        kind: mono, duo or tcp.
        steps: how many it has.
        inputs_per_step: how many inputs of the model; an input of mono is a pair of a query and a doc.
        measure: of the dev run; None without one.
        given: the measure of the dev run as it was given, before re-ranking.
    """

    kind: str
    steps: int
    inputs_per_step: int
    measure: str | None = None
    given: float | None = None

    def write(self, output: str) -> None:
        """Writes it to the output of the training."""
        storage.replace(storage.join(output, FOLDER, RECORD), checked_json(asdict(self)))


_RECORD = TypeAdapter(TrainingRecord)


@dataclass(frozen=True)
class Training:
    """A training, finished or not.

    Attributes:
        name: of its folder.
        record: what it is.
        steps: its steps so far.
        dev: the measurements so far.
    """

    name: str
    record: TrainingRecord
    steps: Sequence[StepRow]
    dev: Sequence[DevRow]

    def inputs(self, rows: Sequence[StepRow] | Sequence[DevRow]) -> list[int]:
        """How many inputs were trained on at each of these rows."""
        return [row.step * self.record.inputs_per_step for row in rows]

    @property
    def best(self) -> DevRow | None:
        """The first of the best measurements, which is the model that was kept."""
        return max(self.dev, key=lambda row: row.value, default=None)


def is_training(folder: str) -> bool:
    """Whether a folder is the output of a training."""
    return storage.exists(storage.join(folder, FOLDER, RECORD))


def read_training(folder: str) -> Training:
    """Reads the output of a training.

    Raises:
        PreflightError: its record is damaged.
    """
    url = storage.join(folder, FOLDER, RECORD)
    record = checked_record(_RECORD, storage.read_bytes(url))
    if record is None:
        raise PreflightError(f"{url} is damaged: run the same `beamrank train` again, which writes it")
    records = storage.join(folder, FOLDER)
    return Training(storage.name(folder), record, read_steps(records), read_dev(records))


def read_steps(folder: str) -> list[StepRow]:
    """The steps in the folder of a training's records.

    Raises:
        PreflightError: they are damaged.
    """
    return _rows(storage.join(folder, STEPS), lambda step, loss, rate: StepRow(int(step), float(loss), float(rate)))


def read_dev(folder: str) -> list[DevRow]:
    """The measurements in the folder of a training's records.

    Raises:
        PreflightError: they are damaged.
    """
    return _rows(storage.join(folder, DEV), lambda step, value: DevRow(int(step), float(value)))


def _rows(url: str, parse: Callable[..., _Row]) -> list[_Row]:
    """The rows of a curve's file, without its header; none if it does not exist."""
    try:
        content = storage.read_bytes(url)
    except FileNotFoundError:
        return []
    try:
        text = content.decode()
        # A killed training may have left half a row at the end, whose last number can look whole, or an empty file.
        rows = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))[1:]
        return [parse(*row) for row in rows if row[:1] != [GIVEN]]
    except (ValueError, TypeError, csv.Error) as error:
        raise PreflightError(
            f"{url} is damaged ({error}). Restore it, or remove it: the training goes on, and its curve begins there"
        ) from error


def smoothed(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over the last fiftieth of the steps, at each step."""
    width = max(1, len(losses) // _SMOOTHED_SHARE)
    sums = np.cumsum(np.concatenate([[0.0], losses]))
    ends = np.arange(1, len(losses) + 1)
    starts = np.maximum(0, ends - width)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))
