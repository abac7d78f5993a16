"""Two configurations in one output: the later one is refused, or the one that lost the output
writes no runs.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from beamrank.commit.listing import CURRENT
from beamrank.commit.plan import Plan, read_current, read_plan
from beamrank.commit.shards import cut_shards
from beamrank.errors import BeamrankError, PreflightError
from beamrank.machine import machine_id
from beamrank.records import Topic
from beamrank.storage import files as storage
from pipelines.console.progress import ConsoleProgress
from pipelines.runs.owner import Owner, check_current, made_current
from pipelines.runs.run_files import write_runs
from tests.support.outputs import retrieve_record
from tests.support.processes import refused, succeed
from tests.support.runs import plan_run, run_bytes
from tests.support.small_collection import small_cascade

TOPICS = [Topic("q1", "one"), Topic("q2", "two")]


@pytest.fixture
def sleeper() -> Iterator[psutil.Process]:
    """Another process of this machine."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield psutil.Process(process.pid)
        process.kill()


def _plan(folder: Path, k: int = 10, **config: object) -> Plan:
    stages = (retrieve_record(k=k),)
    return Plan("tag", str(folder), cut_shards(TOPICS, 1), stages, config)


def _owner(process: psutil.Process) -> Owner:
    return dataclasses.replace(
        Owner.this_process(), pid=process.pid, process_started=process.create_time()
    )


def _current(output: Path) -> Any:
    return json.loads((output / CURRENT).read_text())


@pytest.mark.parametrize(
    "other",
    [{"k": 20}, {"k": 10, "measures": ["AP"]}],
    ids=["another plan", "the same plan with other measures"],
)
def test_owner_refuses_another_configuration(tmp_path, sleeper, other):
    owner = _owner(sleeper)
    _plan(tmp_path, **other).publish(dataclasses.asdict(owner))
    before = _current(tmp_path)
    with (
        pytest.raises(
            PreflightError,
            match=rf"process {sleeper.pid} on \S+ \(since 20.*\) runs another configuration.*Wait "
            r".*another --output",
        ),
        made_current(_plan(tmp_path)),
    ):
        pytest.fail("it may not start")
    assert _current(tmp_path) == before
    sleeper.kill()
    sleeper.wait()
    with made_current(_plan(tmp_path)):
        assert read_plan(str(tmp_path)) == _plan(tmp_path)


def test_same_configuration_may_run_twice_at_once(tmp_path, sleeper):
    owner = dataclasses.asdict(_owner(sleeper))
    _plan(tmp_path, measures=["AP"], output="out").publish(owner)
    same = _plan(tmp_path, measures=["AP"], output="./out")
    with made_current(same):
        check_current(same)
        # The other one starts again meanwhile: the pointer is its own then, and stays so.
        same.publish(owner)
    assert _current(tmp_path)["owner"] == owner


@pytest.mark.parametrize(
    "change", [{"process_started": 1.0}, {"host": "elsewhere.example"}, {"pid": 2**22 + 1}]
)
def test_owner_that_is_not_running_here_is_ignored(tmp_path, sleeper, change):
    _plan(tmp_path, k=20).publish(
        dataclasses.asdict(dataclasses.replace(_owner(sleeper), **change))
    )
    with made_current(_plan(tmp_path)):
        check_current(_plan(tmp_path))


@pytest.mark.parametrize(
    "content", ['{"plan": "plan-0.json"}', '{"plan": 1, "owner": {"pid": "x"}}', "{", "[]"]
)
def test_broken_pointer_is_replaced(tmp_path, content):
    (tmp_path / CURRENT).write_text(content)
    with made_current(_plan(tmp_path)):
        assert (
            Owner.of(read_current(str(tmp_path)) or pytest.fail("there is a pointer")) is not None
        )
    assert _current(tmp_path)["owner"] is None
    assert _current(tmp_path)["plan"] == _plan(tmp_path).name


def test_failed_owner_releases_the_output(tmp_path):
    def fail() -> None:
        with made_current(_plan(tmp_path)):
            raise BeamrankError("a worker died")

    with pytest.raises(BeamrankError, match="a worker died"):
        fail()
    assert _current(tmp_path)["owner"] is None


def test_owner_removes_what_killed_processes_left_and_nothing_else(tmp_path, sleeper):
    """In each folder that a run writes to, before and after it."""
    folders = ["", "machines", "rejects", "runs", "retrieve", "retrieve/receipts", "retrieve/scans"]
    plan, names = _plan(tmp_path), {}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as killed:
        started = int(psutil.Process(killed.pid).create_time())
        gone = f".file.{machine_id()}-{killed.pid}-{started}-0123abcd.tmp"
        killed.kill()
    started = int(sleeper.create_time())
    for folder in folders:
        (tmp_path / folder).mkdir(exist_ok=True)
        names[folder] = [
            gone,
            f".file.{machine_id()}-{sleeper.pid}-{started}-0123abcd.tmp",
            ".mine.tmp",
        ]
        for name in names[folder]:
            (tmp_path / folder / name).touch()
    with made_current(plan):
        left = {
            folder: [name for name in names[folder] if (tmp_path / folder / name).exists()]
            for folder in folders
        }
        assert left == {folder: names[folder][1:] for folder in folders}
        for folder in folders:
            (tmp_path / folder / gone).touch()
    assert not list(tmp_path.rglob(gone))


def test_plan_that_was_taken_over_names_the_new_owner(tmp_path, sleeper):
    with made_current(_plan(tmp_path)):
        other = _plan(tmp_path, k=20)
        other.publish(dataclasses.asdict(_owner(sleeper)))
        with pytest.raises(
            BeamrankError, match=rf"{other.name}, by process {sleeper.pid} on "
        ) as raised:
            check_current(_plan(tmp_path))
        assert raised.value.exit_code == 1
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
    with pytest.raises(BeamrankError, match="another configuration was started into"):
        write_runs(first.plan, first.config, ConsoleProgress(quiet=True))
    assert {file.name: file.read_bytes() for file in runs.iterdir()} == written
    assert first.plan.seal_of("duo") is not None
    first.run()
    assert run_bytes(tmp_path / "out")["mono.trec"] != written["mono.trec"]


def test_owner_refuses_a_busy_output_and_releases_its_own(tmp_path, sleeper):
    config = small_cascade(tmp_path).path
    output = tmp_path / "out"
    _plan(output).publish(dataclasses.asdict(_owner(sleeper)))
    assert f"process {sleeper.pid} on " in refused("run", config, code=3)
    assert not list(output.glob("*/receipts/*"))
    sleeper.kill()
    sleeper.wait()
    succeed("run", config)
    assert _current(output)["owner"] is None
    assert read_plan(str(output)).config["run_tag"] == "test"
    assert storage.exists(str(output / "runs/measures.json"))
