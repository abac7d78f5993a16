"""What `beamrank train` leaves of a training, and the section of a report about it: figure 1 of monoBERT's paper."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from beamrank.errors import PreflightError
from beamrank.evaluation.compare import short_names
from beamrank.evaluation.tables import COUNT, MEAN, Cell, Column, Table
from beamrank.report.blocks import Block, Paragraph, Picture, Section, TableBlock
from beamrank.report.pictures import figure
from beamrank.report.report import Report
from beamrank.storage import files as storage
from beamrank.storage.documents import checked_json, checked_record

FOLDER, RECORD, STEPS, DEV = "training", "training.json", "curve.csv", "dev.csv"
_PICTURE = "curves.png"
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
        """Adds a step."""
        self.steps.append(row)
        self._append(STEPS, row)

    def add_dev(self, row: DevRow) -> None:
        """Adds a measurement."""
        self.dev.append(row)
        self._append(DEV, row)

    def draw(self) -> None:
        """Draws curves.png."""
        from matplotlib.figure import Figure

        picture = Figure(figsize=(8, 7), layout="constrained")
        panels = picture.subplots(3 if self.dev else 2, 1, sharex=True)
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
        picture.savefig(self._folder / _PICTURE)

    def _write(self, name: str, header: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
        content = io.StringIO()
        csv.writer(content).writerows([header, *rows])
        storage.replace(str(self._folder / name), content.getvalue().encode())

    def _append(self, name: str, row: StepRow | DevRow) -> None:
        with open(self._folder / name, "a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow(row)


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
    """Reads the output of a training; PreflightError if it is damaged."""
    url = storage.join(folder, FOLDER, RECORD)
    record = checked_record(_RECORD, storage.read_bytes(url))
    if record is None:
        raise PreflightError(f"{url} is damaged: run the same `beamrank train` again, which writes it")
    records = storage.join(folder, FOLDER)
    return Training(storage.name(folder), record, read_steps(records), read_dev(records))


def read_steps(folder: str) -> list[StepRow]:
    """The steps in the folder of a training's records; PreflightError if they are damaged."""
    return _rows(storage.join(folder, STEPS), lambda step, loss, rate: StepRow(int(step), float(loss), float(rate)))


def read_dev(folder: str) -> list[DevRow]:
    """The measurements there; PreflightError if they are damaged."""
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


def training_curves(trainings: Sequence[Training], measure: str, inputs: str) -> bytes:
    """Figure 1 of Nogueira and Cho 2019: a measure against what was trained on, on a log axis."""
    from matplotlib.ticker import LogLocator, NullFormatter

    with figure() as (axes, content):
        for each in trainings:
            values = [row.value for row in each.dev]
            axes.plot(each.inputs(each.dev), values, marker=".", label=each.name)
        for given in dict.fromkeys(each.record.given for each in trainings if each.record.given is not None):
            axes.axhline(given, linestyle="--", color="tab:gray", linewidth=1, label=f"as given: {given:.4f}")
        axes.set_xscale("log")
        # The default labels are formulas.
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set(xlabel=inputs, ylabel=measure)
        axes.legend(fontsize="small")
    return content.getvalue()


def learning_curves(trainings: Sequence[Training]) -> bytes:
    """The loss of each training, smoothed, above its learning rate."""
    with figure(panels=2, height=5.9) as ((losses, rates), content):
        for each in trainings:
            steps = [row.step for row in each.steps]
            losses.plot(steps, smoothed(np.array([row.loss for row in each.steps])), label=each.name)
            rates.plot(steps, [row.learning_rate for row in each.steps])
        losses.set(ylabel="loss")
        rates.set(xlabel="step", ylabel="learning rate")
        losses.legend(fontsize="small")
    return content.getvalue()


def training_blocks(report: Report) -> Sequence[Block]:
    """Trainings beside each other: a table, a picture for each measure, the curves of losses and learning rates."""
    names = short_names([folder for folder in report.folders if is_training(folder)])
    trainings = [replace(read_training(folder), name=name) for folder, name in names.items()]
    if not trainings:
        return []
    pairs = "pairs" if {each.record.kind for each in trainings} == {"mono"} else "inputs"
    found: list[Block] = [TableBlock("Trainings", _table(trainings), exported=True)]
    for number, measure in enumerate(dict.fromkeys(each.record.measure for each in trainings if each.dev), 1):
        ours = [each for each in trainings if each.dev and each.record.measure == measure]
        caption = f"{measure} of the dev run against training {pairs}; dashed: the run before it is re-ranked"
        found.append(Picture(f"training-{number}", caption, training_curves(ours, str(measure), f"training {pairs}")))
    unmeasured = [each.name for each in trainings if not each.dev]
    if unmeasured:
        found.append(Paragraph(f"Without a measurement of a dev run: {', '.join(unmeasured)}."))
    learning = [each for each in trainings if each.steps]
    if learning:
        caption = "Loss (the mean over the last fiftieth of the steps) and learning rate of each step"
        found.append(Picture("learning", caption, learning_curves(learning)))
    return found


def _table(trainings: Sequence[Training]) -> Table:
    columns = [
        *(Column("training"), Column("model"), Column("steps", COUNT), Column("of", COUNT), Column("inputs", COUNT)),
        *(Column("measure"), Column("as given", MEAN), Column("best", MEAN), Column("after inputs", COUNT)),
        Column("last loss", MEAN),
    ]
    return Table(columns, [_row(each) for each in trainings])


def _row(training: Training) -> list[Cell]:
    record, best = training.record, training.best
    last = training.steps[-1] if training.steps else None
    return [
        training.name,
        record.kind,
        last.step if last else 0,
        record.steps,
        training.inputs([last])[0] if last else 0,
        record.measure,
        record.given,
        best.value if best else None,
        training.inputs([best])[0] if best else None,
        last.loss if last else None,
    ]


SECTION = Section(training_blocks, shows=is_training)
