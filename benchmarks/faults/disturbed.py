"""A run of a case in its folder, and what faults do to it while its launchers run."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psutil

from benchmarks.faults.cases import (
    BETWEEN,
    DAMAGES,
    FULL_DISK,
    INPUTS,
    JAVA_ENGINES,
    JVM,
    LAUNCHER,
    OF_INDEX,
    REUSED,
    SERVER,
    SIGNALS,
    WORKER,
    Case,
    Fault,
    draw_world,
)
from benchmarks.faults.damage import Output, damage
from benchmarks.faults.launches import TOKEN, Ended, Launch, children_of, pool_of_workers
from benchmarks.faults.weather import Stores
from benchmarks.faults.worlds import Worlds

PATIENCE_SECONDS = 500.0
_POLL_SECONDS = 0.02
_STOPPED_SECONDS = 0.05, 2.0
# A request for every change of a file, about.
_REQUESTS = 6
_ENGINE = ("--set", "stall_minutes=2", "--runner")
_FLAGS = {
    "local": (),
    "workers": ("--", "--direct_running_mode=multi_processing", "--direct_num_workers=2"),
    **{name: (*_ENGINE, name) for name in ("prism", "flink", "spark")},
    "pool": (*_ENGINE, "prism", "--", "--environment_type=EXTERNAL"),
}
# Patterns of their command lines.
_ROLES = {
    LAUNCHER: "",
    WORKER: r"runners\.workers local|SdkHarness",
    SERVER: r"--job[_-]port=",
    JVM: r"^\S*java ",
}
_DISK_BYTES, _LEFT_BYTES = 64 << 20, 100_000
_ENVIRONMENT = ("AWS_", "STORAGE_EMULATOR_HOST", "NO_GCE_CHECK", "GCSFS_")


class DisturbedRun:
    """A run in a new folder.

    Attributes:
        url: its output.
        own: the launchers of its configuration that were started last, in their order.
        others: launchers of another configuration.
        changed: the inputs that changed while they ran.
        killed: whether a launcher may have been ended without a chance to remove its temporary
            files.
        done: whether the run was done after its last launch.
        undo: undoes what a fault has changed.
        held: what the case needs to its end.
    """

    def __init__(self, case: Case, worlds: Worlds, stores: Stores, folder: Path) -> None:
        """Writes its inputs."""
        self.case, self.worlds, self.folder = case, worlds, folder
        self.first = draw_world(case.seed, case.setup.world).first
        # Every second case builds its index itself.
        worlds.copy(case.setup.world, folder, with_index=case.number % 2 == 0)
        self.weather, self.url = None, str(folder / "out")
        self.token = f"{os.getpid()}-{folder.name}-{time.time_ns()}"
        self.undo, self.held, self.killed, self.done = ExitStack(), ExitStack(), False, False
        self._flags = ["--only", f"{{}}/{case.setup.processes}"]
        if case.setup.runner != "only":
            self._flags = list(_FLAGS[case.setup.runner])
        index = [str(folder / "index"), str(folder / "cache/indexes")]
        if case.setup.store != "disk":
            bucket, self.weather = stores.open(case.setup.store)
            self.url = f"{bucket}/{self.token}"
            index[0] = f"{self.url}-index"
        self.files, self.indexes = Output(self.url), [Output(url) for url in index]
        self.own, self.others = list[Launch](), list[Launch]()
        self.changed = set[str]()
        for name in ("tmp", "cache"):
            (folder / name).mkdir()
        self._environment = {"BEAMRANK_CACHE": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}
        self._environment |= {
            name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)
        }
        # Job servers, which are not got again.
        engines = (
            Path(os.environ.get("BEAMRANK_CACHE", "~/.cache/beamrank")).expanduser() / "engines"
        )
        if engines.is_dir():
            (folder / "cache/engines").symlink_to(engines)
        if case.setup.reuse:
            shutil.copytree(worlds.earlier(case.setup.world, case.setup.reuse), folder / "earlier")
        if case.setup.runner == "pool":
            self._pool, address = self.held.enter_context(
                pool_of_workers(folder, self._environment)
            )
            self._flags.append(f"--environment_config={address}")
        self._has_disk = any(fault.kind == FULL_DISK for fault in case.faults) and self._mount()

    def start(
        self, process: int = 0, fault: Fault | None = None, more: tuple[str, ...] = ()
    ) -> Launch:
        """Starts a launcher; with `--only` the one with this number."""
        flags = [word.format(process) for word in self._flags]
        return self.command([*self.words(), *more, *flags], fault)

    def words(self) -> list[str]:
        """The command of a run on the local runner."""
        setup, config = self.case.setup, str(self.folder / "config.yaml")
        words = ["run", config, "--output", self.url, "--retries", str(setup.retries)]
        words += ["--set", f"shards={setup.shards}"]
        if setup.reuse:
            words += ["--reuse", str(self.folder / "earlier")]
        if setup.store != "disk" and self.first == "bm25":
            words += ["--set", f"index.path={self.url}-index"]
        return words

    def command(self, words: list[str], fault: Fault | None = None) -> Launch:
        """Starts any command."""
        return Launch(self.folder, words, {**self._environment, TOKEN: self.token}, fault)

    def launch(self, fault: Fault | None = None) -> tuple[list[Ended], bool]:
        """Starts the launchers, lets a fault strike, waits for their end, and undoes the fault;
        whether it struck.
        """
        self.others, self.changed = [], set()
        strike = self._strike_of(fault.kind) if fault else None
        early = fault is not None and fault.kind.endswith((BETWEEN, REUSED))
        struck = bool(fault and strike and early and strike(fault))
        builds_index = fault is not None and self._begin_again(fault)
        expected, begun = 0 if builds_index else self._expected(), self._amount()
        self.own = [
            self.start(process, fault if process == 0 else None)
            for process in range(self.case.setup.processes)
        ]
        while (
            fault
            and strike
            and not early
            and any(launch.runs(_POLL_SECONDS) for launch in self.own)
        ):
            if self._amount() - begun >= fault.moment * expected:
                time.sleep(fault.drawn.uniform(0, 0.05))
                # A worker, for example, may not have started yet.
                if struck := strike(fault):
                    break
        with self.undo:
            ended = [launch.end(PATIENCE_SECONDS) for launch in [*self.own, *self.others]]
        return ended, struck or (fault is not None and strike is None)

    def _begin_again(self, fault: Fault) -> bool:
        """Makes work for a process that gets a signal; says whether it is the JVM that builds the
        index.
        """
        builds_index = fault.kind.endswith(JVM) and self.case.setup.runner not in JAVA_ENGINES
        if builds_index or (self.done and fault.kind.startswith("SIG")):
            for output in [self.files, *(self.indexes if builds_index else [])]:
                output.remove()
        return builds_index

    def _expected(self) -> float:
        """What a launch adds to `_amount`, at least."""
        stages = len(draw_world(self.case.seed, self.case.setup.world).keys["cascade"]) + 2
        files = 0.9 * ((2 * self.case.setup.shards + 2) * stages + 6)
        requests = 1 if self.weather is None else _REQUESTS
        return max(files - len(self.files.files()), 1) * requests

    def _amount(self) -> int:
        return len(self.files.files()) if self.weather is None else self.weather.requests

    def _strike_of(self, kind: str) -> Callable[[Fault], bool] | None:
        """What a fault does at its moment; None for one that a launcher begins with."""
        what, _, whose = kind.partition(" of ")
        if what in SIGNALS:
            return partial(self._signal, what, whose)
        if kind.startswith("a store that "):
            return partial(self._weather, kind.removeprefix("a store that "))
        for name in INPUTS:
            if kind.startswith(f"the {name} changes"):
                return partial(self._change, name)
        for name in DAMAGES:
            if kind.startswith(name):
                among = self.indexes if OF_INDEX in kind else [self.files]
                reused = Output(str(self.folder / "earlier"))
                return partial(self._damage, name, [reused] if kind.endswith(REUSED) else among)
        others: dict[str, Callable[[Fault], bool]] = {
            "a launcher stops while another one runs": self._stop_while_another_runs,
            "two launchers": partial(self._start_more, 1),
            "three launchers": partial(self._start_more, 2),
            "another configuration at once": self._start_another,
            "a read-only folder": self._close_folder,
            FULL_DISK: self._fill_disk,
        }
        return others.get(kind)

    def _damage(self, kind: str, among: list[Output], fault: Fault) -> bool:
        # A file may be replaced while it is damaged.
        with suppress(FileNotFoundError, IndexError):
            output = fault.drawn.choice([one for one in among if one.files()])
            return bool(damage(output, kind, fault.drawn))
        return False

    def _one(self, fault: Fault) -> Launch:
        return self.own[fault.seed % len(self.own)]

    def _signal(self, name: str, role: str, fault: Fault) -> bool:
        """Sends a signal to a launcher, or to a process below one; what is stopped goes on after a
        while.
        """
        self.killed |= name == "SIGKILL"
        with suppress(psutil.Error, IndexError):
            processes = [psutil.Process(self._one(fault).pid)]
            if role != LAUNCHER:
                of_pool = role == WORKER and self.case.setup.runner == "pool"
                above = [self._pool] if of_pool else [one.pid for one in self.own]
                below = (process for pid in above for process in children_of(pid))
                processes = [process for process in below if _has(process, _ROLES[role])]
            process = processes[fault.seed % max(len(processes), 1)]
            time.sleep(fault.drawn.random() if role == JVM else 0)
            process.send_signal(getattr(signal, name))
            if name == "SIGSTOP":
                time.sleep(fault.drawn.uniform(*_STOPPED_SECONDS))
                process.resume()
            return True
        return False

    def _stop_while_another_runs(self, fault: Fault) -> bool:
        stopped = self._one(fault)
        stopped.send(signal.SIGSTOP)
        try:
            self.own.append(self.start())
            # It may wait for a lock of the one that stopped.
            self.own[-1].runs(20.0)
        finally:
            stopped.send(signal.SIGCONT)
        return True

    def _start_more(self, count: int, _: Fault) -> bool:
        self.own += [self.start() for _ in range(count)]
        return True

    def _start_another(self, _: Fault) -> bool:
        self.others.append(self.start(more=("--set", "run_tag=other")))
        return True

    def _close_folder(self, fault: Fault) -> bool:
        output = self.folder / "out"
        output.mkdir(exist_ok=True)
        below = sorted(path for path in output.rglob("*") if path.is_dir())
        folder = fault.drawn.choice([output, *below])
        folder.chmod(0o555)
        self.undo.callback(folder.chmod, 0o755)
        return True

    def _mount(self) -> bool:
        """Puts the output on a disk of its own; says where that is not allowed."""
        disk = self.folder / "out"
        disk.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(disk)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            print(
                f"case {self.case.number}: {FULL_DISK} is left out: {done.stderr}", file=sys.stderr
            )
            return False
        self.held.callback(subprocess.run, ["umount", "-l", str(disk)], check=True)
        return True

    def _fill_disk(self, fault: Fault) -> bool:
        """Makes the disk of the output little larger than what is on it."""
        if not self._has_disk:
            return False
        state = os.statvfs(self.folder / "out")
        self.undo.callback(self._resize, _DISK_BYTES)
        # Where more was written meanwhile, it is not possible.
        used = (state.f_blocks - state.f_bfree) * state.f_frsize
        return self._resize(used + fault.drawn.randrange(4096, _LEFT_BYTES))

    def _resize(self, size: int) -> bool:
        words = ["mount", "-o", f"remount,size={size}", str(self.folder / "out")]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def _change(self, what: str, _: Fault) -> bool:
        self.changed.add(what)
        self.worlds.change(self.case.setup.world, self.folder, what)
        self.undo.callback(self.worlds.restore, self.case.setup.world, self.folder, what)
        return True

    def _weather(self, kind: str, fault: Fault) -> bool:
        assert self.weather is not None
        self.weather.change(kind, fault.seed)
        self.undo.callback(self.weather.change, None)
        return True


def _has(process: psutil.Process, pattern: str) -> bool:
    with suppress(psutil.Error):
        return re.search(pattern, " ".join(process.cmdline())) is not None
    return False
