"""How far a run is, by its receipts and when they were written."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from beamrank.commit.plan import Plan
from beamrank.commit.shards import cut_shards
from beamrank.commit.status import Retry, StageStatus, read_status, run_eta_seconds
from beamrank.records import Topic
from tests.support.outputs import retrieve_record, scoring_record, shard_table

_NOW = 1_000_000.0
_SHARDS = 4


def _plan(output: str) -> Plan:
    """Retrieve, mono and duo of four topics in four shards; duo's model costs twice as much for a token."""
    stages = (
        retrieve_record(),
        scoring_record("mono", "retrieve", token_cost=100),
        scoring_record("duo", "mono", token_cost=200),
    )
    return Plan("tag", output, cut_shards([Topic(f"q{number}", "text") for number in range(4)], _SHARDS), stages, {})


def _commit(plan: Plan, name: str, ages: Sequence[float], seconds: float, **counts: int) -> None:
    """Commits the first shards, each with a receipt that was written so many seconds ago."""
    stage = plan.stage(name)
    inputs = [manifest for manifest in map(plan.sealed, stage.inputs) if manifest is not None]
    digests = plan.shard_digests(stage, inputs)
    for shard, age in enumerate(ages):
        table = shard_table(plan, name, shard)
        receipt = plan.folder(name).commit(shard, digests[shard], table, seconds=seconds, counts=counts)
        (path,) = Path(plan.output, name, "receipts").glob(f"{shard:05d}-*")
        path.write_bytes(replace(receipt, committed_seconds=_NOW - age).to_json())


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    plan = _plan(str(tmp_path))
    _commit(plan, "retrieve", [900, 899, 898, 897], 1.0)
    return plan


def _mono(plan: Plan) -> StageStatus:
    return read_status(plan, _NOW)[1]


def test_status_forecasts_by_the_pace_of_all_workers(plan: Plan) -> None:
    """Two workers took 20 seconds each for three shards: one every 12 seconds or so."""
    _commit(plan, "mono", [24, 22, 4], 20.0)
    status = _mono(plan)
    # From 44 seconds ago to 4 seconds ago, three shards.
    assert status.elapsed_seconds == 44.0
    assert status.eta_seconds == pytest.approx(40 / 3, abs=0.05)


def test_status_counts_down_between_shards(plan: Plan) -> None:
    _commit(plan, "mono", [30, 10], 20.0)
    assert _mono(plan).eta_seconds == 2 * 20 - 10


def test_status_of_a_stopped_stage_is_not_running(plan: Plan) -> None:
    _commit(plan, "mono", [5020, 5000], 20.0)
    status = _mono(plan)
    assert status.elapsed_seconds is None
    assert status.eta_seconds == 40.0


def test_status_ignores_a_pause(plan: Plan) -> None:
    _commit(plan, "mono", [90_000, 25, 5], 20.0)
    status = _mono(plan)
    assert status.elapsed_seconds == 45.0
    assert status.eta_seconds == 20.0


def test_status_of_a_finished_stage_has_seconds_and_rate(plan: Plan) -> None:
    _commit(plan, "mono", [40, 30, 20, 10], 10.0, queries=1, inferences=500, tokens=9000, padded_tokens=10_000)
    status = _mono(plan)
    assert (status.inferences, status.seconds, status.inferences_per_second) == (2000, 40.0, 50.0)
    assert (status.inferences_per_query, status.tokens, status.padding_share) == (500.0, 36_000, 0.1)
    assert (status.eta_seconds, status.elapsed_seconds) == (0.0, None)
    retrieve = read_status(plan, _NOW)[0]
    assert (retrieve.inferences, retrieve.seconds, retrieve.inferences_per_second) == (0, 4.0, None)
    assert (retrieve.inferences_per_query, retrieve.tokens, retrieve.padding_share) == (None, None, None)


def test_status_has_the_retries_of_its_plan(plan: Plan) -> None:
    later = Retry(plan.digest, "mono", "worker 8 died", 2.0)
    others = [Retry(plan.digest, "mono", "worker 7 died", 1.0), Retry("of another plan", "mono", "no", 1.0)]
    for retry in (later, *others, later):
        retry.publish(plan.output)
    assert [stage.retries for stage in read_status(plan, _NOW)] == [(), ("worker 7 died", "worker 8 died"), ()]


def test_status_forecasts_duo_by_monos_pace(plan: Plan) -> None:
    """Of 10 candidates 5 meet in 20 pairs: 2 inferences for each of mono's, twice as long, in a model twice as slow."""
    _commit(plan, "mono", [20, 10], 10.0, queries=1, candidates=10, inferences=10, tokens=1000)
    stages = read_status(plan, _NOW)
    assert [stage.eta_seconds for stage in stages] == [0.0, 10.0, 4 * 10.0 * (2 * 2 * 2)]
    assert run_eta_seconds(stages) == 330.0


def test_status_does_not_guess(plan: Plan) -> None:
    stages = read_status(plan, _NOW)
    assert [stage.eta_seconds for stage in stages] == [0.0, None, None]
    assert run_eta_seconds(stages) is None
    # Receipts that do not tell how much mono did.
    _commit(plan, "mono", [20, 10], 10.0)
    assert read_status(plan, _NOW)[2].eta_seconds is None
