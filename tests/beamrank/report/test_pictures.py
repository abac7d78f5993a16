"""The pictures of a report: drawn for any scores, lines in their order, names of any bytes."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from beamrank.report.pictures import (
    depth_curve,
    depth_pair_curves,
    difference_bars,
    learning_curves,
    pair_curves,
    score_histogram,
    training_curves,
)
from beamrank.report.curves import CurvePoint
from beamrank.report.stored.distributions import ScoreDistributions
from models.training.report_section import DevRow, StepRow, Training, TrainingRecord

_FLOATS = np.finfo(np.float32)
VALUES = {
    "one": [3.5],
    "zero": [0.0, -0.0],
    "same": [1e6] * 9,
    "same and huge": [1e9] * 3,
    "neighbours": [1e6, np.nextafter(np.float32(1e6), np.float32(2e6))],
    "largest": [-float(_FLOATS.max), float(_FLOATS.max)],
    "largest alone": [float(_FLOATS.max)],
    "smallest": [float(_FLOATS.smallest_subnormal), 0.0],
}


def _panels(svg: bytes) -> int:
    ElementTree.fromstring(svg)
    return len(re.findall(rb'id="axes_\d+"', svg))


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_pictures_are_drawn_for_any_values(values):
    scores = np.array(values, np.float32)
    assert _panels(score_histogram({None: scores, 1: scores[:1]}, "mono")) == 2
    assert _panels(difference_bars(values, "AP")) == 1
    points = [CurvePoint(2, "mono", k0, None, None, None, None, k0, k0, "AP", value) for k0, value in enumerate(values)]
    assert _panels(depth_curve(points, "AP")) == 1
    steps = [StepRow(step, value, value) for step, value in enumerate(values, 1)]
    dev = [DevRow(step, value) for step, value in enumerate(values, 1)]
    training = Training("t", TrainingRecord("mono", 9, 2, "AP", values[0]), steps, dev)
    assert _panels(learning_curves([training])) == 2
    assert _panels(training_curves([training], "AP", "pairs")) == 1


def test_scores_that_are_not_finite_are_left_out():
    found = ScoreDistributions()
    found.add(["a", "b", "c"], {}, {"mono": np.array([np.inf, np.nan, 2.0])})
    assert found.found()["mono"][None].tolist() == [2.0]


def test_histogram_has_a_panel_for_each_of_the_first_labels():
    scores = {label: np.arange(9, dtype=np.float32) for label in [None, *range(30)]}
    assert _panels(score_histogram(scores, "mono")) == 7


def test_names_that_are_not_utf8_are_drawn_escaped():
    name = b"run\xff<script>--\x01.trec".decode("utf-8", "surrogateescape")
    svg = score_histogram({None: np.ones(3, np.float32)}, name)
    ElementTree.fromstring(svg)
    assert b"\\udcff" in svg


def _points(figure: int, aggregation: str | None = None, k1: int | None = None) -> list[CurvePoint]:
    return [
        CurvePoint(figure, "duo", 2, k1, aggregation, None, None, asked, asked, "AP", 0.1 * asked) for asked in (1, 2)
    ]


def _lines(svg: bytes) -> list[str]:
    """The colors of three lines in the order in which they are drawn."""
    return re.findall(r"stroke: (#1f77b4|#ff7f0e|#2ca02c); stroke-width", svg.decode())[:3]


def test_configured_line_is_drawn_last():
    by_name = [point for name in ("sum", "binary", "min") for point in _points(3, name)]
    by_k1 = [point for k1 in (2, 3, 4) for point in _points(4, k1=k1)]
    first, *others = "#1f77b4", "#ff7f0e", "#2ca02c"
    assert _lines(pair_curves(by_name, "AP", None)) == [first, *others]
    assert _lines(pair_curves(by_name, "AP", "sum")) == [*others, first]
    assert _lines(depth_pair_curves(by_k1, "AP", 2)) == [*others, first]


def test_ticks_of_counts_are_whole_numbers():
    pictures = [
        depth_curve(_points(2), "AP"),
        pair_curves(_points(3, "sum"), "AP", None),
        depth_pair_curves(_points(4, k1=2), "AP", None),
        difference_bars([0.5], "AP"),
        learning_curves(
            [Training("t", TrainingRecord("mono", 9, 2), [StepRow(1, 0.1, 0.1), StepRow(2, 0.1, 0.1)], [])]
        ),
    ]
    for svg in pictures:
        axis = re.findall(r'id="matplotlib.axis_\d+"(.*?)id="matplotlib.axis_', svg.decode(), re.DOTALL)[-1]
        ticks = re.findall(r"<!-- ([\d.\u2212]+) -->", axis)
        assert ticks
        assert all(re.fullmatch("\u2212?\\d+", tick) for tick in ticks), ticks
