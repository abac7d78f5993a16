"""Two configurations in one output: the later one is refused, or the one that lost the output
writes no runs.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest

from beamrank.commit import owner
from beamrank.commit.check import find_garbage
from beamrank.commit.listing import CURRENT, LAUNCHER, list_output
from beamrank.commit.owner import check_current, launched, made_current
from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.shards import cut_shards
from beamrank.errors import BeamrankError, TemporaryError
from beamrank.machine import machine_id
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.digested import file_states
from beamrank.storage.local_files import temporary_name
from pipelines.console.progress import ConsoleProgress
from pipelines.runs.run_files import write_runs
from tests.support.outputs import retrieve_record
from tests.support.processes import refused, succeed
from tests.support.runs import plan_run, run_bytes
from tests.support.small_collection import small_cascade

TOPICS = [Topic("q1", "one"), Topic("q2", "two")]
_ELSEWHERE = "0" * 8
# Starts a launcher of another configuration, and is killed in the middle.
_KILLED = """
import os, sys
from beamrank.commit.owner import launched
with launched(sys.argv[1], "0" * 64, "1" * 64):
    os._exit(9)
"""


def _plan(folder: Path, k: int = 10, **config: object) -> Plan:
    stages = (retrieve_record(k=k),)
    return Plan("tag", str(folder), cut_shards(TOPICS, 1), stages, config)


def _current(output: Path) -> Any:
    return json.loads((output / CURRENT).read_text())


def _entries(output: Path) -> list[Path]:
    return sorted(output.glob("launcher-*"))


def _elsewhere(plan: Plan, seconds_ago: float) -> Path:
    """The entry of a launcher on another machine, as it was renewed last."""
    with made_current(plan):
        (mine,) = _entries(Path(plan.output))
        content = mine.read_bytes()
    path = mine.with_name(mine.name.replace(machine_id(), _ELSEWHERE))
    path.write_bytes(content)
    os.utime(path, (time.time() - seconds_ago,) * 2)
    return path


def _refused(plan: Plan) -> str:
    with pytest.raises(TemporaryError) as raised, made_current(plan):
        pytest.fail("it may not start")
    assert raised.value.exit_code == 75
    return str(raised.value)


@pytest.mark.parametrize(
    "other",
    [{"k": 20}, {"k": 10, "measures": ["AP"]}],
    ids=["another plan", "the same plan with other measures"],
)
def test_owner_refuses_another_configuration(tmp_path, other):
    with made_current(_plan(tmp_path, **other)):
        before, entries = _current(tmp_path), _entries(tmp_path)
        said = _refused(_plan(tmp_path))
        assert f"{tmp_path} is in use: process {os.getpid()} on " in said
        assert (_current(tmp_path), _entries(tmp_path)) == (before, entries)
    with made_current(_plan(tmp_path)):
        assert read_plan(str(tmp_path)) == _plan(tmp_path)
    assert _entries(tmp_path) == []


def test_end_of_one_launcher_of_two_leaves_the_output_to_the_other(tmp_path):
    """Two shares of one run, of which the later one ends first."""
    with made_current(_plan(tmp_path, measures=["AP"], output="out")):
        with made_current(_plan(tmp_path, measures=["AP"], output="./out")):
            assert len(_entries(tmp_path)) == 2
        assert len(_entries(tmp_path)) == 1
        _refused(_plan(tmp_path))


def test_launchers_of_one_plan_that_start_at_once_all_run(tmp_path):
    with ThreadPoolExecutor(8) as pool, ExitStack() as stack:
        started = Barrier(8)

        def start(_: int) -> None:
            started.wait()
            stack.enter_context(launched(str(tmp_path), "a" * 64, "b" * 64))

        list(pool.map(start, range(8)))
        assert len(_entries(tmp_path)) == 8


@pytest.mark.parametrize("attempt", range(5))
def test_of_two_plans_that_start_at_once_at_most_one_runs(tmp_path, attempt):
    running, most, started = Counter[str](), [0], Barrier(4)

    def start(plan: str) -> str:
        started.wait()
        try:
            with launched(str(tmp_path), plan * 64, "b" * 64):
                running[plan] += 1
                most.append(sum(count > 0 for count in running.values()))
                time.sleep(0.05)
                running[plan] -= 1
        except TemporaryError:
            return "refused"
        return "ran"

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, "abab"))
    assert max(most) <= 1


def test_launcher_that_is_refused_is_in_the_way_of_nobody(tmp_path, monkeypatch):
    """Another share of the run starts while it is refused."""
    entries, seen = owner._entries, list[Path]()

    def looked(output: str, own: str = "") -> Iterator[tuple[str, bool]]:
        seen.extend(_entries(tmp_path))
        return entries(output, own)

    with made_current(_plan(tmp_path)):
        monkeypatch.setattr(owner, "_entries", looked)
        _refused(_plan(tmp_path, k=20))
        assert set(seen) == set(_entries(tmp_path))


def test_killed_launcher_of_this_machine_blocks_nobody(tmp_path):
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    assert len(_entries(tmp_path)) == 1
    assert owner.running(str(tmp_path)) == []
    with made_current(_plan(tmp_path)):
        assert len(_entries(tmp_path)) == 1
    assert _entries(tmp_path) == []


def test_launcher_elsewhere_has_ended_after_ten_minutes_without_renewal(tmp_path):
    entry = _elsewhere(_plan(tmp_path, k=20), 590)
    assert " is in use: process " in _refused(_plan(tmp_path))
    os.utime(entry, (time.time() - 610,) * 2)
    with made_current(_plan(tmp_path)):
        assert not entry.exists()


def test_clock_of_a_launcher_decides_nothing(tmp_path, monkeypatch):
    """Ages are by the times of the output's file system."""
    _elsewhere(_plan(tmp_path, k=20), 30)
    seconds = time.time
    for hours in (-1, 1):
        monkeypatch.setattr(time, "time", lambda hours=hours: seconds() + 3600 * hours)
        _refused(_plan(tmp_path))


def test_entry_at_a_store_is_locked_on_its_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    output = f"memory://{tmp_path.name}"
    with launched(output, "a" * 64, "b" * 64):
        (lock,) = os.listdir(tmp_path)
        (entry,) = storage.sizes_bytes(output)
    assert (storage.sizes_bytes(output), os.listdir(tmp_path)) == ({}, [])
    # What a killed one leaves, with and without its lock.
    storage.publish(f"{output}/{entry}", b"")
    assert owner.running(output) == ["another process"]
    (tmp_path / lock).touch()
    assert owner.running(output) == []
    with launched(output, "c" * 64, "b" * 64):
        assert lock not in os.listdir(tmp_path)


def test_entry_at_a_store_counts_for_ten_minutes(tmp_path, monkeypatch):
    """Elsewhere, where its lock is not seen."""
    output = f"memory://{tmp_path.name}"
    monkeypatch.setattr(storage, "_lock", lambda url: f"{tmp_path}/{uuid4()}")
    with launched(output, "a" * 64, "b" * 64), launched(output, "a" * 64, "b" * 64):
        with (
            pytest.raises(TemporaryError, match=str(os.getpid())),
            launched(output, "c" * 64, "b" * 64),
        ):
            pytest.fail("it may not start")
        monkeypatch.setattr(owner, "_ENDED_SECONDS", -1.0)
        with launched(output, "c" * 64, "b" * 64):
            assert len(storage.sizes_bytes(output)) == 1
    assert storage.sizes_bytes(output) == {}


@pytest.mark.parametrize("place", ["folder", "store"])
def test_entry_is_renewed_as_long_as_its_launcher_runs(tmp_path, monkeypatch, place):
    output = str(tmp_path) if place == "folder" else f"memory://{tmp_path.name}"
    monkeypatch.setattr(owner, "_RENEWED_SECONDS", 0.01)

    def time_of_entry() -> float | None:
        (state,) = file_states(output).values()
        return state.modified_seconds

    with launched(output, "a" * 64, "b" * 64):
        first = time_of_entry()
        while time_of_entry() == first:
            time.sleep(0.01)


def test_gc_and_verify_know_the_entry_of_a_launcher(tmp_path):
    with made_current(_plan(tmp_path)):
        entries = list_output(str(tmp_path))
        assert [entry.path for entry in entries if entry.kind is LAUNCHER] == [
            path.name for path in _entries(tmp_path)
        ]
        assert find_garbage(str(tmp_path), time.time() + 3600, 0.0) == []


@pytest.mark.parametrize(
    "content", ['{"plan": "plan-0.json"}', '{"plan": 1, "owner": {"pid": "x"}}', "{", "[]"]
)
def test_broken_pointer_is_replaced(tmp_path, content):
    (tmp_path / CURRENT).write_text(content)
    with made_current(_plan(tmp_path)):
        assert _current(tmp_path)["owner"]["pid"] == os.getpid()
    assert _current(tmp_path)["plan"] == _plan(tmp_path).name


def test_failed_owner_releases_the_output(tmp_path):
    def fail() -> None:
        with made_current(_plan(tmp_path)):
            raise BeamrankError("a worker died")

    with pytest.raises(BeamrankError, match="a worker died"):
        fail()
    assert _entries(tmp_path) == []


def test_owner_removes_what_killed_processes_left_and_nothing_else(tmp_path):
    """In each folder that a run writes to, before and after it."""
    folders = ["", "machines", "rejects", "runs", "retrieve", "retrieve/receipts", "retrieve/scans"]
    plan, gone = _plan(tmp_path), temporary_name("file")
    with ExitStack() as stack:
        for folder in folders:
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / gone).touch()
            (tmp_path / folder / ".mine.tmp").touch()
            stack.enter_context(
                storage.held(str(tmp_path / folder / temporary_name("living")), b"")
            )
        with made_current(plan):
            assert not list(tmp_path.rglob(gone))
            for folder in folders:
                (tmp_path / folder / gone).touch()
        assert not list(tmp_path.rglob(gone))
        for kept in (".mine.tmp", ".living.*"):
            assert len(list(tmp_path.rglob(kept))) == len(folders)


def test_plan_that_was_taken_over_names_the_new_owner(tmp_path):
    plan, other = _plan(tmp_path), _plan(tmp_path, k=20)
    with made_current(plan):
        # As on a machine that judged this one to have ended.
        for entry in _entries(tmp_path):
            entry.unlink()
        with made_current(other):
            with pytest.raises(TemporaryError, match=rf"{other.name}, .*{os.getpid()} ") as raised:
                check_current(plan)
            assert raised.value.exit_code == 75
    assert _current(tmp_path)["plan"] == other.name


def test_run_that_was_taken_over_keeps_its_shards(tmp_path):
    path = small_cascade(tmp_path).path
    first = plan_run(path)
    first.run()
    runs = tmp_path / "out/runs"
    path.write_text(path.read_text().replace("k: 6", "k: 5"))
    second = plan_run(path)
    second.run()
    written = {file.name: file.read_bytes() for file in runs.iterdir()}
    assert written["mono.trec"] != b""
    with pytest.raises(BeamrankError, match=second.plan.name):
        write_runs(first.plan, first.config, ConsoleProgress(quiet=True))
    assert {file.name: file.read_bytes() for file in runs.iterdir()} == written
    assert first.plan.manifest("duo") is not None
    first.run()
    assert run_bytes(tmp_path / "out")["mono.trec"] != written["mono.trec"]


def test_command_refuses_a_busy_output_and_releases_its_own(tmp_path):
    config = small_cascade(tmp_path).path
    output = tmp_path / "out"
    with made_current(_plan(output)):
        assert f"process {os.getpid()} on " in refused("run", config, code=75)
        assert not list(output.glob("*/receipts/*"))
    succeed("run", config, "--only", "0/1")
    assert _entries(output) == []
    assert read_plan(str(output)).config["run_tag"] == "test"
    assert storage.exists(str(output / "runs/measures.json"))
