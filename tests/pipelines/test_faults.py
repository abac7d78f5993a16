"""Runs that are broken at random moments, with fixed seeds, and what they leave: the bytes of an undisturbed run."""

import contextlib
import json
import random
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from errno import ENOSPC
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from beamrank.errors import BeamrankError
from beamrank.stages.plan import read_plan
from beamrank.stages.status import read_status
from beamrank.stages.verify import verify_stages
from pipelines.launcher import resumable
from pipelines.output.verify_runs import verify_runs
from pipelines.runners.options import WORKER_MODULE
from tests.support.cascades import BEAMRANK, beamrank, run_bytes, run_here
from tests.support.faults import (
    Faults,
    SmallCascade,
    Snapshot,
    expected_status,
    failing,
    plan_small,
    restore,
    snapshot,
    write_small,
)
from tests.support.processes import TWO_PROCESSES, children, started, wait_until


def _seeds(count: int) -> list[Any]:
    """The first of so many seeds in the first tier of tests, the others in the second."""
    return [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, count))]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def cascade(config: Path) -> SmallCascade:
    return plan_small(config)


@pytest.fixture(scope="module")
def whole(cascade: SmallCascade) -> Snapshot:
    """What an undisturbed run leaves."""
    cascade.at("faulty://undisturbed").run()
    return snapshot("faulty://undisturbed")


@pytest.fixture
def broken(cascade: SmallCascade, request: pytest.FixtureRequest) -> Iterator[SmallCascade]:
    """The same cascade into an empty folder of its own."""
    output = f"faulty://{request.node.name}"
    yield cascade.at(output)
    restore(output, {})


def _results(files: Snapshot) -> dict[str, bytes]:
    """What must be the same whatever happened: runs, measures, parts and topics, byte by byte."""
    return {name: content for name, content in files.items() if name.startswith("runs/") or name.endswith(".parquet")}


def _assert_status(cascade: SmallCascade, whole: Snapshot) -> None:
    stages = read_status(cascade.plan)
    assert [stage.done for stage in stages] == expected_status(snapshot(cascade.plan.output), whole, cascade.plan)


def _assert_as_undisturbed(cascade: SmallCascade, whole: Snapshot) -> None:
    output = cascade.plan.output
    left = snapshot(output)
    assert _results(left) == _results(whole)
    assert left.keys() == whole.keys()
    assert [stage.done for stage in read_status(read_plan(output))] == [4] * len(cascade.plan.stages)
    found = verify_stages(output)
    verify_runs(cascade.plan, cascade.config, found)
    assert (found.findings, found.notes, found.stray) == ([], [], 0)


def _run_until_done(cascade: SmallCascade, whole: Snapshot, attempts: int) -> int:
    """Runs again and again until nothing fails; returns how often it did."""
    for failures in range(attempts):
        try:
            cascade.run()
        except (BeamrankError, OSError):
            with failing(Faults()):
                _assert_status(cascade, whole)
            continue
        return failures
    pytest.fail(f"not done after {attempts} attempts")


@pytest.mark.parametrize("seed", _seeds(3))
def test_a_store_that_fails_now_and_then(broken: SmallCascade, whole: Snapshot, seed: int) -> None:
    with failing(Faults(seed, one_write_in=12, one_read_in=150)) as faults:
        failures = _run_until_done(broken, whole, attempts=60)
    assert failures >= 5, faults
    _assert_as_undisturbed(broken, whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        Faults(5, one_write_in=8, kinds=("refuse",)),
        Faults(5, one_write_in=8, kinds=("lose",)),
        Faults(5, one_write_in=8, kinds=("cut",)),
        Faults(5, one_read_in=60),
    ],
    ids=["refuse", "lose", "cut", "read"],
)
def test_a_store_that_fails_in_one_way(broken: SmallCascade, whole: Snapshot, faults: Faults) -> None:
    with failing(faults):
        failures = _run_until_done(broken, whole, attempts=60)
    assert failures >= 3, faults
    _assert_as_undisturbed(broken, whole)


def test_a_store_that_fills_up(broken: SmallCascade, whole: Snapshot) -> None:
    """It is full at a random byte, and at another one once someone has made room."""
    room = random.Random(7)
    for _ in range(4):
        with failing(Faults(free_bytes=room.randrange(500, 12_000))):
            with pytest.raises((BeamrankError, OSError), match="no space left"):
                broken.run()
            _assert_status(broken, whole)
    broken.run()
    _assert_as_undisturbed(broken, whole)


def _cut(content: bytes, drawn: random.Random) -> bytes:
    return content[: drawn.randrange(len(content))]


def _of_another_configuration(content: bytes, drawn: random.Random) -> bytes:
    """A receipt whose digest is another's; or a file that is none and has lost its last byte."""
    try:
        return json.dumps(json.loads(content) | {"digest": f"{drawn.getrandbits(256):064x}"}).encode()
    except ValueError:
        return content[:-1]


def _gone(content: bytes, drawn: random.Random) -> None:
    return None


@pytest.mark.parametrize("seed", _seeds(8))
def test_what_was_damaged_after_its_receipt(broken: SmallCascade, whole: Snapshot, seed: int) -> None:
    """Receipts, parts and seals are cut short, replaced by another configuration's or deleted, at random."""
    drawn = random.Random(seed)
    names = [name for name in whole if "/" in name and not name.startswith("runs/") and "/scans/" not in name]
    files: dict[str, bytes] = dict(whole)
    for name in drawn.sample(names, drawn.randrange(1, 9)):
        damaged = drawn.choice([_cut, _of_another_configuration, _gone])(files[name], drawn)
        if damaged is None:
            del files[name]
        else:
            files[name] = damaged
    if drawn.random() < 0.7:
        # Else a stage is whole by its seal, whatever became of the receipts in it.
        files = {name: content for name, content in files.items() if "/manifest-" not in name}
    files = {name: content for name, content in files.items() if not name.startswith("runs/")}
    restore(broken.plan.output, files)
    broken.plan.publish()
    _assert_status(broken, whole)
    broken.run()
    assert _results(snapshot(broken.plan.output)) == _results(whole)
    assert [stage.done for stage in read_status(broken.plan)] == [4] * len(broken.plan.stages)


def _files_written(count: int) -> Callable[[Path], bool]:
    return lambda output: len(_files(output)) >= count


def _files(output: Path) -> dict[str, bytes]:
    """What lies in a folder at this moment, less what is being written; a file may go while it is read."""
    found: dict[str, bytes] = {}
    for path in output.rglob("*"):
        with contextlib.suppress(OSError):
            if not path.name.endswith(".tmp"):
                found[str(path.relative_to(output))] = path.read_bytes()
    return found


def _assert_status_of(output: Path, cascade: SmallCascade, whole: Snapshot) -> None:
    plan = cascade.at(str(output)).plan
    assert [stage.done for stage in read_status(plan)] == expected_status(_files(output), whole, plan)


def _finish(output: Path, cascade: SmallCascade, whole: Snapshot) -> None:
    cascade.at(str(output)).run()
    assert _results(_files(output)) == _results(whole)
    assert verify_stages(str(output)).findings == []


@pytest.mark.slow
def test_a_launcher_killed_at_random_moments(
    config: Path, cascade: SmallCascade, whole: Snapshot, tmp_path: Path
) -> None:
    """kill -9 when so many files are there, a few more each time; then once to the end."""
    output, drawn = tmp_path / "out", random.Random(13)
    for count in sorted(drawn.sample(range(3, len(whole) - 4), 4)):
        with started(config, output) as process:
            wait_until(_files_written(count), output, process)
            time.sleep(drawn.uniform(0, 0.02))
            process.kill()
            process.wait()
        _assert_status_of(output, cascade, whole)
    _finish(output, cascade, whole)


@pytest.mark.slow
def test_workers_killed_at_any_moment(config: Path, cascade: SmallCascade, whole: Snapshot, tmp_path: Path) -> None:
    """kill -9 of one of two worker processes: FnApiRunner would wait for it for ever."""
    output, drawn = tmp_path / "out", random.Random(17)
    for count in (8, 28):
        with started(config, output, *TWO_PROCESSES) as process:
            workers: list[psutil.Process] = []

            def at_work(folder: Path, count: int = count, workers: list[psutil.Process] = workers) -> bool:
                workers[:] = [child for child in children(process) if _is_worker(child)]
                return len(workers) == 2 and len(_files(folder)) >= count

            wait_until(at_work, output, process)
            drawn.choice(workers).kill()
            process.communicate(timeout=100)
        # It had nothing left to do, or the run ends and says so.
        assert process.returncode in (0, 1)
        _assert_status_of(output, cascade, whole)
    _finish(output, cascade, whole)


def _is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return WORKER_MODULE in process.cmdline()
    return False


def test_a_storage_that_fails_the_launcher_says_that_the_run_goes_on() -> None:
    with pytest.raises(BeamrankError, match=r"no space left.*run the same command again to resume"), resumable():
        raise OSError(ENOSPC, "no space left")
    with pytest.raises(BrokenPipeError), resumable():
        raise BrokenPipeError


@pytest.mark.slow
def test_a_disk_that_takes_no_more(config: Path, cascade: SmallCascade, whole: Snapshot, tmp_path: Path) -> None:
    """A real limit on this machine's disk cuts the first file that is larger in the middle."""
    output = tmp_path / "out"
    largest = max(len(content) for name, content in whole.items() if "/part-" in name)
    done = subprocess.run(
        [BEAMRANK, "run", str(config), "--output", str(output)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, largest - 1)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    message, log = done.stderr.splitlines()[-2:]
    assert log.startswith("log file: ")
    assert message.startswith("error: ")
    assert "File too large" in message
    assert "Finished shards are kept: make room, then run the same command again to resume" in message
    _assert_status_of(output, cascade, whole)
    _finish(output, cascade, whole)


@pytest.mark.slow
@pytest.mark.jvm
def test_javas_heap_exhausted(tmp_path: Path) -> None:
    """One topic of 200,000 words is more than the smallest heap holds; its shard alone is missing afterwards."""
    config, output = write_small(tmp_path), tmp_path / "out"
    values = yaml.safe_load(config.read_text())
    for name in ("candidates", "qrels", "mono", "duo"):
        del values[name]
    config.write_text(yaml.safe_dump(values | {"index": {"path": "index"}, "bm25": {"k": 9}}))
    with (tmp_path / "topics.tsv").open("a") as topics:
        topics.write(f"monster\tamber {' '.join(f'w{number:x}' for number in range(200_000))}\n")
    done = beamrank("run", config, "--output", output, BEAMRANK_JAVA_HEAP="64m")
    assert done.returncode == 1
    assert "Lucene cannot answer query_id 'monster'" in done.stderr
    assert "java.lang.OutOfMemoryError" in done.stderr
    assert "more memory: set BEAMRANK_JAVA_HEAP" in done.stderr
    (stage,) = read_status(read_plan(str(output)))
    kept = {path: path.stat().st_mtime_ns for path in output.glob("retrieve/receipts/0*.json")}
    assert stage.done == len(kept) < 4
    run_here(config, output)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    run_here(config, tmp_path / "undisturbed")
    assert run_bytes(output) == run_bytes(tmp_path / "undisturbed")
