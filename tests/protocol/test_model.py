"""The model of the commit protocol: its invariants hold in every state, and none of its protections
is without need.
"""

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

from tests.protocol.configurations import CONFIGURATIONS, LIMITS, QUICK, WITHOUT
from tests.protocol.invariants import INVARIANTS
from tests.protocol.model import PROTECTIONS
from tests.protocol.world import CODE, words

PAGE = Path(__file__).parents[2] / "docs/internals/commit-protocol.md"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in CONFIGURATIONS
    ],
)
def test_invariants_hold_in_every_state(name):
    found = CONFIGURATIONS[name].search()
    print(f"{name}: {found}")
    assert found.violation is None, "\n".join(map(words, found.violation.trace))
    assert found.states > 500


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_invariant_breaks_without_a_protection(protection):
    found = CONFIGURATIONS[WITHOUT[protection]].search(protection)
    assert found.violation is not None
    assert found.violation.invariant == PROTECTIONS[protection]


@pytest.mark.parametrize("limit", LIMITS)
def test_limit_is_one(limit):
    configuration, invariant = LIMITS[limit]
    found = configuration.search()
    assert found.violation is not None
    assert found.violation.invariant == invariant


def test_model_names_functions_of_the_code():
    assert len(CODE) > 20
    for name in CODE.values():
        module, _, path = name.partition(":")
        function = reduce(getattr, path.split("."), importlib.import_module(module))
        assert callable(function)


def test_page_names_every_invariant_and_no_other():
    named = re.findall(r"\[((?:`[a-z-]+`(?:, )?)+)\](?!\()", PAGE.read_text())
    assert {name.strip("`") for names in named for name in names.split(", ")} == set(INVARIANTS)


def test_protections_break_invariants_that_have_a_name():
    assert WITHOUT.keys() == PROTECTIONS.keys()
    assert set(PROTECTIONS.values()) <= INVARIANTS.keys()
