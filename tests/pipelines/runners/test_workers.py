"""Child processes: their environment, programs that end with their launcher, and a pool of
workers.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_fn_api_pb2 as api
from apache_beam.portability.api import beam_fn_api_pb2_grpc as services
from apache_beam.portability.api import endpoints_pb2

from beamrank.errors import PreflightError
from beamrank.storage.disk_cache import cache_root
from pipelines.runners.workers import (
    Ending,
    Interrupted,
    child_command,
    child_processes,
    end_children,
    job_environment,
    prepare_environment,
    share_pools,
)
from tests.support.processes import BEAMRANK, PATIENCE_SECONDS, with_argument
from tests.support.tiers import slow_but

_CALL = """
import os
from concurrent.futures import ThreadPoolExecutor
import grpc
from pipelines.runners.workers import prepare_environment
prepare_environment()
server = grpc.server(ThreadPoolExecutor(1))
# Of `localhost`, IPv6 may have a free port that is taken in IPv4.
port = server.add_insecure_port("127.0.0.1:0")
server.start()
for host in ("localhost", "127.0.0.1"):
    grpc.channel_ready_future(grpc.insecure_channel(f"{host}:{port}")).result(timeout=300)
print("called", os.environ["http_proxy"], flush=True)
os._exit(0)
"""


class _Deaf:
    """An object whose end cannot raise, as C code that calls Python."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)


def test_interruption_that_cannot_be_raised_comes_again(monkeypatch):
    ending = Ending()
    monkeypatch.setattr(sys, "unraisablehook", ending.raise_again)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
    signal.signal(signal.SIGINT, ending.handle)
    try:
        _Deaf()
        with pytest.raises(Interrupted) as raised:
            time.sleep(5)
        assert raised.value.exit_code == 130
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_calls_to_this_machine_do_not_go_through_a_proxy():
    proxies = dict.fromkeys(
        ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY"), "http://127.0.0.1:9"
    )
    environment = {
        name: value for name, value in os.environ.items() if "proxy" not in name.lower()
    } | proxies
    done = subprocess.run(
        [sys.executable, "-c", _CALL], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "called http://127.0.0.1:9\n", done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "localhost,127.0.0.1,::1"),
        ({"no_proxy": "store.example, 10.0.0.1"}, "store.example,10.0.0.1,localhost,127.0.0.1,::1"),
        (
            {"no_grpc_proxy": "a.example", "no_proxy": "b.example"},
            "a.example,localhost,127.0.0.1,::1",
        ),
    ],
)
def test_hosts_that_a_user_spares_stay(monkeypatch, before, after):
    for name in ("PATH", "PYTHONSAFEPATH", "OMP_WAIT_POLICY", "no_grpc_proxy", "no_proxy"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    for name in ("no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        prepare_environment()
        assert dict(os.environ)["no_grpc_proxy"] == after
        assert os.environ.get("no_proxy") == before.get("no_proxy")


@contextlib.contextmanager
def _reading_its_configuration(tmp_path, preexec):
    """A command that has set up its handlers of signals, and what it reads."""
    pipe = tmp_path / "config"
    os.mkfifo(pipe)
    with (
        subprocess.Popen(
            [BEAMRANK, "plan", str(pipe)], stderr=subprocess.PIPE, text=True, preexec_fn=preexec
        ) as process,
        open(pipe, "w") as content,
    ):
        yield process, content


@pytest.mark.parametrize("number", slow_but(1, [signal.SIGINT, signal.SIGHUP, signal.SIGTERM]))
def test_signal_ends_a_command_unless_it_was_ignored_at_the_start(tmp_path, number):
    # pytest may run under nohup, which ignores SIGHUP.
    usual, ignore = (
        partial(signal.signal, number, each) for each in (signal.SIG_DFL, signal.SIG_IGN)
    )
    with _reading_its_configuration(tmp_path, usual) as (process, _):
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == 128 + number
    (tmp_path / "config").unlink()
    with _reading_its_configuration(tmp_path, ignore) as (process, content):
        process.send_signal(number)
        content.write("not a mapping")
        content.close()
        assert process.wait(PATIENCE_SECONDS) == 2


def test_command_ends_no_process_that_it_was_started_with():
    """The shell that starts a command with `exec` hands its own child processes on."""
    script = f"sleep 300 > /dev/null 2>&1 & echo $!; exec {BEAMRANK} --version"
    done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    others = psutil.Process(int(done.stdout.split()[0]))
    assert others.status() != psutil.STATUS_ZOMBIE
    others.kill()


def test_children_that_end_are_those_below_this_process_but_not_below_others():
    sleeping = [
        sys.executable,
        "-S",
        "-c",
        "import time; print('here', flush=True); time.sleep(300)",
    ]
    nested = f"import subprocess; subprocess.run({sleeping!r})"
    with _started([sys.executable, "-S", "-c", nested]) as own, _started(sleeping) as other:
        before = [child.pid for child in child_processes() if child.pid != own.pid]
        below = psutil.Process(own.pid).children()
        end_children(before)
        ended = psutil.wait_procs(below, timeout=PATIENCE_SECONDS)[0]
        assert (own.poll() is None, len(ended), other.poll()) == (False, 1, None)
        other.kill()


def test_home_of_a_user_without_one_is_that_of_containers(monkeypatch):
    monkeypatch.delenv("BEAMRANK_CACHE", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert job_environment()["HOME"] == "/"
    with pytest.raises(PreflightError, match="BEAMRANK_CACHE or HOME"):
        cache_root()
    monkeypatch.setenv("HOME", "/of/mine")
    assert job_environment()["HOME"] == "/of/mine"
    assert str(cache_root()) == "/of/mine/.cache/beamrank"


@pytest.fixture
def folder(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "file").touch()
    return own


def _child(folder, program):
    return child_command(str(folder), sys.executable, "-S", "-c", program)


def _started(command):
    """A process whose program has printed its first line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"here\n"
    return process


def test_child_does_not_outlive_a_killed_launcher(folder):
    """Killed with SIGKILL, a launcher can do nothing more for its programs."""
    child = _child(folder, "import time; print('here', flush=True); time.sleep(600)")
    with _started(
        [sys.executable, "-c", f"import subprocess; subprocess.run({child!r})"]
    ) as launcher:
        below = psutil.Process(launcher.pid).children(recursive=True)
        assert len(below) == 2
        launcher.kill()
    assert not psutil.wait_procs(below, timeout=PATIENCE_SECONDS)[1]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("number", "code"), slow_but(1, [(signal.SIGKILL, -9), (signal.SIGTERM, 1)])
)
def test_child_ends_its_program_when_it_is_ended(folder, number, code):
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    with _started(
        _child(folder, f"{ignores}; print('here', flush=True); time.sleep(600)")
    ) as process:
        below = psutil.Process(process.pid).children()
        assert len(below) == 1
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == code
    assert not psutil.wait_procs(below, timeout=PATIENCE_SECONDS)[1]
    assert folder.exists() == (number == signal.SIGKILL)


@pytest.mark.parametrize(
    ("program", "code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_child_returns_the_exit_code(program, code, folder):
    assert subprocess.run(_child(folder, program), check=False).returncode == code
    assert not folder.exists()


class _Client(services.BeamFnControlServicer):
    """A Java process that has a worker and nothing for it to do."""

    def __init__(self):
        self.has_worker = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(2))
        services.add_BeamFnControlServicer_to_server(self, self._server)
        self.endpoint = endpoints_pb2.ApiServiceDescriptor(
            url=f"localhost:{self._server.add_insecure_port('localhost:0')}"
        )
        self._server.start()

    def Control(self, request_iterator, context):
        self.has_worker.set()
        hung_up = threading.Event()
        context.add_callback(hung_up.set)
        hung_up.wait()
        yield from ()

    def hang_up(self):
        self._server.stop(0)


@pytest.fixture
def pool():
    prepare_environment()
    address, server = share_pools().start(use_process=True)
    with grpc.insecure_channel(address) as channel:
        yield services.BeamFnExternalWorkerPoolStub(channel)
    server.stop(0)
    for worker in _workers():
        worker.kill()


def _workers():
    return with_argument(psutil.Process().children(), "SdkHarness")


def _start(pool, number, client):
    before = _workers()
    assert not pool.StartWorker(
        api.StartWorkerRequest(worker_id=number, control_endpoint=client.endpoint)
    ).error
    deadline = time.monotonic() + PATIENCE_SECONDS
    # Linux lets the parent of a new program continue before the program's command line can be read.
    while not (new := set(_workers()) - set(before)):
        assert time.monotonic() < deadline, "the pool started no worker"
        time.sleep(0.01)
    (worker,) = new
    return worker


def _stop(pool, number):
    pool.StopWorker(api.StopWorkerRequest(worker_id=number))


@pytest.mark.slow
def test_worker_pool_clients_are_independent(pool):
    first, second = _Client(), _Client()
    one, same, other = (
        _start(pool, "1-1", first),
        _start(pool, "1-1", second),
        _start(pool, "1-2", first),
    )
    _stop(pool, "1-1")
    assert set(_workers()) == {one, same, other}
    _stop(pool, "1-2")
    assert set(_workers()) == {one, same}
    assert first.has_worker.wait(PATIENCE_SECONDS)
    first.hang_up()
    psutil.wait_procs([one], timeout=PATIENCE_SECONDS)
    assert _workers() == [same]
    second.hang_up()
