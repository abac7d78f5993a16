"""The pictures of a report: drawn for any scores, lines in their order, names of any bytes."""

import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from beamrank.ranking.rankings import Ranking
from beamrank.ranking.variants import Variant
from beamrank.report.curves import CurvePoint
from beamrank.report.pictures import depth_curve, difference_bars, pair_curves, score_histogram
from beamrank.report.runs import ScoresByLabel
from tests.support.tiers import slow_but

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


_DRAW = """
import os
from beamrank.report.pictures import figure
with figure():
    pass
print(os.environ["MPLCONFIGDIR"])
os._exit(0)
"""


def test_pictures_leave_no_folder_where_there_is_no_home(tmp_path):
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
        "HOME": os.devnull,
        "TMPDIR": str(tmp_path),
    }
    environment.pop("MPLCONFIGDIR", None)
    done = subprocess.run(
        [sys.executable, "-c", _DRAW], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"{tmp_path}/")
    assert list(tmp_path.iterdir()) == []


def _panels(svg: bytes) -> int:
    ElementTree.fromstring(svg)
    return len(re.findall(rb'id="axes_\d+"', svg))


@pytest.mark.parametrize("values", slow_but(3, VALUES.values()), ids=VALUES)
def test_pictures_are_drawn_for_any_values(values):
    scores = np.array(values, np.float32)
    assert _panels(score_histogram({None: scores, 1: scores[:1]}, "mono")) == 2
    assert _panels(difference_bars(values, "AP")) == 1
    points = [
        CurvePoint(2, "mono", Variant(k0, None, None, None, None, k0, k0), "AP", value)
        for k0, value in enumerate(values)
    ]
    assert _panels(depth_curve(points)) == 1


def test_scores_are_kept_by_label_and_those_that_are_not_finite_left_out():
    found = ScoresByLabel()
    ranking = Ranking(
        ("a", "b", "c", "d", "tail"), np.array([np.inf, 1.0, np.nan, 2.0, 0.5]), scored=4
    )
    found.add("mono", ranking, {"b": 3, "x": 1})
    assert {label: scores.tolist() for label, scores in found.found()["mono"].items()} == {
        None: [2.0],
        3: [1.0],
    }


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
        CurvePoint(
            figure, "duo", Variant(2, k1, aggregation, None, None, asked, asked), "AP", 0.1 * asked
        )
        for asked in (1, 2)
    ]


def _lines(svg: bytes) -> list[str]:
    """The colors of three lines in the order in which they are drawn."""
    return re.findall(r"stroke: (#1f77b4|#ff7f0e|#2ca02c); stroke-width", svg.decode())[:3]


def test_configured_line_is_drawn_last():
    by_name = [point for name in ("sum", "binary", "min") for point in _points(3, name)]
    first, *others = "#1f77b4", "#ff7f0e", "#2ca02c"
    assert _lines(pair_curves(by_name, None)) == [first, *others]
    assert _lines(pair_curves(by_name, "sum")) == [*others, first]


def test_ticks_of_counts_are_whole_numbers():
    pictures = [
        depth_curve(_points(2)),
        pair_curves(_points(3, "sum"), None),
        difference_bars([0.5], "AP"),
    ]
    for svg in pictures:
        axis = re.findall(
            r'id="matplotlib.axis_\d+"(.*?)id="matplotlib.axis_', svg.decode(), re.DOTALL
        )[-1]
        ticks = re.findall(r"<!-- ([\d.\u2212]+) -->", axis)
        assert ticks
        assert all(re.fullmatch("\u2212?\\d+", tick) for tick in ticks), ticks


_SETTINGS = "text.usetex: True\nlines.linewidth: 40\nsavefig.dpi: 5\n"


@pytest.mark.parametrize("content", slow_but(1, [_SETTINGS.encode(), b"\xff\xfe", None]))
def test_settings_of_the_current_folder_change_no_picture(tmp_path, content):
    """They could start LaTeX, or a picture could wait for a pipe."""
    path = tmp_path / "matplotlibrc"
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    code = (
        "import os, sys; from beamrank.report.pictures import difference_bars; "
        "sys.stdout.buffer.write(difference_bars([-1.0, 2.0], 'AP')); "
        "assert os.path.exists('matplotlibrc')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == difference_bars([-1.0, 2.0], "AP")


def test_settings_that_a_caller_made_change_no_picture_and_stay():
    wanted = difference_bars([-1.0, 2.0], "AP")
    with matplotlib.rc_context({"text.usetex": True, "lines.linewidth": 40}):
        assert difference_bars([-1.0, 2.0], "AP") == wanted
        assert matplotlib.rcParams["lines.linewidth"] == 40
