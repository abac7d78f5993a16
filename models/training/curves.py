"""The curves of a training: loss and learning rate of each step, and the dev measures, as CSV and as a picture."""

import csv
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np

from beamrank.storage import files as storage

_STEPS, _DEV, _PICTURE = "curve.csv", "dev.csv", "curves.png"
_SMOOTHED_SHARE = 50


class StepRow(NamedTuple):
    """One step."""

    step: int
    loss: float
    learning_rate: float


class DevRow(NamedTuple):
    """One measurement."""

    step: int
    value: float


class Curves:
    """The rows of a training, in files that it appends to."""

    def __init__(self, folder: str, measure: str, step: int) -> None:
        """Continues after a step; drops later rows of an interrupted training."""
        self._folder = Path(folder)
        self._measure = measure
        self._folder.mkdir(parents=True, exist_ok=True)
        self.steps = [StepRow(int(a), float(b), float(c)) for a, b, c in self._read(_STEPS) if int(a) <= step]
        self.dev = [DevRow(int(a), float(b)) for a, b in self._read(_DEV) if int(a) <= step]
        self._write(_STEPS, StepRow._fields, self.steps)
        self._write(_DEV, ("step", measure), self.dev)

    def add_step(self, row: StepRow) -> None:
        """Adds a step to curve.csv."""
        self.steps.append(row)
        self._append(_STEPS, row)

    def add_dev(self, row: DevRow) -> None:
        """Adds a measurement to dev.csv."""
        self.dev.append(row)
        self._append(_DEV, row)

    def draw(self) -> None:
        """Draws curves.png."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 7), layout="constrained")
        panels = figure.subplots(3 if self.dev else 2, 1, sharex=True)
        numbers = [row.step for row in self.steps]
        losses = np.array([row.loss for row in self.steps])
        panels[0].plot(numbers, losses, color="0.8", linewidth=0.8)
        panels[0].plot(numbers, _smoothed(losses), color="tab:blue")
        panels[0].set_ylabel("loss")
        panels[1].plot(numbers, [row.learning_rate for row in self.steps], color="tab:green")
        panels[1].set_ylabel("learning rate")
        if self.dev:
            panels[2].plot([row.step for row in self.dev], [row.value for row in self.dev], "o-", color="tab:orange")
            panels[2].set_ylabel(f"dev {self._measure}")
        panels[-1].set_xlabel("step")
        figure.savefig(self._folder / _PICTURE)

    def _read(self, name: str) -> list[list[str]]:
        path = self._folder / name
        if not path.exists():
            return []
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        # A killed training may have left half a row at the end, or an empty file.
        return [row for row in rows[1:] if len(row) == len(rows[0])]

    def _write(self, name: str, header: tuple[str, ...], rows: list[StepRow] | list[DevRow]) -> None:
        content = io.StringIO()
        csv.writer(content).writerows([header, *rows])
        storage.replace(str(self._folder / name), content.getvalue().encode())

    def _append(self, name: str, row: StepRow | DevRow) -> None:
        with open(self._folder / name, "a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow(row)


def _smoothed(losses: np.ndarray) -> np.ndarray:
    """The mean over the last fiftieth of the steps, at each step."""
    width = max(1, len(losses) // _SMOOTHED_SHARE)
    sums = np.cumsum(np.concatenate([[0.0], losses]))
    ends = np.arange(1, len(losses) + 1)
    starts = np.maximum(0, ends - width)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))
