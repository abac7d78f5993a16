"""The contract matrix: every input in every format with every fault is read as contract.py says.

`python -m tests.beamrank.formats.test_contract` prints the cases that differ, as
contract_changed.txt lists them.
"""

import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.beamrank.formats import adapters
from tests.beamrank.formats.contract import (
    CORE,
    Case,
    Outcome,
    Parts,
    cases,
    comparable,
    parts_cases,
    write,
    write_parts,
)

CASES = cases()
PARTS = parts_cases()
_ALL: list[Case | Parts] = [*CASES, *PARTS]
_LIST = Path(__file__).with_name("contract_changed.txt")


def _listed(text: str) -> Iterator[str]:
    """The ids of cases in lines such as `FAULT | INPUT: FORMAT FORMAT; INPUT: FORMAT`."""
    for line in text.splitlines():
        fault, _, inputs = line.partition(" | ")
        for one in inputs.split("; ") if inputs and not line.startswith("#") else ():
            name, _, formats = one.partition(": ")
            yield from (f"{name}-{form}-{fault}".replace(" ", "_") for form in formats.split())


# Cases that the readers of today do not read as the contract says; to be emptied. They are no
# expected failures of pytest's, of which each would be a line of its summary.
CHANGED = frozenset(_listed(_LIST.read_text()))
_BY_FAULT: dict[tuple[str, str], list[Case]] = defaultdict(list)
for _case in CASES:
    _BY_FAULT[_case.input, _case.fault].append(_case)


def _found(case: Case | Parts) -> Outcome:
    if isinstance(case, Parts):
        return adapters.outcome(case.input, write_parts(case))
    return adapters.outcome(case.input, write(case), case.columns)


def _differing(found: Iterable[Case | Parts]) -> dict[str, tuple[Outcome, Outcome]]:
    """What is read, and what the contract says, of the cases where they differ."""
    pairs = ((case, comparable(_found(case)), comparable(case.outcome)) for case in found)
    return {case.id: (today, rule) for case, today, rule in pairs if today != rule}


def _check(found: Sequence[Case | Parts]) -> None:
    differing = _differing(found)
    listed = CHANGED.intersection(case.id for case in found)

    assert {name: pair for name, pair in differing.items() if name not in listed} == {}
    # Those that are listed and do not differ: remove them from contract_changed.txt.
    assert listed - differing.keys() == set()


@pytest.mark.parametrize(("kind", "fault"), _BY_FAULT)
def test_a_fault_has_one_outcome_in_every_format(kind: str, fault: str) -> None:
    _check(_BY_FAULT[kind, fault])


@pytest.mark.parametrize("kind", sorted({parts.input for parts in PARTS}))
def test_files_are_read_as_one(kind: str) -> None:
    _check([parts for parts in PARTS if parts.input == kind])


def test_the_list_of_changes_names_cases() -> None:
    assert {one.id for one in _ALL} >= CHANGED


def test_core_faults_are_faults() -> None:
    assert {case.fault for case in CASES} >= CORE


def _as_list(names: Collection[str]) -> str:
    """Cases as contract_changed.txt has them, a line for each fault."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for case in _ALL:
        if case.id in names:
            found[case.fault][case.input].append(case.form)
    lines = (
        "; ".join(f"{name}: {' '.join(formats)}" for name, formats in inputs.items())
        for _, inputs in sorted(found.items())
    )
    return "".join(f"{fault} | {line}\n" for fault, line in zip(sorted(found), lines, strict=True))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(_as_list(_differing(_ALL)), end="")
