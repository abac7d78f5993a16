"""How far a run is, by its receipts and when they were written."""

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from beamrank.commit.listing import RECEIPTS, WORKING
from beamrank.commit.plan import Plan
from beamrank.commit.scans import ScanReport
from beamrank.commit.shards import cut_shards
from beamrank.commit.status import (
    Retry,
    StageStatus,
    read_status,
    run_eta_seconds,
    shard_attempts,
)
from beamrank.commit.working import Working
from beamrank.records import Topic
from beamrank.storage import files as storage
from tests.support.outputs import (
    commit,
    finished_output,
    make_plan,
    retrieve_record,
    scoring_record,
    seal_stage,
    shard_table,
)
from tests.support.processes import refused, succeed

_NOW = 1_000_000.0
_SHARDS = 4


def _plan(output: str) -> Plan:
    """Retrieve, mono and duo of four topics in four shards."""
    stages = (
        retrieve_record(),
        scoring_record("mono", "retrieve"),
        scoring_record("duo", "mono"),
    )
    return Plan(
        "tag",
        output,
        cut_shards([Topic(f"q{number}", "text") for number in range(4)], _SHARDS),
        stages,
        {},
    )


def _commit(plan: Plan, name: str, ages: Sequence[float], seconds: float, **counts: int) -> None:
    """Commits the first shards, each with a receipt that was written so many seconds ago."""
    stage = plan.stage(name)
    inputs = [manifest for manifest in map(plan.seal, stage.inputs) if manifest is not None]
    digests = plan.shard_digests(stage, inputs)
    for shard, age in enumerate(ages):
        table = shard_table(plan, name, shard)
        receipt = plan.folder(name).commit(
            shard, digests[shard], table, seconds=seconds, counts=counts
        )
        (path,) = Path(plan.output, name, "receipts").glob(f"{shard:05d}-*")
        path.write_bytes(replace(receipt, committed_seconds=_NOW - age, bad_rows=shard).to_json())


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    plan = _plan(str(tmp_path))
    _commit(plan, "retrieve", [900, 899, 898, 897], 1.0)
    return plan


def _mono(plan: Plan) -> StageStatus:
    return read_status(plan, _NOW)[1]


def test_shard_that_an_earlier_plan_left_open_is_not_left_open(plan: Plan) -> None:
    manifest = plan.seal("retrieve")
    assert manifest is not None
    digests = plan.shard_digests(plan.stage("mono"), [manifest])
    folder = plan.folder("mono")
    folder.leave_open(1, "0" * 64, "of another plan")
    assert _mono(plan).left_open == ()
    folder.leave_open(2, digests[2], "of this plan")
    assert [(left.shard, left.reason) for left in _mono(plan).left_open] == [(2, "of this plan")]


def test_shard_that_an_earlier_plan_works_at_is_not_at_work(plan: Plan) -> None:
    manifest = plan.seal("retrieve")
    assert manifest is not None
    digests = plan.shard_digests(plan.stage("mono"), [manifest])
    receipts = Path(plan.folder("mono").url, RECEIPTS)
    receipts.mkdir(parents=True, exist_ok=True)
    for shard, digest in ((1, "0" * 64), (2, digests[2])):
        content = Working(shard, 3, 9).to_json()
        Path(receipts, WORKING.name(digest, shard)).write_bytes(content)
    status = next(one for one in read_status(plan) if one.stage == "mono")
    assert status.at_work == (Working(2, 3, 9),)


@pytest.mark.parametrize(
    ("ages", "elapsed", "eta"),
    [
        # Two workers took 20 seconds each: from 44 seconds ago to 4 seconds ago, three shards.
        ([24, 22, 4], 44.0, 13.3),
        ([30, 10], 50.0, 2 * 20 - 10),
        ([90_000, 25, 5], 45.0, 20.0),
        # 60 seconds longer than a shard takes, it was stopped.
        ([100, 80], 120.0, 20.0),
        ([100.1, 80.1], None, 40.0),
    ],
)
def test_status_forecasts_by_the_pace_since_the_last_pause(
    plan: Plan, ages: list[float], elapsed: float | None, eta: float
) -> None:
    _commit(plan, "mono", ages, 20.0)
    status = _mono(plan)
    assert (status.elapsed_seconds, status.eta_seconds) == (elapsed, eta)


def test_status_of_a_finished_stage_has_seconds_and_rate(plan: Plan) -> None:
    counts = {
        "queries": 7,
        "inferences": 500,
        "reused": 100,
        "tokens": 9000,
        "padded_tokens": 13_000,
    }
    _commit(plan, "mono", [40, 30, 20, 10], 15.0004, **counts)
    status = _mono(plan)
    assert (status.inferences, status.reused, status.seconds) == (2000, 400, 60.0)
    assert (status.inferences_per_second, status.inferences_per_query) == (33.3, 85.7)
    assert (status.tokens, status.padding_share) == (36_000, 0.3077)
    assert (status.eta_seconds, status.elapsed_seconds) == (0.0, None)
    retrieve = read_status(plan, _NOW)[0]
    assert (retrieve.inferences, retrieve.seconds, retrieve.inferences_per_second) == (0, 4.0, None)
    assert (retrieve.inferences_per_query, retrieve.tokens, retrieve.padding_share) == (
        None,
        None,
        None,
    )


def test_status_has_the_retries_of_its_plan(plan: Plan) -> None:
    later = Retry(plan.digest, "mono", "worker 8 died", 2.0)
    others = [
        Retry(plan.digest, "mono", "worker 7 died", 1.0),
        Retry("of another plan", "mono", "no", 1.0),
    ]
    for retry in (later, *others, later):
        retry.publish(plan.output)
    assert [stage.retries for stage in read_status(plan, _NOW)] == [
        (),
        ("worker 7 died", "worker 8 died"),
        (),
    ]


def test_status_counts_the_scan_of_a_stage(plan: Plan) -> None:
    """Between two passes over the corpus no shard is finished for a while."""
    scanning = replace(plan, stages=(plan.stages[0], replace(plan.stages[1], scan_digest="a" * 64)))
    ScanReport(0, 10, 3, (), seconds=2.5).publish(plan.folder("mono").url, "a" * 64)
    _commit(scanning, "mono", [1500, 5], 20.0)
    status = _mono(scanning)
    assert (status.bad_rows, status.seconds, status.elapsed_seconds) == (3 + 0 + 1, 42.5, 1520.0)


def test_status_does_not_guess(plan: Plan) -> None:
    stages = read_status(plan, _NOW)
    assert [stage.eta_seconds for stage in stages] == [0.0, None, None]
    assert run_eta_seconds(stages) is None


def _states(plan, shard):
    attempts = list(shard_attempts(plan, shard))
    assert all(attempt.file.startswith(f"{attempt.stage}/") for attempt in attempts)
    return {attempt.file: attempt.state for attempt in attempts}


def test_receipt_says_when_where_and_by_which_process_it_was_written(tmp_path):
    plan = finished_output(str(tmp_path))
    attempts = list(shard_attempts(plan, 1))
    assert [attempt.stage for attempt in attempts] == [stage.name for stage in plan.stages]
    for attempt in attempts:
        assert attempt.state == "counts"
        assert (attempt.receipt.host, attempt.receipt.process) == (
            socket.gethostname(),
            os.getpid(),
        )
        assert abs(attempt.receipt.committed_seconds - time.time()) < 60


def test_attempts_that_do_not_count_say_why(tmp_path):
    plan = finished_output(str(tmp_path))
    first, second, third = (plan.seal("mono").receipts[shard] for shard in range(3))
    folder = plan.folder("mono").url
    storage.remove(plan.folder("mono").part_url(first))
    (receipt,) = [name for name in os.listdir(f"{folder}/receipts") if name.startswith("00001-")]
    storage.replace(f"{folder}/receipts/{receipt}", second.to_json()[:50])
    plan.folder("mono").commit(
        2, "e" * 64, plan.folder("mono").read_part(third), seconds=1.0, counts={}
    )
    assert any("is missing" in state for state in _states(plan, 0).values())
    damaged = _states(plan, 1)
    assert damaged[f"mono/receipts/{receipt}"] == "it is truncated or damaged"
    assert damaged[f"mono/{second.part}"].startswith("a part without a receipt")
    assert "of an earlier plan, or of different inputs" in _states(plan, 2).values()


def test_attempt_before_its_input_is_finished_is_undecided(tmp_path):
    plan = finished_output(str(tmp_path))
    for name in os.listdir(f"{plan.folder('retrieve').url}/receipts"):
        storage.remove(f"{plan.folder('retrieve').url}/receipts/{name}")
    for manifest in [
        name for name in os.listdir(plan.folder("retrieve").url) if name.startswith("manifest")
    ]:
        storage.remove(f"{plan.folder('retrieve').url}/{manifest}")
    states = [attempt.state for attempt in shard_attempts(plan, 0) if attempt.stage == "mono"]
    assert states == ["not known yet: an input of the shard is unfinished"]


def test_shards_of_a_stage_that_needs_all_parts_of_another_wait_for_them(tmp_path):
    plan, name = make_plan(str(tmp_path)), "tokenize-0a1b2c3d"
    plan = replace(plan, stages=(*plan.stages[:2], replace(plan.stages[2], waits_for=name)))
    seal_stage(plan, "retrieve")
    commit(plan, name, [0, 1])
    assert (list(_states(plan, 0).values()), [each.done for each in read_status(plan)]) == (
        ["counts"] * 2,
        [3, 2, 0],
    )
    sealed = seal_stage(plan, name)
    commit(plan, "mono", [0])
    assert (list(_states(plan, 0).values()), [each.done for each in read_status(plan)]) == (
        ["counts"] * 3,
        [3, 3, 1],
    )
    task = plan.task(
        plan.stage("mono"), 0, sealed.receipts[:1], plan.digest_of_all(plan.stage("mono"))
    )
    assert task.receipt() is not None
    assert (list(task.topics), [part.receipt for part in task.inputs]) == ([], [sealed.receipts[0]])


def test_inspect_shows_the_attempts_at_a_shard(tmp_path):
    plan = finished_output(str(tmp_path))
    commit(plan, "mono", [2], salt=1)
    shown = succeed("inspect", tmp_path, "--shard", "2").stdout
    assert shown.count(": counts\n") == 3
    assert socket.gethostname() in shown
    found = json.loads(succeed("inspect", tmp_path, "--shard", "2", "--json").stdout)
    assert [each["stage"] for each in found["attempts"]][:3] == [
        stage.name for stage in plan.stages
    ][:3]
    assert " 0 to 2" in refused("inspect", tmp_path, "--shard", "3", code=2)
