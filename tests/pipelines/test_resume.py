"""Jobs that are killed, interrupted, run twice at once or damaged in between, and what the next run makes of them."""

import contextlib
import json
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
import yaml

from beamrank.stages.plan import read_plan
from beamrank.stages.status import read_status
from pipelines.runners.options import WORKER_MODULE
from tests.support.bert import save_minilm
from tests.support.cascades import beamrank, beamrank_here, run_bytes
from tests.support.processes import (
    TWO_PROCESSES,
    Moment,
    a_file,
    children,
    committed,
    parts,
    receipts,
    started,
    undisturbed_run,
    wait_until,
)

pytestmark = pytest.mark.jvm
slow = pytest.mark.slow
RESUME = "run the same command again to resume"


@pytest.fixture(scope="module")
def config_path(config_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same collection with two layers of a real BERT, which take so long that a run is met in the middle of it."""
    folder = tmp_path_factory.mktemp("wide")
    values = yaml.safe_load(config_path.read_text())
    for name, segments in (("mono", 2), ("duo", 3)):
        values[name]["checkpoint"] = save_minilm(folder / name, segments, segments, layers=2)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def _finish(config: Path, output: Path, *arguments: str) -> str:
    """Runs to the end; the result must be that of an undisturbed run. Returns standard error."""
    before = committed(output)
    done = beamrank_here("run", config, "--output", output, *arguments)
    assert done.returncode == 0, done.stderr
    expected = undisturbed_run(config)
    assert run_bytes(output) == run_bytes(expected)
    assert parts(output) == parts(expected)
    after = committed(output)
    assert {name: after[name] for name in before} == before
    left = [path.name for path in output.rglob("*") if path.name.endswith((".tmp", ".bin"))]
    assert left == []
    return done.stderr


def _before_mono(config: Path, output: Path) -> None:
    """Copies what a run has before monoBERT, so that worker processes are started for scoring alone."""
    shutil.copytree(undisturbed_run(config), output, ignore=shutil.ignore_patterns("mono", "duo", "runs"))


@pytest.mark.parametrize(
    "moments",
    [
        [receipts("mono", 1)],
        pytest.param(
            [
                a_file("plan-*.json"),
                receipts("retrieve", 1),
                a_file("tokenize-*/needed-*.bin"),
                receipts("mono", 1),
                receipts("mono", 3),
                receipts("duo", 2),
            ],
            marks=slow,
        ),
    ],
    ids=["once", "six times"],
)
def test_killed_run_resumes_where_it_was(config_path: Path, tmp_path: Path, moments: list[Moment]) -> None:
    output = tmp_path / "out"
    later = random.Random(20)
    kept: dict[str, tuple[int, int, int]] = {}
    for moment in moments:
        with started(config_path, output) as process:
            wait_until(moment, output, process)
            time.sleep(later.uniform(0, 0.1))
            process.kill()
            process.wait()
        now = committed(output)
        assert {name: now[name] for name in kept} == kept
        kept = now
        done = Counter(name.split("/")[0] for name in kept if "receipts" in name)
        assert {stage.stage: stage.done for stage in read_status(read_plan(str(output))) if stage.done} == done
    _finish(config_path, output)


@pytest.mark.parametrize(
    ("moment", "number", "arguments"),
    [
        (a_file("plan-*.json"), signal.SIGTERM, ()),
        pytest.param(receipts("retrieve", 1), signal.SIGINT, (), marks=slow),
        pytest.param(receipts("mono", 1), signal.SIGINT, (), marks=slow),
        pytest.param(receipts("duo", 1), signal.SIGINT, ("--runner", "embed"), marks=slow),
        pytest.param(receipts("mono", 1), signal.SIGINT, TWO_PROCESSES, marks=slow),
    ],
    ids=["planned", "java searches", "torch scores", "job server", "worker processes"],
)
def test_signals_end_it_within_seconds(
    config_path: Path, tmp_path: Path, moment: Moment, number: signal.Signals, arguments: tuple[str, ...]
) -> None:
    output = tmp_path / "out"
    if arguments is TWO_PROCESSES:
        _before_mono(config_path, output)
    with started(config_path, output, *arguments) as process:
        wait_until(moment, output, process)
        below = children(process)
        assert len(below) >= (2 if arguments is TWO_PROCESSES else 0)
        process.send_signal(number)
        sent = time.monotonic()
        talk = process.communicate(timeout=20)[1]
        assert time.monotonic() - sent < 8
    assert process.returncode == 128 + number
    assert talk.splitlines()[-1] == f"interrupted: finished shards are kept; {RESUME}"
    assert "Traceback" not in talk
    _, alive = psutil.wait_procs(below, timeout=3)
    assert alive == []


@slow
def test_an_interrupted_run_goes_on_where_it_was(config_path: Path, tmp_path: Path) -> None:
    with started(config_path, tmp_path / "out") as process:
        wait_until(receipts("mono", 1), tmp_path / "out", process)
        process.terminate()
        process.communicate(timeout=20)
    assert "retrieve: all 4 shards are there already" in _finish(config_path, tmp_path / "out")


def _workers(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    found = []
    for child in children(process):
        with contextlib.suppress(psutil.Error):
            if WORKER_MODULE in child.cmdline():
                found.append(child)
    return found


def test_a_dead_worker_ends_the_run_which_goes_on_from_there(config_path: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    _before_mono(config_path, output)
    with started(config_path, output, *TWO_PROCESSES) as process:
        workers: list[psutil.Process] = []

        def a_shard_is_done(output: Path) -> bool:
            # Looked up before, so that the worker dies while it has another shard to do.
            workers[:] = _workers(process)
            return receipts("mono", 1)(output)

        wait_until(a_shard_is_done, output, process)
        assert len(workers) == 2
        workers[0].kill()
        talk = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert talk.splitlines()[-1].startswith(f"error: worker process {workers[0].pid} died")
    assert RESUME in talk
    assert "Traceback" not in talk
    assert "mono: resuming" in _finish(config_path, output)


@slow
def test_workers_do_not_outlive_a_killed_launcher(config_path: Path, tmp_path: Path) -> None:
    with started(config_path, tmp_path / "out", *TWO_PROCESSES) as process:
        wait_until(receipts("retrieve", 1), tmp_path / "out", process)
        below = children(process)
        assert len(below) == 2
        process.kill()
        _, alive = psutil.wait_procs(below, timeout=30)
    assert alive == []


@slow
def test_a_stage_that_stands_still_is_taken_for_dead(config_path: Path, tmp_path: Path) -> None:
    done = beamrank("run", config_path, "--output", tmp_path / "out", "--set", "stall_minutes=0.002")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no shard was finished in 0.002 minutes (stall_minutes)")
    assert RESUME.capitalize() in done.stderr


@slow
def test_two_runs_at_once_leave_one_result(config_path: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with started(config_path, output) as first, started(config_path, output) as second:
        for process in (first, second):
            talk = process.communicate(timeout=200)[1]
            assert process.returncode == 0, talk
    expected = undisturbed_run(config_path)
    assert run_bytes(output) == run_bytes(expected)
    assert parts(output) == parts(expected)
    assert len(list(output.glob("*/receipts/*"))) == len(list(output.glob("*/part-*"))) == 16


def test_what_was_damaged_between_runs_is_done_again(config_path: Path, tmp_path: Path) -> None:
    expected = undisturbed_run(config_path)
    output = tmp_path / "out"
    shutil.copytree(expected, output)
    shutil.rmtree(output / "runs")
    for manifest in output.glob("*/manifest-*.json"):
        manifest.unlink()
    cut, other, spared = sorted((output / "mono/receipts").iterdir())[:3]
    cut.write_bytes(cut.read_bytes()[:100])
    other.write_text(json.dumps(json.loads(other.read_text()) | {"digest": "0" * 64}))
    min((output / "retrieve").glob("part-*")).unlink()
    min((output / "duo").glob("part-*")).write_bytes(b"PAR1")
    stages = json.loads(beamrank_here("status", output, "--json").stdout)["stages"]
    assert [stage.pop("stage").split("-")[0] for stage in stages] == ["retrieve", "tokenize", "mono", "duo"]
    assert stages[0]["eta_seconds"] >= 0
    assert [(stage["shards"], stage["bad_rows"]) for stage in stages] == [(4, 0)] * 4
    # What the others must carry is not known until retrieve is whole.
    assert [stage["done"] for stage in stages] == [3, 0, 0, 0]
    assert [stage["eta_seconds"] for stage in stages[1:]] == [None] * 3
    before = committed(output)[f"mono/receipts/{spared.name}"]
    done_again = beamrank_here("run", config_path, "--output", output)
    assert done_again.returncode == 0, done_again.stderr
    assert "mono: resuming, 2 of 4 shards are there" in done_again.stderr
    assert "retrieve: resuming, 3 of 4 shards are there" in done_again.stderr
    assert "duo: resuming, 3 of 4 shards are there" in done_again.stderr
    assert run_bytes(output) == run_bytes(expected)
    assert parts(output) == parts(expected)
    assert committed(output)[f"mono/receipts/{spared.name}"] == before
