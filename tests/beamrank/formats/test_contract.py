"""The contract matrix: every input in every format with every fault is read as contract.py says."""

from collections import defaultdict
from collections.abc import Iterable

import pytest

from tests.beamrank.formats import adapters
from tests.beamrank.formats.contract import (
    CORE,
    Case,
    Outcome,
    Parts,
    cases,
    parts_cases,
    write,
    write_parts,
)

CASES = cases()
PARTS = parts_cases()
_BY_FAULT: dict[tuple[str, str], list[Case]] = defaultdict(list)
for _case in CASES:
    _BY_FAULT[_case.input, _case.fault].append(_case)


def _found(case: Case | Parts) -> Outcome:
    if isinstance(case, Parts):
        return adapters.outcome(case.input, write_parts(case))
    return adapters.outcome(case.input, write(case), case.columns)


def _check(cases: Iterable[Case | Parts]) -> None:
    pairs = {case.id: (_found(case), case.outcome) for case in cases}
    assert {name: pair for name, pair in pairs.items() if pair[0] != pair[1]} == {}


@pytest.mark.parametrize(("kind", "fault"), _BY_FAULT)
def test_a_fault_has_one_outcome_in_every_format(kind: str, fault: str) -> None:
    _check(_BY_FAULT[kind, fault])


@pytest.mark.parametrize("kind", sorted({parts.input for parts in PARTS}))
def test_files_are_read_as_one(kind: str) -> None:
    _check([parts for parts in PARTS if parts.input == kind])


def test_core_faults_are_faults() -> None:
    assert {case.fault for case in CASES} >= CORE
