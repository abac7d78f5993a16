"""The bounds of what a reader of the code reads; `python -m tests.support.shape` prints them."""

import pytest

from tests.support.shape import BOUNDS, SPINE_BOUNDS, measure, measure_spine


@pytest.fixture(scope="module")
def figures():
    return measure()


@pytest.mark.parametrize("name", BOUNDS)
def test_shape_keeps_its_bounds(name, figures):
    assert figures[name] <= BOUNDS[name].at_most


@pytest.mark.slow
def test_spine_keeps_its_bounds():
    figures = measure_spine()
    assert {
        name: figures[name] <= bound.at_most for name, bound in SPINE_BOUNDS.items()
    } == dict.fromkeys(SPINE_BOUNDS, True)
