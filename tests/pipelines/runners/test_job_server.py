"""Job servers as processes: they start, die with their launcher, and are missed when they die before it."""

import contextlib
import subprocess
import sys
import time

import apache_beam as beam
import psutil
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beamrank.errors import BeamrankError, PreflightError
from pipelines.runners import child_of_launcher
from pipelines.runners.job_server import JobServer, job_endpoint
from pipelines.runners.subprocesses import prepare_environment
from pipelines.runners.watchdog import run_watched
from tests.support.processes import with_argument

# Beam's own job server, in a process.
_LOCAL = """
import sys, time
from apache_beam.runners.portability.local_job_service import LocalJobServicer
server = LocalJobServicer()
server.start_grpc_server(int(sys.argv[1]))
time.sleep(600)
"""


def _wait(seconds, process):
    _, alive = psutil.wait_procs([process], timeout=seconds)
    return not alive


@pytest.fixture
def folder(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "file").touch()
    return own


def _tethered(folder, program):
    return [sys.executable, "-S", child_of_launcher.__file__, str(folder), sys.executable, "-S", "-c", program]


def test_child_of_launcher_does_not_outlive_a_killed_launcher(folder):
    """Killed with SIGKILL, a launcher can do nothing more for its programs."""
    program = "import time; print('here', flush=True); time.sleep(600)"
    command = [sys.executable, "-c", f"import subprocess; subprocess.run({_tethered(folder, program)!r})"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"here\n"
        below = psutil.Process(launcher.pid).children(recursive=True)
        assert len(below) == 2
        launcher.kill()
    assert all(_wait(20, process) for process in below)
    assert not folder.exists()


def test_child_of_launcher_ends_its_program_when_terminated(folder):
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(_tethered(folder, program), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        (below,) = psutil.Process(process.pid).children()
        process.terminate()
        assert process.wait(10) == 1
    assert _wait(1, below)
    assert not folder.exists()


@pytest.mark.parametrize(("program", "code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_child_of_launcher_returns_the_exit_code(program, code, folder):
    assert subprocess.run(_tethered(folder, program), check=False).returncode == code
    assert not folder.exists()


def test_job_server_that_does_not_start_shows_its_output():
    command = [sys.executable, "-S", "-c", "raise SystemExit('no such master')"]
    with pytest.raises(PreflightError, match="the job server of test did not start; its last output: no such master"):
        JobServer.start("test", lambda port, folder: command)


class WaitFn(beam.DoFn):
    def process(self, seconds):
        time.sleep(seconds)
        yield seconds


def _pipeline(endpoint, seconds):
    flags = ["--runner=PortableRunner", f"--job_endpoint={endpoint}", "--environment_type=LOOPBACK"]
    pipeline = beam.Pipeline(options=PipelineOptions(flags))
    _ = pipeline | beam.Create([seconds]) | beam.Reshuffle() | beam.ParDo(WaitFn())
    return pipeline


def _server_processes():
    return with_argument(psutil.Process().children(recursive=True), "LocalJobServicer")


def test_job_server_is_reused_and_restarted_after_it_died():
    prepare_environment()

    def command(port, _):
        return [sys.executable, "-c", _LOCAL, str(port)]

    first = job_endpoint("test", command)
    run_watched(_pipeline(first, 0.0), lambda: 0, 60)
    assert job_endpoint("test", command) == first
    steps = iter(range(100_000))

    def kill_it():
        step = next(steps)
        if step == 8:
            _server_processes()[-1].kill()
        return step

    start = time.monotonic()
    with pytest.raises(BeamrankError, match=r"the job server of test died with code 137.* again to resume"):
        run_watched(_pipeline(first, 60.0), kill_it, 60)
    assert time.monotonic() - start < 20
    assert not _server_processes()
    second = job_endpoint("test", command)
    assert second != first
    run_watched(_pipeline(second, 0.0), lambda: 0, 60)
    for process in _server_processes():
        # The program ends with its child_of_launcher, which is the one before it.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
