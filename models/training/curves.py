"""The curves of a training: loss and learning rate of each step, and the dev measures, as CSV and as a picture."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from beamrank.storage import files as storage
from models.training.report_section import DEV, GIVEN, STEPS, DevRow, StepRow, read_dev, read_steps, smoothed

_PICTURE = "curves.png"


class Curves:
    """The rows of a training, in files that it appends to."""

    def __init__(self, folder: str, measure: str, step: int, given: float | None = None) -> None:
        """Continues after a step; drops later rows of an interrupted training. `given` is the candidates' measure."""
        self._folder = Path(folder)
        self._measure = measure
        self._folder.mkdir(parents=True, exist_ok=True)
        self.steps = [row for row in read_steps(folder) if row.step <= step]
        self.dev = [row for row in read_dev(folder) if row.step <= step]
        self._write(STEPS, StepRow._fields, self.steps)
        self._given = given
        self._write(DEV, ("step", measure), [*([] if given is None else [(GIVEN, given)]), *self.dev])

    def add_step(self, row: StepRow) -> None:
        """Adds a step to curve.csv."""
        self.steps.append(row)
        self._append(STEPS, row)

    def add_dev(self, row: DevRow) -> None:
        """Adds a measurement to dev.csv."""
        self.dev.append(row)
        self._append(DEV, row)

    def draw(self) -> None:
        """Draws curves.png."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 7), layout="constrained")
        panels = figure.subplots(3 if self.dev else 2, 1, sharex=True)
        numbers = [row.step for row in self.steps]
        losses = np.array([row.loss for row in self.steps])
        panels[0].plot(numbers, losses, color="0.8", linewidth=0.8)
        panels[0].plot(numbers, smoothed(losses), color="tab:blue")
        panels[0].set_ylabel("loss")
        panels[1].plot(numbers, [row.learning_rate for row in self.steps], color="tab:green")
        panels[1].set_ylabel("learning rate")
        if self.dev:
            panels[2].plot([row.step for row in self.dev], [row.value for row in self.dev], "o-", color="tab:orange")
            if self._given is not None:
                panels[2].axhline(self._given, linestyle="--", color="tab:gray", label=GIVEN)
                panels[2].legend()
            panels[2].set_ylabel(f"dev {self._measure}")
        panels[-1].set_xlabel("step")
        figure.savefig(self._folder / _PICTURE)

    def _write(self, name: str, header: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
        content = io.StringIO()
        csv.writer(content).writerows([header, *rows])
        storage.replace(str(self._folder / name), content.getvalue().encode())

    def _append(self, name: str, row: StepRow | DevRow) -> None:
        with open(self._folder / name, "a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow(row)
