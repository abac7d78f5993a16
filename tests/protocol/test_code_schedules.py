"""Random schedules of the code, by seeds: `BEAMRANK_SCHEDULES` says how many of each scenario. A
seed that breaks an invariant is shown with its shortest trace.
"""

import os

import pytest

from beamrank.storage import files as storage
from tests.protocol.scenarios import SCENARIOS
from tests.protocol.simulation import drawn, explain, simulate

FIRST = int(os.environ.get("BEAMRANK_FIRST_SCHEDULE", "0"))
SEEDS = int(os.environ.get("BEAMRANK_SCHEDULES", "63"))


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", SCENARIOS)
def test_invariants_hold_in_random_schedules(name):
    scenario = SCENARIOS[name]
    for seed in range(FIRST, FIRST + SEEDS):
        decisions = drawn(scenario, seed)
        broken = simulate(scenario, decisions).broken
        assert not broken, f"seed {seed}: {explain(scenario, decisions, broken[0])}"


def test_seed_replays():
    scenario = SCENARIOS["parts"]
    first, again = (simulate(scenario, drawn(scenario, 5)) for _ in range(2))
    assert first.trace == again.trace
    assert len(first.trace) > 500


def test_failure_is_shrunk_to_its_shortest_trace(monkeypatch):
    def publish(url: str, content: bytes) -> bool:
        storage.replace(url, content)
        return True

    scenario = SCENARIOS["two launchers"]
    # Decisions are drawn for a usual run, with the protection.
    schedules = [drawn(scenario, seed) for seed in range(200)]
    monkeypatch.setattr(storage, "publish", publish)
    for decisions in schedules:
        if len(decisions) > 3 and "one-counts" in simulate(scenario, decisions).broken:
            shortest = explain(scenario, decisions, "one-counts").splitlines()[0]
            assert shortest.count("Decision(") <= 3
            return
    pytest.fail("no seed breaks an invariant without create-only publishing")
