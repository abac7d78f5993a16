"""Runs that are broken at random moments, with fixed seeds, and what they leave: the bytes of an
undisturbed run.
"""

import contextlib
import json
import random
import resource
import subprocess
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path

import pytest

from beamrank.commit.check import verify_stages
from beamrank.commit.plan import read_plan
from beamrank.commit.status import read_status
from beamrank.errors import BeamrankError
from models.stages.core import open_stages
from pipelines.launcher import resumable
from pipelines.runs.verify_runs import verify_runs
from tests.support.processes import (
    BEAMRANK,
    beamrank,
)
from tests.support.runs import PlannedRun, run_bytes
from tests.support.services.faulty_store import (
    Faults,
    Snapshot,
    expected_status,
    failing,
    restore,
    snapshot,
)
from tests.support.small_collection import SmallCollection, small_cascade

slow = pytest.mark.slow


def _seeds(count: int) -> list:
    """The first of so many seeds in the first tier of tests, the others in the second."""
    return [0, *(pytest.param(seed, marks=slow) for seed in range(1, count))]


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> SmallCollection:
    return small_cascade(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def cascade(collection) -> PlannedRun:
    return collection.plan()


@pytest.fixture(scope="module")
def whole(cascade) -> Snapshot:
    """What an undisturbed run leaves."""
    cascade.at("faulty://undisturbed").run()
    return snapshot("faulty://undisturbed")


@pytest.fixture
def broken(cascade: PlannedRun, request) -> Iterator[PlannedRun]:
    """The same run into an empty folder of its own at the faulty store."""
    output = f"faulty://{request.node.name}"
    yield cascade.at(output)
    restore(output, {})


def _files(output: str) -> Snapshot:
    """The files of an output, less what is being written; a file on the disk may vanish while it is
    read.
    """
    if "://" in output:
        return snapshot(output)
    found: dict[str, bytes] = {}
    for path in Path(output).rglob("*"):
        with contextlib.suppress(OSError):
            if not path.name.endswith(".tmp"):
                found[str(path.relative_to(output))] = path.read_bytes()
    return found


def _results(files: Snapshot) -> Snapshot:
    """What must be the same whatever happened: runs, measures, parts and topics, byte by byte."""
    return {
        name: content
        for name, content in files.items()
        if name.startswith("runs/") or name.endswith(".parquet")
    }


def _assert_status_counts_what_is_whole(run: PlannedRun, whole: Snapshot) -> None:
    found = [stage.done for stage in read_status(run.plan)]
    assert found == expected_status(_files(run.plan.output), whole, run.plan)


def _assert_results_of_an_undisturbed_run(run: PlannedRun, whole: Snapshot) -> None:
    assert _results(_files(run.plan.output)) == _results(whole)
    assert [stage.done for stage in read_status(read_plan(run.plan.output))] == [
        len(run.plan.shards)
    ] * len(run.plan.stages)
    assert verify_stages(run.plan.output).findings == []


def _assert_no_trace_of_faults(run: PlannedRun, whole: Snapshot) -> None:
    _assert_results_of_an_undisturbed_run(run, whole)
    assert _files(run.plan.output).keys() == whole.keys()
    found = verify_stages(run.plan.output)
    verify_runs(run.plan, open_stages(run.plan.stages), run.config, found)
    assert (found.findings, found.notes, found.stray) == ([], [], 0)


_FAULTS = {
    **{f"any{seed}": Faults(seed, one_write_in=12, one_read_in=150) for seed in range(3)},
    **{kind: Faults(5, one_write_in=8, kinds=(kind,)) for kind in ("refuse", "lose", "cut")},
    "read": Faults(5, one_read_in=60),
}


@pytest.mark.parametrize(
    "name", ["any0", *(pytest.param(name, marks=slow) for name in list(_FAULTS)[1:])]
)
def test_resume_after_store_faults(broken: PlannedRun, whole, name) -> None:
    failures = 0
    with failing(_FAULTS[name]):
        while failures < 60:
            try:
                broken.run()
                break
            except (BeamrankError, OSError):
                failures += 1
                with failing(Faults()):
                    _assert_status_counts_what_is_whole(broken, whole)
    assert 3 <= failures < 60
    _assert_no_trace_of_faults(broken, whole)


def test_resume_after_a_full_store(broken: PlannedRun, whole) -> None:
    """It is full at a random byte, and at another one once there is room again."""
    room = random.Random(7)
    for _ in range(4):
        with failing(Faults(free_bytes=room.randrange(500, 12_000))):
            with pytest.raises((BeamrankError, OSError), match="no space left"):
                broken.run()
            _assert_status_counts_what_is_whole(broken, whole)
    broken.run()
    _assert_no_trace_of_faults(broken, whole)


def _cut(content: bytes, drawn: random.Random) -> bytes:
    return content[: drawn.randrange(len(content))]


def _with_another_digest(content: bytes, drawn: random.Random) -> bytes:
    """A receipt of another configuration; a file that is not one loses its last byte."""
    try:
        return json.dumps(
            json.loads(content) | {"digest": f"{drawn.getrandbits(256):064x}"}
        ).encode()
    except ValueError:
        return content[:-1]


@pytest.mark.parametrize("seed", _seeds(8))
def test_resume_repairs_corrupt_receipts_parts_and_manifests(
    broken: PlannedRun, whole, seed
) -> None:
    """They are cut short, replaced by another configuration's or deleted, at random."""
    drawn = random.Random(seed)
    files = {name: content for name, content in whole.items() if not name.startswith("runs/")}
    names = [name for name in files if "/" in name and "/scans/" not in name]
    for name in drawn.sample(names, drawn.randrange(1, 9)):
        damage = drawn.choice([_cut, _with_another_digest, None])
        content = files.pop(name)
        if damage:
            files[name] = damage(content, drawn)
    if drawn.random() < 0.7:
        # Otherwise a stage is complete by its manifest, whatever became of the receipts in it.
        files = {name: content for name, content in files.items() if "/manifest-" not in name}
    restore(broken.plan.output, files)
    broken.plan.publish()
    _assert_status_counts_what_is_whole(broken, whole)
    broken.run()
    assert _results(snapshot(broken.plan.output)) == _results(whole)
    assert [stage.done for stage in read_status(broken.plan)] == [4] * len(broken.plan.stages)


def test_full_disk_is_resumable_and_a_broken_pipe_is_not() -> None:
    with (
        pytest.raises(BeamrankError, match=r"no space left.*resume"),
        resumable(),
    ):
        raise OSError(ENOSPC, "no space left")
    with pytest.raises(BrokenPipeError), resumable():
        raise BrokenPipeError


@slow
def test_resume_after_a_full_disk(tmp_path) -> None:
    """A real limit on this machine's disk cuts the first file that is larger in the middle: a part,
    not the plan.
    """
    collection = small_cascade(tmp_path)
    collection.keys["shards"] = 1
    cascade = collection.plan()
    cascade.at("faulty://one-shard").run()
    whole, run = snapshot("faulty://one-shard"), cascade.at(tmp_path / "out")
    limit = max(len(content) for name, content in whole.items() if "/part-" in name) - 1
    done = subprocess.run(
        [BEAMRANK, "run", str(collection.path), "--output", str(tmp_path / "out")],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    message, log = done.stderr.splitlines()[-2:]
    assert log.startswith("log file: ")
    assert message.startswith("error: ")
    assert "File too large" in message
    assert (
        "Finished shards are kept: make room, then run the same command again to resume" in message
    )
    _assert_status_counts_what_is_whole(run, whole)
    _assert_results_of_an_undisturbed_run(run.run(), whole)


@slow
@pytest.mark.jvm
def test_resume_after_java_oom(tmp_path) -> None:
    """One topic of 200,000 words is more than the smallest heap holds; its shard alone is missing
    afterwards.
    """
    collection = SmallCollection(tmp_path).with_index()
    with (tmp_path / "topics.tsv").open("a") as topics:
        topics.write(f"monster\tamber {' '.join(f'w{number:x}' for number in range(200_000))}\n")
    done = beamrank("run", collection.path, BEAMRANK_JAVA_HEAP="64m")
    assert done.returncode == 1
    assert "'monster'" in done.stderr
    assert "java.lang.OutOfMemoryError" in done.stderr
    assert "BEAMRANK_JAVA_HEAP" in done.stderr
    (stage,) = read_status(read_plan(str(collection.output)))
    kept = {
        path: path.stat().st_mtime_ns
        for path in collection.output.glob("retrieve/receipts/0*.json")
    }
    assert stage.done == len(kept) < 4
    collection.run()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    collection.run(output=tmp_path / "undisturbed")
    assert run_bytes(collection.output) == run_bytes(tmp_path / "undisturbed")
