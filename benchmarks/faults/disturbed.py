"""A run of a case in its folder, and what faults do to it while its launchers run."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from benchmarks.faults.cases import BETWEEN, INPUTS, REUSED, SIGNALS, WEATHERS, Case, Fault, draw_world
from benchmarks.faults.damage import Output, damage
from benchmarks.faults.launches import TOKEN, Ended, Launch
from benchmarks.faults.weather import Stores
from benchmarks.faults.worlds import Worlds

PATIENCE_SECONDS = 500.0
_POLL_SECONDS = 0.005
_STOPPED_SECONDS = 0.05, 2.0
# A request for every change of a file, about.
_REQUESTS = 6
_FLAGS = {
    "local": (),
    "workers": ("--", "--direct_running_mode=multi_processing", "--direct_num_workers=2"),
    **{name: ("--runner", name) for name in ("prism", "flink", "spark")},
}
# The words of a command line, of which a process has one.
_BELOW = {
    "worker": ("pipelines.runners.workers",),
    "job server": ("--job_port=", "--job-port="),
}
_ENVIRONMENT = ("AWS_", "STORAGE_EMULATOR_HOST", "NO_GCE_CHECK", "GCSFS_")


class DisturbedRun:
    """A run in a new folder.

    Attributes:
        url: its output.
        own: the launchers of its configuration that were started last, in their order.
        others: those of another configuration.
        changed: the inputs that changed while they ran.
        killed: whether a launcher may have been ended without a chance to remove its temporary files.
    """

    def __init__(self, case: Case, worlds: Worlds, stores: Stores, folder: Path) -> None:
        """Writes its inputs."""
        self.case, self.worlds, self.folder = case, worlds, folder
        worlds.copy(case.setup.world, folder)
        self.weather, self.url = None, str(folder / "out")
        if case.setup.store != "disk":
            bucket, self.weather = stores.open(case.setup.store)
            self.url = f"{bucket}/{folder.name}-{time.time_ns()}"
        self.files, self.killed = Output(self.url), False
        self.own, self.others = list[Launch](), list[Launch]()
        self.changed = set[str]()
        self._undo = list[Callable[[], object]]()
        self.token = f"{os.getpid()}-{folder.name}-{time.time_ns()}"
        for name in ("tmp", "cache"):
            (folder / name).mkdir()
        # Job servers, which are not got again.
        engines = Path(os.environ.get("BEAMRANK_CACHE", "~/.cache/beamrank")).expanduser() / "engines"
        if engines.is_dir():
            (folder / "cache/engines").symlink_to(engines)
        if case.setup.reuse:
            shutil.copytree(worlds.earlier(case.setup.world, case.setup.reuse), folder / "earlier")

    def start(self, process: int = 0, fault: Fault | None = None, more: tuple[str, ...] = ()) -> Launch:
        """Starts a launcher; of those of `--only` the one with this number."""
        setup = self.case.setup
        words = ["run", str(self.folder / "config.yaml"), "--output", self.url, "--retries", str(setup.retries)]
        words += ["--set", f"shards={setup.shards}", *more]
        if setup.reuse:
            words += ["--reuse", str(self.folder / "earlier")]
        only = ("--only", f"{process}/{setup.processes}")
        return self.command([*words, *(only if setup.runner == "only" else _FLAGS[setup.runner])], fault)

    def command(self, words: list[str], fault: Fault | None = None) -> Launch:
        """Starts any command."""
        environment = {"BEAMRANK_CACHE": str(self.folder / "cache"), "TMPDIR": str(self.folder / "tmp")}
        environment |= {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)}
        return Launch(self.folder, words, {**environment, TOKEN: self.token}, fault)

    def launch(self, fault: Fault | None = None) -> tuple[list[Ended], bool]:
        """Starts the launchers, lets a fault strike, waits for their end, and undoes the fault; whether it struck."""
        self.others, self.changed = [], set()
        begun, struck = self._amount(), False
        self.own = [self.start(each, fault if each == 0 else None) for each in range(self.case.setup.processes)]
        strike = None if fault is None else self._strike_of(fault)
        while strike and any(each.runs(_POLL_SECONDS) for each in self.own) and not struck:
            if fault and self._amount() - begun >= fault.moment * self._expected(begun):
                time.sleep(fault.drawn.uniform(0, 0.1))
                struck = strike(fault)
                if not struck:
                    break
        with self.undone():
            ended = [each.end(PATIENCE_SECONDS) for each in [*self.own, *self.others]]
        return ended, struck or (fault is not None and strike is None)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undoes, at the end of the block, what a fault has changed."""
        try:
            yield
        finally:
            while self._undo:
                self._undo.pop()()

    def _expected(self, begun: int) -> float:
        """What a launch adds to `_amount`, about."""
        stages = len(draw_world(self.case.seed, self.case.setup.world).keys["cascade"]) + 2
        files = (2 * self.case.setup.shards + 2) * stages + 6
        return max(files - begun, 4) if self.weather is None else files * _REQUESTS

    def _amount(self) -> int:
        return len(self.files.files()) if self.weather is None else self.weather.requests

    def damage_between(self, fault: Fault) -> bool | None:
        """Damages files while nothing runs; None for a fault of another kind."""
        for when, output in ((BETWEEN, self.files), (REUSED, Output(str(self.folder / "earlier")))):
            if fault.kind.endswith(when):
                return bool(damage(output, fault.kind.removesuffix(when).strip(), fault.drawn))
        return None

    def _strike_of(self, fault: Fault) -> Callable[[Fault], bool] | None:
        """What a fault does at its moment; None for one that a launcher begins with."""
        strikes: dict[str, Callable[[Fault], bool]] = {
            **{f"{name} of the launcher": partial(self._signal, getattr(signal, name)) for name in SIGNALS},
            **{f"the {name} changes": partial(self._change, name) for name in INPUTS},
            **{f"a store that {name}": partial(self._weather, name) for name in WEATHERS},
            "a launcher stops while another one runs": self._stop_while_another_runs,
            "two launchers": partial(self._start_more, 1),
            "three launchers": partial(self._start_more, 2),
            "another configuration at once": self._start_another,
            "a read-only folder": self._close_folder,
        }
        for name in ("SIGKILL", "SIGSTOP"):
            for role in _BELOW:
                strikes[f"{name} of {'a' if role == 'worker' else 'the'} {role}"] = partial(self._below, role, name)
        return strikes.get(fault.kind)

    def _one(self, fault: Fault) -> Launch:
        return self.own[fault.seed % len(self.own)]

    def _signal(self, number: int, fault: Fault) -> bool:
        self.killed |= number == signal.SIGKILL
        self._one(fault).send(number)
        return True

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

    def _below(self, role: str, name: str, fault: Fault) -> bool:
        """Sends a signal to a process that a launcher started."""
        found = [each for launch in self.own for each in launch.below() if _has(each, _BELOW[role])]
        self.killed = True
        with suppress(psutil.Error, IndexError):
            process = found[fault.seed % max(len(found), 1)]
            process.send_signal(getattr(signal, name))
            if name == "SIGSTOP":
                time.sleep(fault.drawn.uniform(*_STOPPED_SECONDS))
                process.resume()
            return True
        return False

    def _start_more(self, count: int, _: Fault) -> bool:
        self.own += [self.start() for _ in range(count)]
        return True

    def _start_another(self, _: Fault) -> bool:
        self.others.append(self.start(more=("--set", "run_tag=other")))
        return True

    def _close_folder(self, fault: Fault) -> bool:
        output = self.folder / "out"
        output.mkdir(exist_ok=True)
        folder = fault.drawn.choice([output, *sorted(path for path in output.rglob("*") if path.is_dir())])
        folder.chmod(0o555)
        self._undo.append(partial(folder.chmod, 0o755))
        return True

    def _change(self, what: str, _: Fault) -> bool:
        self.changed.add(what)
        self.worlds.change(self.case.setup.world, self.folder, what)
        self._undo.append(partial(self.worlds.restore, self.case.setup.world, self.folder, what))
        return True

    def _weather(self, kind: str, fault: Fault) -> bool:
        assert self.weather is not None
        self.weather.change(kind, fault.seed)
        self._undo.append(partial(self.weather.change, None))
        return True


def _has(process: psutil.Process, words: tuple[str, ...]) -> bool:
    with suppress(psutil.Error):
        command = " ".join(process.cmdline())
        return any(each in command for each in words)
    return False
