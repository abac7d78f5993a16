"""The job server of an engine, as a child process.

Beam's own runners start a new job server for every job, and set signal handlers, which only a main thread may do.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import grpc
from apache_beam.utils.subprocess_server import pick_port

from beamrank.errors import BeamrankError, PreflightError
from pipelines.runners import child_of_launcher

_START_SECONDS = 120.0
_DYING_SECONDS = 2.0
_TAIL_BYTES = 2000

# The command of a job server, given its port and a folder for its temporary files.
Command = Callable[[int, str], list[str]]


@dataclass
class JobServer:
    """A job server that was started."""

    name: str
    endpoint: str
    process: "subprocess.Popen[bytes]"
    log: IO[bytes]

    @classmethod
    def start(cls, name: str, command: Command) -> "JobServer":
        """Starts a job server and waits until it accepts connections.

        Raises:
            PreflightError: it ended, or accepts no connections.
        """
        (port,) = pick_port(None)
        folder = tempfile.mkdtemp(prefix=f"beamrank-{name}-")
        # Has no name, so it never has to be removed.
        log = tempfile.TemporaryFile()  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, "-S", str(Path(child_of_launcher.__file__)), folder, *command(port, folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # A terminal sends Ctrl-C to the whole process group; the launcher ends its children itself.
            start_new_session=True,
        )
        server = cls(name, f"localhost:{port}", process, log)
        server._wait_until_ready()
        return server

    def check(self) -> None:
        """Raises BeamrankError if the server has ended."""
        if self.process.poll() is not None:
            raise BeamrankError(
                f"the job server of {self.name} died with code {self.process.returncode}{self.log_tail()}. Finished "
                "shards are kept: run the same command again to resume"
            )

    def log_tail(self) -> str:
        """The end of the server's output, as part of a sentence."""
        size = os.fstat(self.log.fileno()).st_size
        tail = os.pread(self.log.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace").strip()
        return f"; its last output: {tail}" if tail else ""

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        with grpc.insecure_channel(self.endpoint) as channel:
            ready = grpc.channel_ready_future(channel)
            while time.monotonic() < deadline and self.process.poll() is None:
                with contextlib.suppress(grpc.FutureTimeoutError):
                    ready.result(timeout=0.2)
                    return
            ready.cancel()
        self.process.terminate()
        raise PreflightError(f"the job server of {self.name} did not start{self.log_tail()}")


_servers: dict[str, JobServer] = {}


def job_endpoint(name: str, command: Command) -> str:
    """The address of an engine's job server. Jobs share it, because a Java server takes seconds to start."""
    server = _servers.get(name)
    if server is None or server.process.poll() is not None:
        server = _servers[name] = JobServer.start(name, command)
    return server.endpoint


def check_job_server(endpoint: str | None, error: BaseException | None = None) -> None:
    """Raises BeamrankError if the job server at an address was started here and has died.

    Args:
        endpoint: the address.
        error: the error of a job that failed. A connection breaks before its process has ended.
    """
    servers = [server for server in _servers.values() if server.endpoint == endpoint]
    deadline = time.monotonic() + (_DYING_SECONDS if isinstance(error, grpc.RpcError) else 0.0)
    while servers:
        servers[0].check()
        if time.monotonic() >= deadline:
            return
        time.sleep(0.05)
