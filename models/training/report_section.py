"""The files that `beamrank train` leaves of a training, and the section of a report about it:
figure 1 of monoBERT's paper.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamrank.commit.listing import TRAINING
from beamrank.errors import PreflightError
from beamrank.evaluation.compare import short_names
from beamrank.evaluation.tables import COUNT, MEAN, Cell, Column, Table
from beamrank.report.blocks import Block, Paragraph, Picture, Section, TableBlock
from beamrank.report.pictures import GRAY, MOST_LINES, figure, name_lines
from beamrank.report.report import Report
from beamrank.storage import files as storage
from beamrank.storage.documents import Document

RECORD, STEPS, DEV, PICTURE = "training.json", "curve.csv", "dev.csv", "curves.svg"
# The first column of the row of the candidates, which belong to no step.
GIVEN = "as given"
_SMOOTHED_SHARE = 50


class Row(NamedTuple):
    """A step with its loss and learning rate, or a measurement of the dev run."""

    step: int
    value: float
    learning_rate: float = 0.0


@dataclass(frozen=True)
class TrainingRecord(Document):
    """A training, as far as a report needs to know it.

    Attributes:
        kind: mono, duo or tcp.
        steps: how many it has.
        inputs_per_step: how many inputs of the model; an input of mono is a pair of a query and a
            doc.
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
        storage.replace(storage.join(output, TRAINING, RECORD), self.to_json())


@dataclass(frozen=True)
class Training:
    """A training, finished or not: the name of its folder, what it is, its steps and measurements
    so far.
    """

    name: str
    record: TrainingRecord
    steps: list[Row]
    dev: list[Row]

    def inputs(self, rows: Sequence[Row]) -> list[int]:
        """How many inputs were trained on at each of these rows."""
        return [row.step * self.record.inputs_per_step for row in rows]

    @property
    def best(self) -> Row | None:
        """The first of the best measurements, which is the model that was kept."""
        return max(self.dev, key=lambda row: row.value, default=None)


def begin_curves(output: str, record: TrainingRecord, step: int) -> None:
    """Writes the record; keeps the rows up to a step, and drops later ones of an interrupted
    training.
    """
    folder = Path(output, TRAINING)
    folder.mkdir(parents=True, exist_ok=True)
    record.write(output)
    kept = {
        name: [row for row in read_rows(folder, name) if row.step <= step] for name in (STEPS, DEV)
    }
    _write(folder, STEPS, [("step", "loss", "learning_rate")])
    _write(
        folder,
        DEV,
        [
            ("step", record.measure or ""),
            *([] if record.given is None else [(GIVEN, record.given)]),
        ],
    )
    for name, rows in kept.items():
        add_rows(output, name, rows)


def _write(folder: Path, name: str, rows: Sequence[tuple[object, ...]]) -> None:
    content = io.StringIO()
    csv.writer(content).writerows(rows)
    storage.replace(str(folder / name), content.getvalue().encode())


def add_rows(output: str, name: str, rows: Sequence[Row]) -> None:
    """Appends steps or measurements to the file of their curve."""
    with open(Path(output, TRAINING, name), "a", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(row if name == STEPS else row[:2] for row in rows)


def draw_curves(output: str) -> None:
    """Draws the curves of a training into its folder."""
    training = read_training(output)
    storage.replace(
        storage.join(output, TRAINING, PICTURE), learning_curves([training], dev=bool(training.dev))
    )


def is_training(folder: str) -> bool:
    """Whether a folder is the output of a training."""
    return storage.exists(storage.join(folder, TRAINING, RECORD))


def read_training(folder: str) -> Training:
    """Reads the output of a training; PreflightError if it is damaged."""
    url = storage.join(folder, TRAINING, RECORD)
    record = TrainingRecord.from_json(storage.read_bytes(url))
    if record is None:
        raise PreflightError(
            f"{url} is damaged: run the same `beamrank train` again, which writes it"
        )
    records = storage.join(folder, TRAINING)
    return Training(
        storage.name(folder), record, read_rows(records, STEPS), read_rows(records, DEV)
    )


def read_rows(folder: str | Path, name: str) -> list[Row]:
    """The rows of a curve's file, without its header; none if there is no file."""
    url = storage.join(str(folder), name)
    try:
        text = storage.read_bytes(url).decode()
        # A killed training may have left half a row at the end, whose last number can look whole,
        # or an empty file.
        rows = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))[1:]
        return [Row(int(row[0]), *map(float, row[1:])) for row in rows if row[:1] != [GIVEN]]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, IndexError, csv.Error) as error:
        raise PreflightError(
            f"{url} is damaged ({error}). Restore it, or remove it: the training goes on, and its "
            "curve begins there"
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
    with figure() as (axes, content):
        from matplotlib.ticker import LogLocator, NullFormatter

        for training in trainings:
            axes.plot(
                training.inputs(training.dev),
                [row.value for row in training.dev],
                marker=".",
                label=training.name,
            )
        for given in dict.fromkeys(
            training.record.given for training in trainings if training.record.given is not None
        ):
            axes.axhline(
                given, linestyle="--", color=GRAY, linewidth=1, label=f"as given: {given:.4f}"
            )
        axes.set_xscale("log")
        # The default labels are formulas.
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set(xlabel=inputs, ylabel=measure)
        name_lines(axes)
    return content.getvalue()


def learning_curves(trainings: Sequence[Training], *, dev: bool = False) -> bytes:
    """The loss of each training, smoothed, above its learning rate, and with `dev` its measure."""
    with figure(panels=2 + dev, height=5.9 + 2 * dev) as (axes, content):
        for training in trainings:
            steps = [row.step for row in training.steps]
            axes[0].plot(
                steps,
                smoothed(np.array([row.value for row in training.steps])),
                label=training.name,
            )
            axes[1].plot(steps, [row.learning_rate for row in training.steps])
            if dev:
                axes[2].plot(
                    [row.step for row in training.dev],
                    [row.value for row in training.dev],
                    marker=".",
                )
                axes[2].set(ylabel=f"dev {training.record.measure}")
        axes[0].set(ylabel="loss")
        axes[1].set(ylabel="learning rate")
        axes[-1].set(xlabel="step")
        name_lines(axes[0])
    return content.getvalue()


def training_blocks(report: Report) -> Sequence[Block]:
    """Trainings beside each other: a table, and of the first five a picture for each measure and
    the curves of losses and learning rates.
    """
    names = short_names([folder for folder in report.folders if is_training(folder)])
    trainings = [replace(read_training(folder), name=name) for folder, name in names.items()]
    if not trainings:
        return []
    pairs = "pairs" if {training.record.kind for training in trainings} == {"mono"} else "inputs"
    blocks: list[Block] = [TableBlock("Trainings", _table(trainings), exported=True)]
    for number, measure in enumerate(
        dict.fromkeys(training.record.measure for training in trainings if training.dev), 1
    ):
        ours = [
            training
            for training in trainings
            if training.dev and training.record.measure == measure
        ]
        caption = (
            f"{measure} of the dev run against training {pairs}; dashed: the run before it "
            "is re-ranked"
        )
        blocks.append(
            Picture(
                f"training-{number}",
                caption,
                training_curves(ours[:MOST_LINES], str(measure), f"training {pairs}"),
            )
        )
    unmeasured = [training.name for training in trainings if not training.dev]
    if unmeasured:
        blocks.append(Paragraph(f"Without a measurement of a dev run: {', '.join(unmeasured)}."))
    learning = [training for training in trainings if training.steps]
    if learning:
        caption = (
            "Loss (the mean over the last fiftieth of the steps) and learning rate of each step"
        )
        blocks.append(Picture("learning", caption, learning_curves(learning[:MOST_LINES])))
    return blocks


def _table(trainings: Sequence[Training]) -> Table:
    columns = [
        Column("training"),
        Column("model"),
        Column("steps", COUNT),
        Column("of", COUNT),
        Column("inputs", COUNT),
        Column("measure"),
        Column("as given", MEAN),
        Column("best", MEAN),
        Column("after inputs", COUNT),
        Column("last loss", MEAN),
    ]
    rows: list[list[Cell]] = []
    for training in trainings:
        record, best, last = training.record, training.best, training.steps[-1:]
        measured = [best.value, *training.inputs([best])] if best else [None, None]
        steps = (
            [last[0].step, record.steps, *training.inputs(last)] if last else [0, record.steps, 0]
        )
        loss = last[0].value if last else None
        rows.append(
            [training.name, record.kind, *steps, record.measure, record.given, *measured, loss]
        )
    return Table(columns, rows)


SECTION = Section(training_blocks, shows=is_training)
