"""Trainings beside each other: figure 1 of Nogueira and Cho 2019, and the learning curves."""

from collections.abc import Sequence

from beamrank.evaluation.tables import COUNT, MEAN, Cell, Column, Table
from beamrank.report.blocks import Block, Paragraph, Picture, TableBlock
from beamrank.report.pictures import learning_curves, training_curves
from beamrank.report.trainings import Training


def training_blocks(trainings: Sequence[Training]) -> Sequence[Block]:
    """A table, a picture for each measure, and the curves of losses and learning rates."""
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
