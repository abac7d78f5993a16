"""Hosts of their own on this machine: network, file system, processes, name and one core, by Linux
namespaces; and beamrank's workers on them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from fasteners import InterProcessLock

from pipelines.runners.workers import child_command

BRIDGE = "beamrank"
LAUNCHER = "10.77.0.1"
POOL_PORT = 50_000
_SECONDS = 20.0


@dataclass(frozen=True)
class Place:
    """Where a process of a cluster runs: by default beside the launcher.

    Attributes:
        address: where others reach it.
        enter: the words before a command.
    """

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()

    def write(self, path: Path, text: str) -> None:
        """Writes a file of its file system."""
        script = 'mkdir -p "$(dirname "$0")" && cat > "$0"'
        subprocess.run(
            [*self.enter, "sh", "-c", script, str(path)], input=text, text=True, check=True
        )


class NoHostsError(RuntimeError):
    """This machine cannot have them."""


@dataclass
class Host:
    """A host: `boot` starts it with an empty folder in place of one of this machine; `crash` ends
    it without a word.

    Attributes:
        number: from 1.
        hidden: the folder of this machine that it does not see.
    """

    number: int
    hidden: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """Also that of its network namespace, and of its end of the cable."""
        return f"{BRIDGE}-{self.number}"

    @property
    def address(self) -> str:
        return f"10.77.0.{10 + self.number}"

    def connect(self) -> None:
        """Makes its network, on the bridge."""
        _ip("netns", "add", self.name)
        _ip("link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("link", "set", self.name, "master", BRIDGE, "up")
        _ip("-n", self.name, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", self.name, "link", "set", device, "up")

    def boot(self, folder: Path) -> None:
        """Starts it; its first process ends with this one."""
        _ip("link", "set", self.name, "up")
        names = f"127.0.0.1 localhost\\n{self.address} {self.name}\\n"
        script = (
            f'mount -t tmpfs none "{self.hidden}" && cd "{self.hidden}" && mkdir tmp && printf '
            f'"{names}" > hosts '
            f"&& mount --bind hosts /etc/hosts && hostname {self.name} && cd / && echo up"
        )
        spaces = ["--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
        command = [
            "ip",
            "netns",
            "exec",
            self.name,
            "unshare",
            *spaces,
            "sh",
            "-c",
            f"{script} && exec sleep infinity",
        ]
        folder.mkdir(parents=True)
        self._process = subprocess.Popen(
            child_command(str(folder), *command), stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        with self._process.stdout as said:
            assert said.readline() == b"up\n"

    @property
    def place(self) -> Place:
        """Where its processes run."""
        assert self._process is not None
        *_, first = psutil.Process(self._process.pid).children(recursive=True)
        spaces = ("--net", "--mount", "--pid", "--uts")
        temporary = (
            "env",
            f"TMPDIR={self.hidden}/tmp",
            f"JAVA_TOOL_OPTIONS=-Djava.io.tmpdir={self.hidden}/tmp",
        )
        cache = (f"BEAMRANK_CACHE={self.hidden}/cache",)
        cores = sorted(os.sched_getaffinity(0))
        core = ("taskset", "--cpu-list", str(cores[self.number % len(cores)]))
        return Place(
            self.address, ("nsenter", f"--target={first.pid}", *spaces, *temporary, *cache, *core)
        )

    def crash(self) -> None:
        """Takes its network away, then all of its processes, so that nobody is told."""
        _ip("link", "set", self.name, "down")
        self.end()

    def end(self) -> None:
        """Ends all of its processes."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_SECONDS)


class Pools:
    """Beamrank's workers on some hosts, and the hosts that were lost."""

    def __init__(
        self, hosts: Sequence[Host], folder: Path, environment: Mapping[str, str], stack: ExitStack
    ) -> None:
        """Starts them, to end with the stack; `folder` is for logs."""
        self.lost: list[str] = []
        self._folder, self._environment, self._stack = folder, environment, stack
        for host in hosts:
            self._serve(host)

    def _serve(self, host: Host) -> None:
        pool = ["-m", "pipelines.runners.workers", "pool", f"--service_port={POOL_PORT}"]
        folder = self._folder / f"pool-{host.name}-{len(self.lost)}"
        command = [sys.executable, *pool]
        self._stack.enter_context(started(command, folder, self._environment, host.place))

    def lose(self, host: Host, join: Callable[[Place], None]) -> threading.Thread:
        """Crashes a host; the thread starts it again, with its workers and what `join` does."""

        def start() -> None:
            host.boot(self._folder / f"boot-{len(self.lost)}")
            self._serve(host)
            join(host.place)

        self.lost.append(host.name)
        host.crash()
        thread = threading.Thread(target=start)
        thread.start()
        return thread


@contextmanager
def started(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], place: Place
) -> Iterator[None]:
    """A process that ends with the `with` block, and with this process where that is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    program = shutil.which(command[0])
    assert program is not None
    tethered = child_command(str(folder / "tmp"), *place.enter, program, *command[1:])
    (folder / "tmp").mkdir()
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            tethered, stdout=log, stderr=log, env={**os.environ, **environment}
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[Host, Host]]:
    """Two hosts on a bridge with this machine, which has the address `LAUNCHER` there; one process
    at a time has them.

    Args:
        folder: the hosts have an empty one in its place.

    Raises:
        NoHostsError: this machine cannot have them.
    """
    hosts = Host(1, folder), Host(2, folder)
    with InterProcessLock(Path(tempfile.gettempdir()) / f"{BRIDGE}-hosts.lock"):
        _disconnect(hosts)
        try:
            _ip("link", "add", BRIDGE, "type", "bridge")
        except (OSError, subprocess.CalledProcessError) as error:
            needed = "network namespaces need root, ip and CAP_NET_ADMIN"
            raise NoHostsError(f"{needed}: {error}") from error
        try:
            _ip("address", "add", f"{LAUNCHER}/24", "dev", BRIDGE)
            _ip("link", "set", BRIDGE, "up")
            for host in hosts:
                host.connect()
                host.boot(folder / f"{host.name}-{time.monotonic_ns()}")
            yield hosts
        finally:
            for host in hosts:
                host.end()
            _disconnect(hosts)


def _disconnect(hosts: Sequence[Host]) -> None:
    """Removes the networks, also those of processes that were killed."""
    for name in [host.name for host in hosts]:
        # The namespace of a process that has not ended yet would keep its end of the cable.
        subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, text=True, check=True)
