"""The pictures of a report: drawn for any scores, lines in their order, names of any bytes."""

import itertools
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from beamrank.ranking.aggregation import METHODS
from beamrank.ranking.rankings import Ranking
from beamrank.ranking.variants import Variant
from beamrank.report import pictures
from beamrank.report.curves import CurvePoint
from beamrank.report.pictures import (
    COLORS,
    GRAY,
    curve_picture,
    difference_bars,
    figure,
    name_lines,
    score_histogram,
    spread,
)
from beamrank.report.runs import ScoresByLabel
from tests.support.report_page import least_contrast, text_colors, texts_of
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


STAGES = {"first": COLORS[0], "mono": COLORS[1], "duo": COLORS[2]}
RUNS = {"bm25": COLORS[0], "duo-sum": COLORS[2]}
LONG = "a_run_whose_name_is_longer_than_the_others"

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


def _bars(values, colors=RUNS, anchors=()):
    """Of topics q0, q1, ...; the anchors are of some of them."""
    differences = {f"q{number}": value for number, value in enumerate(values)}
    return difference_bars(differences, "AP", colors, {query_id: query_id for query_id in anchors})


@pytest.mark.parametrize("values", slow_but(3, VALUES.values()), ids=VALUES)
def test_pictures_are_drawn_for_any_values(values):
    scores = np.array(values, np.float32)
    assert _panels(score_histogram({None: scores, 1: scores[:1]}, "mono", COLORS[0])) == 2
    assert _panels(_bars(values)[0]) == 1
    points = [
        CurvePoint(
            2, "mono" if k0 else "first", Variant(k0, None, None, None, None, k0, k0), "AP", value
        )
        for k0, value in enumerate(values)
    ]
    assert _panels(curve_picture(points, None, "mono", {**STAGES, "first": COLORS[0]})) == 1


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
    assert _panels(score_histogram(scores, "mono", COLORS[0])) == 7


def test_names_that_are_not_utf8_are_drawn_escaped():
    name = b"run\xff<script>--\x01.trec".decode("utf-8", "surrogateescape")
    svg = score_histogram({None: np.ones(3, np.float32)}, name, COLORS[0])
    ElementTree.fromstring(svg)
    assert b"\\udcff" in svg


def _pairs(ends, opponents=()):
    """Curves of duo from depth 0 to these values, by aggregation; then those of `sample`."""
    series: list[Any] = [(name, None, None, value) for name, value in ends.items()]
    series += [
        ("sample", count, trial, 0.01) for count in opponents for trial in (0, 1, "mean", "sd")
    ]
    return [
        CurvePoint(
            3,
            "duo" if k1 else "mono",
            Variant(8, k1, name, count, trial, k1 * (k1 - 1), k1 * (k1 - 1)),
            "AP",
            value if k1 else 0.2,
        )
        for k1 in (0, 3, 4)
        for name, count, trial, value in series
    ]


@pytest.fixture
def drawn(monkeypatch):
    """The axes of each picture that is drawn."""
    axes = []
    original = pictures.figure

    @contextmanager
    def recorded(*args, **keys):
        with original(*args, **keys) as (panels, content):
            axes.append(panels)
            yield panels, content

    monkeypatch.setattr(pictures, "figure", recorded)
    return axes


def _names(axes):
    return [text.get_text() for text in axes.texts]


def test_curves_have_the_configured_aggregation_and_the_best_others(drawn):
    ends = {name: place / 10 for place, name in enumerate(METHODS) if name != "sample"}
    worst, *_, best = ends
    curve_picture(_pairs(ends), worst, "duo-worst", STAGES)
    names = _names(drawn[-1])
    assert len(names) == 6
    assert {"mono", "duo-worst", best} <= {*names}
    assert worst not in names
    assert names == [name for _, name in sorted(zip(_heights(drawn[-1]), names, strict=True))]
    curve_picture(_pairs(ends, opponents=(2, 4)), worst, "duo-worst", STAGES)
    assert {"mono", "duo-worst", "sample, m = 2", "sample, m = 4", best} <= {*_names(drawn[-1])}


def _heights(axes):
    return [text.xyann[1] for text in axes.texts]


def test_configured_line_is_above_the_others_in_the_color_of_its_stage(drawn):
    curve_picture(_pairs({"sum": 0.1, "min": 0.2}), "sum", "duo-sum", STAGES)
    lines = {line.get_label(): line for line in drawn[-1].lines}
    assert lines["duo-sum"].get_color() == STAGES["duo"]
    assert lines["mono"].get_color() == STAGES["mono"]
    assert lines["min"].get_color() not in COLORS
    assert lines["duo-sum"].zorder > max(lines["min"].zorder, lines["mono"].zorder)


def _assert_apart(axes):
    boxes = texts_of(axes)
    assert len(boxes) > 5
    over = [
        (one, other)
        for (one, box), (other, second) in itertools.combinations(boxes, 2)
        if box.overlaps(second)
    ]
    assert over == []
    page = np.atleast_1d(axes)[0].figure.bbox
    outside = [text for text, box in boxes if not (box.x0 >= 0 and box.x1 <= page.x1)]
    assert outside == []


@pytest.mark.parametrize(
    "ends",
    [
        dict.fromkeys(METHODS, 0.2),
        dict.fromkeys(METHODS, 1.0),
        {name: 0.2 + place * 1e-4 for place, name in enumerate(METHODS)},
        {name: [0.2, 0.9][place % 2] for place, name in enumerate(METHODS)},
    ],
    ids=["equal", "above", "near", "two groups"],
)
def test_labels_of_curves_do_not_overlap(drawn, ends):
    del ends["sample"]
    curve_picture(_pairs(ends, opponents=(2, 4)), "sum", LONG, STAGES)
    _assert_apart(drawn[-1])
    assert len(_names(drawn[-1])) == 6


def test_labels_of_bars_and_histograms_do_not_overlap(drawn):
    _bars(np.linspace(-1, 1, 90), {f"{LONG}_1": COLORS[0], f"{LONG}_2": COLORS[1]})
    scores = {label: np.arange(-9, 9, dtype=np.float32) for label in [None, *range(30)]}
    score_histogram(scores, "mono", COLORS[0])
    for axes in drawn:
        _assert_apart(axes)


def test_names_are_beside_the_ends_of_lines_on_any_axis():
    with figure(panels=2) as (panels, _):
        for axes in panels:
            axes.plot([1, 10, 100], [0.1, 0.2, 0.9], label="high")
            axes.plot([1, 10], [0.5, 0.1], label="low")
            axes.axhline(0.5, label="middle")
            axes.set_xscale("log")
            name_lines(axes)
    for axes in panels:
        assert _names(axes) == ["low", "middle", "high"]
        for text, value in zip(axes.texts, (0.1, 0.5, 0.9), strict=True):
            shown = axes.transAxes.transform((0, text.xyann[1]))[1]
            assert axes.transData.inverted().transform((1, shown))[1] == pytest.approx(value)


@pytest.mark.parametrize(
    ("places", "moved"),
    [
        ([], []),
        ([0.5], [0.5]),
        ([0.1, 0.5], [0.1, 0.5]),
        ([0.5, 0.5], [0.45, 0.55]),
        ([0.0, 0.0, 0.05], [0.0, 0.1, 0.2]),
        ([1.0, 1.0], [0.9, 1.0]),
    ],
)
def test_places_are_spread_no_further_than_needed(places, moved):
    assert spread(places, 0.1).tolist() == pytest.approx(moved)


def test_text_of_pictures_is_readable_on_the_light_and_the_dark_page():
    """The dark page inverts pictures."""
    points = _pairs({"sum": 0.1, "min": 0.3})
    svgs = [
        curve_picture(points, "sum", "duo-sum", dict(zip(STAGES, colors, strict=True)))
        for colors in (COLORS[:3], COLORS[1:4], COLORS[3:])
    ]
    svgs += [
        _bars([-1.0, 2.0])[0],
        score_histogram({None: np.ones(3, np.float32)}, "mono", COLORS[0]),
    ]
    assert {*COLORS, GRAY, "#000000"} == {*itertools.chain(*map(text_colors, svgs))}
    assert min(map(least_contrast, svgs)) >= 4.5


def test_links_of_bars_lie_on_their_bars():
    svg, links = _bars([-0.5, 0.0, 1.0, 2.0], anchors=["q0", "q3"])
    assert [link.anchor for link in links] == ["q0", "q3"]
    assert [link.title for link in links] == ["q0: -0.5000", "q3: +2.0000"]
    width, first, last = (
        float(re.findall(rb'<svg [^>]*width="([\d.]+)pt', svg)[0]),
        *(
            float(x)
            for x in re.findall(rb'id="patch_2">\s*<path d="M ([\d.]+).*?\nL ([\d.]+)', svg)[0]
        ),
    )
    assert links[0].left * width == pytest.approx(first, abs=0.01)
    assert (links[1].left + links[1].width) * width == pytest.approx(last, abs=0.01)
    assert links[0].width == pytest.approx(links[1].width)
    assert links[0].width * width == pytest.approx((last - first) / 4, abs=0.01)


def test_links_of_thousands_of_bars_can_be_told_apart():
    anchors = [f"q{number}" for number in [*range(10), *range(4980, 5000)]]
    svg, links = _bars(np.linspace(-1, 1, 5000), anchors=anchors)
    assert [link.anchor for link in links] == anchors
    assert {round(link.width, 6) for link in links} == {round(links[0].width, 6)}
    assert links[0].width > 0.005
    assert all(
        one.left + one.width <= other.left + 1e-9 for one, other in itertools.pairwise(links)
    )
    assert links[9].left < 0.3
    assert links[10].left > 0.6
    assert links[-1].left + links[-1].width <= 1
    assert len(svg) < 600_000


def test_ticks_of_counts_are_whole_numbers():
    for svg in (curve_picture(_pairs({"sum": 0.1}), "sum", "duo-sum", STAGES), _bars([0.5])[0]):
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
        "svg, _ = difference_bars({'q0': -1.0, 'q1': 2.0}, 'AP', "
        "{'bm25': '#0b5cad', 'duo-sum': '#1b7a1b'}, {}); "
        "sys.stdout.buffer.write(svg); "
        "assert os.path.exists('matplotlibrc')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == _bars([-1.0, 2.0])[0]


def test_settings_that_a_caller_made_change_no_picture_and_stay():
    wanted, _ = _bars([-1.0, 2.0])
    with matplotlib.rc_context({"text.usetex": True, "lines.linewidth": 40}):
        assert _bars([-1.0, 2.0])[0] == wanted
        assert matplotlib.rcParams["lines.linewidth"] == 40
