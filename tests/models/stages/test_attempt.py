"""What an attempt at a shard tells others while it works, and what a killed one leaves."""

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from beamrank.commit import working
from beamrank.commit.check import find_garbage, verify_stages
from beamrank.commit.listing import RECEIPTS, WORKING, list_folder
from beamrank.commit.plan import Plan
from beamrank.commit.status import read_status
from beamrank.commit.working import Working, shard_at_work
from beamrank.errors import BeamrankError
from beamrank.notes import SILENT
from beamrank.storage import files as storage
from beamrank.storage.stores import UnansweredError
from models.stages.attempt import inputs_done
from pipelines.console.progress import Bar, StageProgress
from pipelines.runners.watchdog import wait_with_stall
from tests.support.attempts import attempt, planned, task_of, worker_process
from tests.support.outputs import SHARDS
from tests.support.processes import succeed
from tests.support.tiers import slow_but

_HOUR = 3600.0


@pytest.fixture(params=["local", "memory"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://{tmp_path.name}/at-work"


def _files(plan: Plan) -> list[int]:
    """The shards of which there is a file of an attempt."""
    entries = list_folder(plan.folder("mono").url, RECEIPTS)
    return [entry.number for entry in entries if entry.is_complete(WORKING)]


def _at_work(plan: Plan, seconds_later: float = 0.0) -> tuple[Working, ...]:
    return read_status(plan, time.time() + seconds_later)[2].at_work


def test_shard_tells_after_a_minute_what_is_done(output, monkeypatch):
    plan, seen, now = planned(output), [], [1000.0]
    monkeypatch.setattr(working, "system", SimpleNamespace(monotonic=lambda: now[0]))

    def count():
        shard_at_work().add(0, 40)
        now[0] += 59
        shard_at_work().add(10)
        seen.append((_files(plan), inputs_done()))
        now[0] += 1
        shard_at_work().add(15)
        shard_at_work().add(10)
        seen.append((_files(plan), inputs_done()))
        assert _at_work(plan) == (Working(0, 25, 40),)

    attempt(plan, 0, count)
    assert seen == [([], (10, 40)), ([0], (35, 40))]
    assert _files(plan) == []
    assert inputs_done() == (0, 0)


def test_shards_at_a_time_count_apart(output, monkeypatch):
    monkeypatch.setattr(working, "TELL_SECONDS", 0.0)
    plan, all_at_work = planned(output), threading.Barrier(SHARDS)

    def count(shard):
        shard_at_work().add(shard, 100)
        all_at_work.wait()
        assert _at_work(plan) == tuple(Working(each, each, 100) for each in range(SHARDS))
        assert inputs_done() == (3, 300)
        all_at_work.wait()

    with ThreadPoolExecutor(SHARDS) as pool:
        list(pool.map(lambda shard: attempt(plan, shard, partial(count, shard)), range(SHARDS)))
    assert _files(plan) == []


def test_store_that_does_not_answer_is_no_fault_of_the_shard(output, monkeypatch, caplog):
    def unanswered(*_):
        raise UnansweredError("no answer")

    monkeypatch.setattr(working, "TELL_SECONDS", 0.0)
    plan = planned(output)

    def count():
        with monkeypatch.context() as patches:
            patches.setattr(storage, "replace", unanswered)
            shard_at_work().add(1, 2)
        assert _files(plan) == []
        monkeypatch.setattr(storage, "remove", unanswered)

    assert attempt(plan, 0, count) == task_of(plan).receipt()
    assert [record.levelname for record in caplog.records].count("WARNING") == 2


def test_failed_attempt_leaves_no_file(output, monkeypatch):
    monkeypatch.setattr(working, "TELL_SECONDS", 0.0)
    plan = planned(output)

    def fail():
        shard_at_work().add(1, 2)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        attempt(plan, 0, fail)
    assert _files(plan) == []


def test_work_outside_of_an_attempt_is_seen_by_nobody():
    shard_at_work().add(1, 2)
    assert (shard_at_work().done, inputs_done()) == (0, (0, 0))


@pytest.mark.parametrize("hangs", slow_but(1, [True, False]))
def test_shard_of_another_process_stalls_only_where_it_counts_nothing(tmp_path, hangs):
    """It takes longer than the limit; each look finds one input more, or none."""
    plan = planned(str(tmp_path))
    digests = [task_of(plan, shard).digest for shard in range(SHARDS)]
    find = partial(plan.folder("mono").progress, digests)
    bar = Bar(SILENT, "mono", lambda *_: None)
    show = StageProgress(find, SHARDS, bar, lambda _: None, inputs_done)
    looks, ended = itertools.count(), threading.Event()
    with worker_process(plan.output) as worker:
        worker.do(1)

        def look():
            number = next(looks)
            if number < 30:
                worker.do(0 if hangs else 1)
            elif number == 30:
                worker.finish()
                ended.set()
            return show()

        def work():
            ended.wait()

        with pytest.raises(BeamrankError, match="stalled") if hangs else nullcontext():
            wait_with_stall(work, look, 0.5, lambda: "stalled", poll_seconds=0.05)
    assert (find()[0], _files(plan)) == ((set(), [0]) if hangs else ({0}, []))


@pytest.fixture
def killed(tmp_path: Path) -> Plan:
    """A plan of which an attempt at a shard was killed at 7 of 100 inputs."""
    plan = planned(str(tmp_path))
    with worker_process(plan.output) as worker:
        worker.do(7)
    return plan


def test_status_shows_shards_at_work_for_five_minutes(killed):
    assert _at_work(killed) == (Working(0, 7, 100),)
    assert (
        "mono: 0 of 3 shards, 7 of 100 inputs of 1 shard at work"
        in succeed("status", killed.output).stdout
    )
    stages = json.loads(succeed("status", killed.output, "--json").stdout)["stages"]
    assert [stage["at_work"] for stage in stages] == [
        [],
        [],
        [{"shard": 0, "done": 7, "inputs": 100}],
    ]
    assert _at_work(killed, 301.0) == ()


@pytest.mark.parametrize("tells", slow_but(1, [True, False]))
def test_file_of_a_killed_attempt_is_in_nobodys_way(killed, monkeypatch, tells):
    def garbage(hours):
        found = find_garbage(killed.output, time.time() + hours * _HOUR, _HOUR)
        return [each.file for each in found if "working-" in each.file]

    verified = verify_stages(killed.output)
    assert (verified.findings, verified.stray) == ([], 1)
    assert (len(garbage(0)), len(garbage(2))) == (0, 1)
    monkeypatch.setattr(working, "TELL_SECONDS", 0.0 if tells else 60.0)
    attempt(killed, 0, lambda: shard_at_work().add(100, 100))
    assert (read_status(killed)[2].done, _at_work(killed)) == (1, ())
    assert (len(_files(killed)), len(garbage(2))) == ((0, 0) if tells else (1, 1))
    assert verify_stages(killed.output).findings == []
