import json
import os
import socket
import time
from dataclasses import replace

from beamrank.commit.status import read_status, shard_attempts
from beamrank.storage import files as storage
from tests.support.outputs import commit, finished_output, make_plan, seal_stage
from tests.support.processes import refused, succeed


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
        assert (attempt.receipt.host, attempt.receipt.process) == (socket.gethostname(), os.getpid())
        assert abs(attempt.receipt.committed_seconds - time.time()) < 60


def test_attempts_that_do_not_count_say_why(tmp_path):
    plan = finished_output(str(tmp_path))
    first, second, third = (plan.sealed("mono").receipts[shard] for shard in range(3))
    folder = plan.folder("mono").url
    storage.remove(plan.folder("mono").part_url(first))
    (receipt,) = [name for name in os.listdir(f"{folder}/receipts") if name.startswith("00001-")]
    storage.replace(f"{folder}/receipts/{receipt}", second.to_json()[:50])
    plan.folder("mono").commit(2, "e" * 64, plan.folder("mono").read_part(third), seconds=1.0, counts={})
    assert any("is missing" in state for state in _states(plan, 0).values())
    damaged = _states(plan, 1)
    assert damaged[f"mono/receipts/{receipt}"] == "it is truncated or damaged"
    assert damaged[f"mono/{second.part}"].startswith("a part without a receipt")
    assert "of an earlier plan, or of different inputs" in _states(plan, 2).values()


def test_attempt_before_its_input_is_finished_is_undecided(tmp_path):
    plan = finished_output(str(tmp_path))
    for name in os.listdir(f"{plan.folder('retrieve').url}/receipts"):
        storage.remove(f"{plan.folder('retrieve').url}/receipts/{name}")
    for manifest in [name for name in os.listdir(plan.folder("retrieve").url) if name.startswith("manifest")]:
        storage.remove(f"{plan.folder('retrieve').url}/{manifest}")
    states = [attempt.state for attempt in shard_attempts(plan, 0) if attempt.stage == "mono"]
    assert states == ["not known yet: an input of the shard is unfinished"]


def test_shards_of_a_stage_that_needs_all_parts_of_another_wait_for_them(tmp_path):
    plan, name = make_plan(str(tmp_path)), "tokenize-0a1b2c3d"
    plan = replace(plan, stages=(*plan.stages[:2], replace(plan.stages[2], whole=name)))
    seal_stage(plan, "retrieve")
    commit(plan, name, [0, 1])
    assert (list(_states(plan, 0).values()), [each.done for each in read_status(plan)]) == (["counts"] * 2, [3, 2, 0])
    sealed = seal_stage(plan, name)
    commit(plan, "mono", [0])
    assert (list(_states(plan, 0).values()), [each.done for each in read_status(plan)]) == (["counts"] * 3, [3, 3, 1])
    task = plan.task(plan.stage("mono"), 0, sealed.receipts[:1], plan.whole_digest(plan.stage("mono")))
    assert task.receipt() is not None
    assert (list(task.topics), [part.receipt for part in task.inputs]) == ([], [sealed.receipts[0]])


def test_inspect_shows_the_attempts_at_a_shard(tmp_path):
    plan = finished_output(str(tmp_path))
    commit(plan, "mono", [2], salt=1)
    shown = succeed("inspect", tmp_path, "--shard", "2").stdout
    assert shown.count(": counts\n") == 3
    assert socket.gethostname() in shown
    found = json.loads(succeed("inspect", tmp_path, "--shard", "2", "--json").stdout)
    assert [each["stage"] for each in found["attempts"]][:3] == [stage.name for stage in plan.stages][:3]
    assert "are 0 to 2" in refused("inspect", tmp_path, "--shard", "3", code=2)
