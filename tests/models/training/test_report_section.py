"""The report of trainings: their table, figure 1 of the monoBERT paper, and what is missing."""

from xml.etree import ElementTree

import numpy as np
import pytest

from beamrank.errors import PreflightError
from beamrank.evaluation.tables import markdown
from beamrank.report.page import report_part, write_report
from beamrank.report.pictures import COLORS
from beamrank.report.report import Report
from models.training.report_section import (
    Row,
    Training,
    TrainingRecord,
    is_training,
    learning_curves,
    read_training,
    training_curves,
)
from tests.support.report_page import least_contrast, text_colors


def _save(folder, steps, dev, record):
    record.write(str(folder))
    curve = "".join(f"{step},{2 / step},{1e-5}\n" for step in range(1, steps + 1))
    (folder / "training/curve.csv").write_text(f"step,loss,learning_rate\n{curve}")
    if dev:
        rows = "".join(f"{step},{value}\n" for step, value in dev.items())
        (folder / "training/dev.csv").write_text(f"step,RR@10\n{rows}")
    return str(folder)


@pytest.fixture
def folders(tmp_path):
    return [
        _save(
            tmp_path / "whole",
            100,
            {50: 0.2, 100: 0.375},
            TrainingRecord("mono", 100, 32, "RR@10", 0.1667),
        ),
        _save(tmp_path / "short", 60, {50: 0.31}, TrainingRecord("mono", 100, 16, "RR@10", 0.1667)),
        _save(tmp_path / "blind", 10, {}, TrainingRecord("mono", 10, 32)),
    ]


def test_inputs_are_counted_over_all_steps(folders):
    whole, short, blind = map(read_training, folders)
    assert whole.inputs(whole.dev) == [1600, 3200]
    assert short.inputs(short.dev) == [800]
    assert (whole.best, blind.best) == (Row(100, 0.375), None)
    assert len(whole.steps) == 100


def test_trainings_are_in_one_table_and_one_picture(folders, tmp_path):
    part = report_part(Report("trainings", folders=folders))
    table, picture, unmeasured, learning = part.sections["Training"]
    lines = markdown(table.table).splitlines()
    assert (
        "| whole | mono | 100 | 100 | 3,200 | RR@10 | 0.1667 | 0.3750 | 3,200 | 0.0200 |" in lines
    )
    assert "| short | mono | 60 | 100 | 960 | RR@10 | 0.1667 | 0.3100 | 800 | 0.0333 |" in lines
    assert picture.caption.startswith("RR@10 of the dev run against training pairs")
    assert "blind" in unmeasured.text
    for block in (picture, learning):
        assert ElementTree.fromstring(block.svg).tag.endswith("svg")
        assert {COLORS[0], COLORS[1]} <= text_colors(block.svg)
        assert least_contrast(block.svg) >= 4.5
    write_report(str(tmp_path / "page"), [part])
    assert {"report.html", "training-1.svg", "learning.svg"} <= {
        path.name for path in (tmp_path / "page").iterdir()
    }


def test_half_a_row_of_a_killed_training_is_left_out(folders, tmp_path):
    for half in ("100", "100,0.", "100,1e-"):
        _save(tmp_path / "short", 60, {50: 0.31}, TrainingRecord("mono", 100, 16, "RR@10", 0.1667))
        with (tmp_path / "short/training/dev.csv").open("a") as file:
            file.write(half)
        assert read_training(folders[1]).dev == [Row(50, 0.31)]


def test_damaged_record_is_an_error_and_another_folder_is_not_a_training(folders, tmp_path):
    assert is_training(folders[0])
    assert not is_training(str(tmp_path))
    (tmp_path / "whole/training/training.json").write_text("{")
    with pytest.raises(PreflightError, match=r"training\.json.*`beamrank train`"):
        read_training(folders[0])


def test_curves_are_drawn_for_any_values():
    largest = float(np.finfo(np.float32).max)
    for values in ([0.0, -0.0], [1e9] * 3, [-largest, largest], [3.5]):
        steps = [Row(step, value, value) for step, value in enumerate(values, 1)]
        dev = [Row(step, value) for step, value in enumerate(values, 1)]
        training = Training("t", TrainingRecord("mono", 9, 2, "AP", values[0]), steps, dev)
        for svg in (learning_curves([training]), training_curves([training], "AP", "pairs")):
            assert ElementTree.fromstring(svg).tag.endswith("svg")
