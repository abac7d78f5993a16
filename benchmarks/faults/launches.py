"""Launchers: processes of `beamrank` that are forked from one which has imported all, and faults
that they begin with.

Importing Beam and torch takes longer than a small run. A forked launcher is a process of its own,
with its own session.
"""

import ctypes
import fcntl
import multiprocessing
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import EACCES, EDQUOT, EIO, ENOSPC, EROFS
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import grpc._channel
import psutil

from benchmarks.faults.cases import Fault

TOKEN = "BEAMRANK_FAULTS_CASE"
"""The variable by which processes of a case are found."""
_PRELOADED = (
    *(
        "pipelines.main",
        "pipelines.cli",
        "pipelines.execute",
        "pipelines.commands.run",
        "pipelines.commands.output",
    ),
    *(
        "models.stages.core",
        "models.stages.mono",
        "models.stages.duo",
        "models.stages.tokenize",
        "ir_measures",
    ),
    *(
        "models.scoring.engine",
        "models.scoring.backends.torch",
        "models.architectures.families",
        "s3fs",
        "gcsfs",
    ),
    *("torch", "apache_beam.runners.portability.fn_api_runner", "tests.support.small_collection"),
    "benchmarks.faults.play",
)
_PIPE_BYTES = 1 << 20
_CALLS = ("fsync", "link", "replace", "makedirs", "scandir", "unlink", "open", "stat", "mkdir")
_ERRORS = (EIO, ENOSPC, EDQUOT, EACCES, EROFS)
_LIMITS = {
    # Less would cut the log.
    "a file-size limit": (resource.RLIMIT_FSIZE, 600, 12_000),
    "a memory limit": (resource.RLIMIT_AS, 4 << 20, 400 << 20),
    "a limit of open files": (resource.RLIMIT_NOFILE, 12, 60),
}
# Of `capabilities`: to write, and to read, whatever the mode of a folder. And a call of `prctl`.
_ROOTS_RIGHTS, _DROP_RIGHT = (1, 2), 24


class Ended(NamedTuple):
    """A launcher that ended; a negative code is a signal's."""

    arguments: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    hung: bool


class Launch:
    """A launcher that runs. What it writes to its streams goes through pipes, so that no limit of
    files cuts it.
    """

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        fault: Fault | None = None,
    ) -> None:
        """Starts it; `fault` is one of those that a launcher begins with."""
        self.arguments = tuple(arguments)
        self._streams = [_pipe(folder / f"{name}-{time.monotonic_ns()}") for name in ("out", "err")]
        paths = [path for path, _ in self._streams]
        self._process = _forked(_launch, self.arguments, dict(environment), paths, fault)
        self.pid: int = self._process.pid

    def send(self, number: int) -> None:
        """Sends a signal, where it still runs."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def runs(self, seconds: float = 0.0) -> bool:
        """Whether it still runs after so many seconds."""
        self._process.join(seconds)
        return bool(self._process.is_alive())

    def end(self, seconds: float) -> Ended:
        """Waits for its end; kills it after so many seconds."""
        hung = self.runs(seconds)
        if hung:
            self.send(signal.SIGKILL)
            self._process.join()
        out, err = (_drained(*stream) for stream in self._streams)
        return Ended(self.arguments, self._process.exitcode, out, err, hung)


def call_apart(function: Callable[..., object], *given: object) -> None:
    """Calls a function in a forked process; raises RuntimeError where it fails."""
    process = _forked(function, *given)
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"{function.__name__} ended with {process.exitcode}")


def children_of(pid: int) -> list[psutil.Process]:
    """All processes below one."""
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


@contextmanager
def pool_of_workers(folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """A pool that starts workers with the environment of a case; its process and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = _forked(_serve_pool, folder, dict(environment), port)
    try:
        yield process.pid, f"localhost:{port}"
    finally:
        for one in [*children_of(process.pid), process]:
            one.kill()


def processes_of(token: str) -> list[psutil.Process]:
    """The processes of a case that were started as programs, and still run."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(TOKEN) == token and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def _forked(function: Callable[..., object], *given: object) -> Any:
    process = _forking().Process(target=function, args=given)
    process.start()
    return process


@cache
def _forking() -> Any:
    # torch, transformers and gcsfs read them when they are imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    # With it, the server would not find these modules.
    os.environ.pop("PYTHONSAFEPATH", None)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    return context


def _pipe(path: Path) -> tuple[str, int]:
    os.mkfifo(path)
    # For both ways: its content outlives the writer.
    number = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(number, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return str(path), number


def _drained(path: str, number: int) -> str:
    content = b""
    with suppress(BlockingIOError):
        while True:
            content += os.read(number, _PIPE_BYTES)
    os.close(number)
    os.unlink(path)
    return content.decode(errors="replace")


def _serve_pool(folder: Path, environment: dict[str, str], port: int) -> None:
    from pipelines.runners import workers

    os.setsid()
    os.environ.update(environment)
    with (folder / "pool.txt").open("wb") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    workers._serve_pool(f"--service_port={port}")


def _launch(
    arguments: Sequence[str], environment: dict[str, str], paths: list[str], fault: Fault | None
) -> None:
    from pipelines.main import main

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in enumerate(paths, 1):
        os.dup2(os.open(path, os.O_WRONLY), number)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    os.environ.update(environment)
    tempfile.tempdir, sys.argv = None, ["beamrank", *arguments]
    if fault is not None:
        begin(fault)
    main()


def begin(fault: Fault) -> bool:
    """Puts a fault into this process, where it is one that a launcher begins with; returns whether
    it is.
    """
    drawn = fault.drawn
    if fault.kind in _LIMITS:
        which, *bounds = _LIMITS[fault.kind]
        own = psutil.Process().memory_info().vms if which == resource.RLIMIT_AS else 0
        resource.setrlimit(which, (own + drawn.randrange(*bounds),) * 2)
    elif fault.kind == "a system call that fails":
        name = drawn.choice(_CALLS)
        setattr(
            os, name, _failing(getattr(os, name), int(40 ** drawn.random()), drawn.choice(_ERRORS))
        )
    elif fault.kind == "a clock that jumps":
        by = drawn.choice((-1, 1)) * 10 ** drawn.uniform(0, 8)
        # gRPC's C code gets deadlines of its Python code, and its clock does not jump.
        vars(grpc._channel)["time"] = SimpleNamespace(time=time.time)
        time.time = _jumping(time.time, drawn.uniform(0, 1.5), by)
    elif fault.kind == "a read-only folder":
        _drop_rights()
    else:
        return False
    return True


def _failing(function: Callable[..., Any], call: int, error: int) -> Callable[..., Any]:
    left = [call]

    def fail_once(*given: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(
                error, os.strerror(error), *[path for path in given[:1] if isinstance(path, str)]
            )
        return function(*given, **named)

    return fail_once


def _jumping(now: Callable[[], float], after: float, by: float) -> Callable[[], float]:
    start = time.monotonic()
    return lambda: now() + (by if time.monotonic() - start > after else 0.0)


def _drop_rights() -> None:
    """Makes the mode of folders count for this process, and for those that it starts, as for any
    user.
    """
    if os.getuid() != 0:
        return
    library = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    library.capget(header, sets)
    for right in _ROOTS_RIGHTS:
        library.prctl(_DROP_RIGHT, right, 0, 0, 0)
        for at in range(3):
            sets[at] &= ~(1 << right)
    if library.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")
