"""Runs that are killed, interrupted or executed twice at once, and how the next run resumes
them.
"""

import random
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from beamrank.commit import working
from beamrank.commit.listing import WORKING
from beamrank.commit.owner import running
from beamrank.commit.plan import read_plan
from beamrank.commit.status import read_status
from beamrank.errors import BeamrankError, DataError, WorkerLostError
from pipelines.launcher import Launcher
from tests.support.checkpoints import save_minilm
from tests.support.processes import (
    PATIENCE_SECONDS,
    TWO_PROCESSES,
    beamrank,
    children,
    file_exists,
    receipts_exist,
    started,
    succeed,
    wait_until,
    worker_processes,
)
from tests.support.runs import assert_same_bytes, committed, undisturbed_run
from tests.support.small_collection import small_cascade
from tests.support.tiers import slow_but

pytestmark = pytest.mark.jvm
slow = pytest.mark.slow
RESUME = "run the same command again to resume"


@pytest.fixture(scope="module")
def config_path(config_path: Path, tmp_path_factory) -> Path:
    """The same collection with two layers of a real BERT, which take so long that a run is met in
    the middle of it.
    """
    folder = tmp_path_factory.mktemp("wide")
    values = yaml.safe_load(config_path.read_text())
    for name, segments in (("mono", 2), ("duo", 3)):
        values[name]["checkpoint"] = save_minilm(folder / name, segments, segments, layers=2)
    for name in ("corpus", "topics", "index"):
        values[name]["path"] = str(config_path.parent / values[name]["path"])
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def _assert_resumes_to_the_same_bytes(config: Path, output: Path) -> str:
    """Runs to the end: the bytes of an undisturbed run, no receipt written again, no temporary
    file. Gives stderr.
    """
    before = committed(output)
    done = succeed("run", config, "--output", output)
    assert_same_bytes(output, undisturbed_run(config))
    after = committed(output)
    assert {name: after[name] for name in before} == before
    assert [
        path.name for pattern in ("*.tmp", "needed-*", "tasks-*") for path in output.rglob(pattern)
    ] == []
    return done.stderr


def _copy_before_mono(config: Path, output: Path) -> None:
    """Copies what a run has before monoBERT, so that worker processes are started for scoring
    alone.
    """
    shutil.copytree(
        undisturbed_run(config), output, ignore=shutil.ignore_patterns("mono", "duo", "runs")
    )


_EVERYWHERE = [
    file_exists("plan-*.json"),
    receipts_exist("retrieve", 1),
    file_exists("tokenize-*/needed-*.bin"),
    receipts_exist("mono", 1),
    receipts_exist("mono", 3),
    receipts_exist("duo", 2),
]


@pytest.mark.parametrize(
    "moments",
    [[receipts_exist("mono", 1)], pytest.param(_EVERYWHERE, marks=slow)],
    ids=["once", "six times"],
)
def test_resume_after_kill(config_path, tmp_path, moments) -> None:
    output, drawn = tmp_path / "out", random.Random(20)
    kept: dict[str, tuple[int, int, int]] = {}
    for moment in moments:
        with started(config_path, output) as process:
            wait_until(moment, output, process)
            time.sleep(drawn.uniform(0, 0.1))
            process.kill()
            process.wait()
        now = committed(output)
        assert {name: now[name] for name in kept} == kept
        kept = now
        done = Counter(name.split("/")[0] for name in kept if "receipts" in name)
        assert {
            stage.stage: stage.done for stage in read_status(read_plan(str(output))) if stage.done
        } == done
    _assert_resumes_to_the_same_bytes(config_path, output)


@slow
@pytest.mark.parametrize(
    ("moment", "number", "arguments"),
    [
        (file_exists("plan-*.json"), signal.SIGTERM, ()),
        (receipts_exist("retrieve", 1), signal.SIGINT, ()),
        (receipts_exist("mono", 1), signal.SIGINT, ()),
        (receipts_exist("duo", 1), signal.SIGINT, ("--runner", "embed")),
        (receipts_exist("mono", 1), signal.SIGINT, TWO_PROCESSES),
    ],
    ids=["planned", "java searches", "torch scores", "job server", "worker processes"],
)
def test_signal_ends_a_run_without_processes(config_path, tmp_path, moment, number, arguments):
    output = tmp_path / "out"
    if arguments is TWO_PROCESSES:
        _copy_before_mono(config_path, output)
    with started(config_path, output, *arguments) as process:
        wait_until(moment, output, process)
        below = children(process)
        assert len(below) >= (2 if arguments is TWO_PROCESSES else 0)
        process.send_signal(number)
        stderr = process.communicate(timeout=PATIENCE_SECONDS)[1]
    assert process.returncode == 128 + number
    # Where the signal finds the log file open, its name follows.
    assert f"interrupted: finished shards are kept; {RESUME}" in stderr.splitlines()[-2:]
    assert "Traceback" not in stderr
    assert psutil.wait_procs(below, timeout=20)[1] == []


def _events(output: Path) -> list[list[str]]:
    """The words of each line of the logs: time, level, stage, shard, process, logger, message."""
    lines = [line for path in output.glob("logs/*") for line in path.read_text().splitlines()]
    return [line.split(" ") for line in lines if not line.startswith(" ")]


def _logged(output: Path, stage: str, words: str) -> Counter[str]:
    """The shards of a stage of which the logs have an event."""
    return Counter(
        event[3]
        for event in _events(output)
        if event[2] == stage and " ".join(event[6:]).startswith(words)
    )


def _is_in_a_shard(output: Path, process: int) -> bool:
    words = Counter(
        event[6] for event in _events(output) if event[2] == "mono" and event[4] == str(process)
    )
    return words["started"] > words["done"]


@slow
@pytest.mark.parametrize("arguments", [(), TWO_PROCESSES], ids=["here", "worker processes"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_signal_leaves_time_to_the_shards_in_progress(
    config_path, tmp_path, number, arguments
) -> None:
    output = tmp_path / "out"
    _copy_before_mono(config_path, output)
    with started(config_path, output, *arguments) as process:

        def a_shard_is_started(output: Path) -> bool:
            return bool(_logged(output, "mono", "started"))

        wait_until(a_shard_is_started, output, process)
        process.send_signal(number)
        if number == signal.SIGHUP:
            # A lost terminal sends it to the whole process group, and the shell once more.
            for worker in worker_processes(process):
                worker.send_signal(number)
            process.send_signal(number)
        stderr = process.communicate(timeout=PATIENCE_SECONDS)[1]
    assert process.returncode == 128 + number
    assert f"{number.name}: no shard" in stderr
    assert running(str(output)) == []
    begun = _logged(output, "mono", "started")
    assert 1 <= len(begun) < 4
    assert begun == _logged(output, "mono", "done in")
    assert receipts_exist("mono", len(begun))(output)
    assert f"mono: resuming, {len(begun)} of 4 shards" in _assert_resumes_to_the_same_bytes(
        config_path, output
    )


@slow
def test_sigterm_without_grace_ends_a_run_at_once(config_path, tmp_path) -> None:
    output = tmp_path / "out"

    def is_in_a_shard(output: Path) -> bool:
        return _logged(output, "mono", "started") > _logged(output, "mono", "done in")

    with started(config_path, output, "--grace-seconds", "0") as process:
        wait_until(receipts_exist("mono", 1), output, process)
        wait_until(is_in_a_shard, output, process)
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 143
    assert _logged(output, "mono", "started") != _logged(output, "mono", "done in")
    assert "retrieve: all 4 shards are already complete" in _assert_resumes_to_the_same_bytes(
        config_path, output
    )


@slow
@pytest.mark.parametrize("kills", [1, 3])
def test_killed_worker_process_is_replaced_twice(config_path, tmp_path, kills) -> None:
    output, killed = tmp_path / "out", list[int]()
    _copy_before_mono(config_path, output)
    with started(config_path, output, *TWO_PROCESSES) as process:

        def a_worker_is_killed(_: Path) -> bool:
            # One of each attempt, in the middle of a shard: the other one may finish those that
            # were not started.
            if sum(event[6] == "retrying:" for event in _events(output)) < len(killed):
                return False
            for worker in worker_processes(process):
                # The others of an attempt that was given up are still ending.
                with suppress(psutil.NoSuchProcess):
                    worker.suspend()
                    if worker.pid not in killed and _is_in_a_shard(output, worker.pid):
                        worker.kill()
                        killed.append(worker.pid)
                        return True
                    worker.resume()
            return False

        for _ in range(kills):
            wait_until(a_worker_is_killed, output, process)
        stderr = process.communicate(timeout=120)[1]
    reasons = [
        f"worker process {pid} was killed by signal 9 (possibly out of memory)" for pid in killed
    ]
    for number, reason in enumerate(reasons[:2], 2):
        assert f"warning: retrying: {reason}; " in stderr
        assert f"of 4 shards are open; attempt {number} of 3" in stderr
    status = {stage.stage: list(stage.retries) for stage in read_status(read_plan(str(output)))}
    assert status["mono"] == reasons[:2]
    if kills == 1:
        assert process.returncode == 0
    else:
        assert process.returncode == 1
        assert f"error: {reasons[2]}; that was attempt 3 of 3" in stderr
        assert RESUME in stderr
        assert "Traceback" not in stderr
    _assert_resumes_to_the_same_bytes(config_path, output)


@slow
def test_killed_launcher_leaves_no_worker_process(config_path, tmp_path) -> None:
    with started(config_path, tmp_path / "out", *TWO_PROCESSES) as process:
        wait_until(receipts_exist("retrieve", 1), tmp_path / "out", process)
        below = children(process)
        assert len(below) == 2
        process.kill()
        assert psutil.wait_procs(below, timeout=30)[1] == []


@slow
def test_stall_ends_the_run(config_path, tmp_path) -> None:
    done = beamrank(
        "run", config_path, "--output", tmp_path / "out", "--set", "stall_minutes=0.002"
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: no shard made progress for 0.002 minutes (stall_minutes)")
    assert RESUME.capitalize() in done.stderr


@slow
def test_concurrent_runs_leave_one_result(config_path, tmp_path) -> None:
    output = tmp_path / "out"
    with started(config_path, output) as first, started(config_path, output) as second:
        for process in (first, second):
            stderr = process.communicate(timeout=200)[1]
            assert process.returncode == 0, stderr
    assert_same_bytes(output, undisturbed_run(config_path))
    assert len(list(output.glob("*/receipts/*"))) == len(list(output.glob("*/part-*"))) == 16


DIED = "worker process 7 was killed by signal 9"


def _failing(failures: list[Exception]) -> tuple[type[Launcher], list[int]]:
    """A launcher whose jobs of mono do one shard and fail, as the watchdog says it; and the tasks
    of each job.
    """
    jobs: list[int] = []

    class Failing(Launcher):
        def _run_job(self, stage, folder, digests, progress, tasks, work):
            if stage.name == "mono":
                jobs.append(len(tasks))
                if failures:
                    super()._run_job(stage, folder, digests, progress, tasks[:1], work)
                    raise failures.pop()
            super()._run_job(stage, folder, digests, progress, tasks, work)

    return Failing, jobs


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    collection = small_cascade(tmp_path_factory.mktemp("small"))
    collection.run()
    return collection


@pytest.mark.slow
def test_open_shards_are_started_again_twice(undisturbed, tmp_path, capfd) -> None:
    signed = "https://host/c?X-Amz-Signature=hunter2"
    launcher, jobs = _failing(
        [WorkerLostError(DIED), WorkerLostError(f"the job server of flink died: {signed}")]
    )
    run = undisturbed.plan(output=tmp_path).run(launcher)
    assert jobs == [4, 3, 2]
    assert_same_bytes(tmp_path, undisturbed.output)
    assert [status.retries for status in read_status(run.plan)][2] == (
        "the job server of flink died: https://host/c[hidden]",
        DIED,
    )
    assert f"retrying: {DIED}; 2 of 4 shards are open; attempt 3 of 3" in capfd.readouterr().err


@pytest.mark.slow
def test_count_of_another_process_is_progress(undisturbed, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(working, "TELL_SECONDS", 0.0)
    seen: list[object] = []

    class Looking(Launcher):
        def _run_job(self, stage, folder, digests, progress, tasks, work):
            if stage.name == "mono":
                name = WORKING.name(digests[1], 1)
                other = working.ShardProgress(1, f"{folder.url}/receipts/{name}")
                for inputs in (1, 0, 1):
                    if inputs:
                        other.add(inputs)
                    seen.append(progress())
            super()._run_job(stage, folder, digests, progress, tasks, work)

    undisturbed.plan(output=tmp_path).run(Looking)
    assert seen[0] == seen[1] != seen[2]
    assert_same_bytes(tmp_path, undisturbed.output)


def test_third_death_ends_the_run_and_it_resumes(undisturbed, tmp_path) -> None:
    launcher, jobs = _failing([WorkerLostError(DIED) for _ in range(3)])
    run = undisturbed.plan(output=tmp_path)
    with pytest.raises(
        BeamrankError, match=rf"{DIED}; that was attempt 3 of 3.*to resume"
    ) as raised:
        run.run(launcher)
    assert raised.value.exit_code == 1
    assert jobs == [4, 3, 2]
    run.run()
    assert_same_bytes(tmp_path, undisturbed.output)


@pytest.mark.parametrize("error", slow_but(1, [DataError("wrong"), BeamrankError("a stall")]))
def test_other_errors_are_not_tried_again(undisturbed, tmp_path, error) -> None:
    launcher, jobs = _failing([error])
    run = undisturbed.plan(output=tmp_path)
    with pytest.raises(type(error), match=str(error)):
        run.run(launcher)
    assert jobs == [4]
    assert [status.retries for status in read_status(run.plan)] == [()] * 4
