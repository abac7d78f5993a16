"""Engines that are programs of their own: the same bytes as `local`, and what a user sees when a
worker is lost.
"""

import contextlib
import shutil
import subprocess
import time

import apache_beam as beam
import psutil
import pytest

from beamrank.commit.plan import read_plan
from beamrank.errors import BeamrankError, PreflightError
from pipelines.runners.options import Runner, new_pipeline, server_command
from pipelines.runners.watchdog import run_watched
from pipelines.runners.workers import prepare_environment
from tests.support.processes import beamrank, without_progress
from tests.support.runs import assert_same_bytes, parts, run_bytes, table_bytes, undisturbed_run

_TOOLS = {"prism": "go", "spark": "mvn", "flink": "mvn"}
_ENGINES = [
    pytest.param("prism", marks=[pytest.mark.go, pytest.mark.slow]),
    pytest.param("spark", marks=[pytest.mark.maven, pytest.mark.slow]),
    # Of the three, Flink is the quickest to get and run where none is there yet.
    pytest.param("flink", marks=[pytest.mark.maven, pytest.mark.slow]),
]


def get_engine(name):
    """An engine, which is downloaded or built if it is missing; the test is skipped where that is
    not possible.
    """
    try:
        server_command(Runner(name), [])
    except PreflightError as error:
        if shutil.which(_TOOLS[name]):
            raise
        pytest.skip(str(error))


@pytest.fixture(params=_ENGINES)
def engine(request):
    get_engine(request.param)
    name: str = request.param
    return name


@pytest.mark.jvm
@pytest.mark.parametrize(
    "workers", ["in the launcher", pytest.param("in a pool", marks=pytest.mark.slow)]
)
def test_engines_write_the_same_bytes(config_path, tmp_path, engine, workers, request):
    expected = undisturbed_run(config_path)
    flags = []
    if workers == "in a pool":
        address = request.getfixturevalue("worker_pool")
        flags = ["--", "--environment_type=EXTERNAL", f"--environment_config={address}"]
    run = ("run", config_path, "--output", tmp_path / "out", "--set", "run_formats=[trec, parquet]")
    done = beamrank(*run, "--runner", engine, *flags)
    assert done.returncode == 0, done.stderr
    assert_same_bytes(tmp_path / "out", expected)
    assert len(parts(expected)) == 4 * 4
    tables = table_bytes(tmp_path / "out")
    assert len(tables) == 3 * (4 + 1)
    beamrank(*run, "--stage", "runs")
    assert table_bytes(tmp_path / "out") == tables
    words = [
        line.split()[0].partition("-")[0].rstrip(":") for line in without_progress(done.stderr)
    ]
    assert words == ["retrieve", "tokenize", "mono", "duo", *["wrote"] * 6, "no", "duo", "to"]


@pytest.mark.slow
@pytest.mark.jvm
def test_engines_reuse_scores_of_a_local_run(config_path, tmp_path, engine):
    earlier = undisturbed_run(config_path)
    flags = ("--runner", engine, "--reuse", earlier, "--set", "shards=3")
    done = beamrank("run", config_path, "--output", tmp_path / "out", *flags)
    assert done.returncode == 0, done.stderr
    assert run_bytes(tmp_path / "out") == run_bytes(earlier)
    plan = read_plan(str(tmp_path / "out"))
    for stage in ("mono", "duo"):
        manifest = plan.gather(stage)
        assert manifest is not None
        assert (manifest.total("inferences"), len(manifest.receipts)) == (0, 3)


@pytest.mark.slow
@pytest.mark.go
def test_prism_worker_that_is_lost_ends_the_job():
    get_engine("prism")
    prepare_environment()
    pipeline = new_pipeline(Runner.PRISM, ["--experiments=use_loopback_process_worker"])
    _ = pipeline | beam.Create([["sleep", "61"]]) | beam.Reshuffle() | beam.Map(subprocess.call)

    def kill_the_worker_at_work():
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.name() == "sleep" and "61" in child.cmdline():
                    worker = child.parent()
                    assert worker is not None
                    worker.kill()
                    child.kill()
        return 0

    # Prism misses a worker that dies just as it begins; then it is `stall_minutes` that ends the
    # job.
    with pytest.raises(
        BeamrankError, match=r"a worker process was lost|no shard made progress for"
    ):
        run_watched(pipeline, kill_the_worker_at_work, 20)


@pytest.mark.slow
@pytest.mark.go
def test_prism_job_may_take_longer_than_beams_timeout():
    """Beam takes `--job_server_timeout`, 300 by default, for the longest that a job of Prism may
    take.
    """
    get_engine("prism")
    pipeline = new_pipeline(Runner.PRISM, ["--job_server_timeout=2"])
    _ = pipeline | beam.Create([5.0]) | beam.Reshuffle() | beam.Map(time.sleep)
    start = time.monotonic()
    run_watched(pipeline, lambda: 0, 60)
    assert time.monotonic() - start > 5
    # The reason why a job failed comes through a stream that ends with the timeout.
    assert (
        new_pipeline(Runner.PRISM, []).options.get_all_options()["job_server_timeout"]
        > 30 * 24 * 3600
    )
