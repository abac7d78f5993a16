"""The bounds of the code's shape; `python -m tests.support.shape` prints them beside the figures of today."""

import pytest

from tests.support.shape import BOUNDS, circles, measure, sources


@pytest.fixture(scope="module")
def figures():
    return measure()


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.figure)
def test_shape_keeps_its_bounds(bound, figures):
    assert bound.at_least <= figures[bound.figure] <= bound.at_most


def test_every_figure_has_a_bound(figures):
    assert [bound.figure for bound in BOUNDS] == list(figures)


def test_files_form_no_circle():
    assert circles(sources("beamrank", "models", "transforms", "pipelines", "contrib", "tests")) == []
