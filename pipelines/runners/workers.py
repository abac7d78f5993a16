"""This process and its children: their environment, their end, and `python -m
pipelines.runners.workers KIND`.

`local` is a worker of the local runner. `pool --service_port=PORT` starts workers for Spark and
Flink. `child FOLDER PROGRAM ARGUMENT ...` runs a program that must not outlive the launcher. Only
the standard library is imported at first: the command line starts with this module, and a `child`
has no other packages.
"""

import contextlib
import ctypes
import functools
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from types import FrameType
from typing import Any, NoReturn

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_SECONDS = 25.0
WORKER_MODULE = "pipelines.runners.workers"
_POLL_SECONDS = 1.0
_SHORT_SECONDS = 0.05
_PATIENCE_SECONDS = 3
# Of prctl.
_SIGNAL_OF_PARENTS_DEATH = 1
# Only gRPC reads it, and no_proxy where it is not set.
_SPARED_BY_GRPC = "no_grpc_proxy"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class Interrupted(BaseException):
    """A signal was received. Not KeyboardInterrupt, which typer would turn into a silent exit."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Ending:
    """The end of this process by a signal; `grace_seconds` are what the shards in progress get.

    Machines that are taken away send SIGTERM and leave some seconds: no further shard starts.
    """

    def __init__(self) -> None:
        self.grace_seconds = GRACE_SECONDS
        self._job: Any = None
        self._begun_by = 0

    @contextlib.contextmanager
    def after(self, job: Any) -> Iterator[None]:
        """In the `with` block, which calls `check` often, the first SIGTERM or SIGHUP waits for the
        shards of a job.

        The job has `start_no_more()`, and `is_busy()` while a shard is in progress.
        """
        self._job = job
        try:
            yield
            while self.check():
                time.sleep(_SHORT_SECONDS)
        finally:
            self._job = None

    def check(self) -> bool:
        """Whether the end has begun; raises Interrupted where it has, and no shard is in progress
        any more.
        """
        if self._begun_by and (self._job is None or not self._job.is_busy()):
            raise Interrupted(self._begun_by)
        return self._begun_by != 0

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Handles Ctrl-C, SIGTERM, and SIGHUP, which a lost terminal sends several times."""
        job = self._job
        if self._begun_by and number == signal.SIGHUP:
            return
        if number == signal.SIGINT or self._begun_by or job is None or not self.grace_seconds:
            raise Interrupted(number)
        self._begun_by = number
        job.start_no_more()
        self.check()
        signal.signal(signal.SIGALRM, self._end)
        signal.setitimer(signal.ITIMER_REAL, self.grace_seconds)
        words = (
            f"{signal.Signals(number).name}: no shard is started any more, those in progress have "
            f"{self.grace_seconds:g} seconds\n"
        )
        # Standard error may be in the middle of a line.
        with contextlib.suppress(OSError):
            os.write(2, words.encode())

    def _end(self, _number: int, _frame: FrameType | None) -> NoReturn:
        raise Interrupted(self._begun_by)

    def raise_again(self, lost: Any) -> None:
        """An interruption that arrives in C code, which cannot raise it, comes again; for
        `sys.unraisablehook`.
        """
        if isinstance(lost.exc_value, Interrupted):
            signal.signal(
                signal.SIGALRM, lambda _, frame: self.handle(lost.exc_value.exit_code - 128, frame)
            )
            signal.setitimer(signal.ITIMER_REAL, _SHORT_SECONDS)
        else:
            sys.__unraisablehook__(lost)


ENDING = Ending()


def job_environment() -> dict[str, str]:
    """The environment variables with which child processes find this interpreter, and do not import
    a user's folder called `models`.

    Beam's calls to this machine do not go through a proxy then; all other calls go where they went
    before.
    """
    folder, path = os.path.dirname(sys.executable), os.environ.get("PATH", "").split(os.pathsep)
    spared = os.environ.get(_SPARED_BY_GRPC, os.environ.get("no_proxy", "")).split(",")
    home = os.path.expanduser("~")
    return {
        # As containers have it where the user has none.
        "HOME": home if os.path.isabs(home) else "/",
        "PATH": os.pathsep.join(filter(None, path if path[0] == folder else [folder, *path])),
        "PYTHONSAFEPATH": "1",
        _SPARED_BY_GRPC: ",".join(
            filter(None, dict.fromkeys([*map(str.strip, spared), *_THIS_MACHINE]))
        ),
        # Torch's threads spin while they wait, which starves other processes on the same cores,
        # such as a second worker: on two shared cores, spinning made scoring three times slower.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive"),
    }


def prepare_environment() -> None:
    """Gives this process the environment of a job, for good."""
    os.environ.update(job_environment())


def child_processes() -> list[Any]:
    """The child processes of this one, as psutil has them."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # There are none.
        return []
    import psutil

    return list(psutil.Process().children())


def end_children(others: Collection[int]) -> None:
    """Ends all processes below this one, but not below `others`, the pids of child processes that
    it did not start: a shell that starts a command with `exec` hands on its own.
    """
    if children := [child for child in child_processes() if child.pid not in others]:
        _end_trees(children)


def _end_trees(roots: list[Any]) -> None:
    import psutil

    children = list(roots)
    for child in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            children += child.children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            # A worker would first do its shard.
            (child.kill if is_worker(child) else child.terminate)()
    for child in psutil.wait_procs(children, timeout=_PATIENCE_SECONDS)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def is_worker(process: Any) -> bool:
    """Whether a process, as psutil has it, is a worker of the local runner."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return WORKER_MODULE in process.cmdline()
    return False


def child_command(folder: str, *command: str) -> list[str]:
    """The command that runs a program which ends with this process; `folder` is for its temporary
    files.
    """
    return [sys.executable, "-S", __file__, "child", folder, *command]


def _run_child(folder: str, *command: str) -> int:
    """Runs a program until it ends, this process is terminated, or the launcher ends; then removes
    its folder.

    A launcher that is killed with SIGKILL would leave its job server, a Java process, running
    forever. Where this process is killed, Linux ends the program.
    """
    launcher, library = os.getppid(), ctypes.CDLL(None)

    def end_with_parent() -> None:
        if hasattr(library, "prctl"):
            library.prctl(_SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)

    def end(_number: int, _frame: FrameType | None) -> None:
        sys.exit(1)

    # This process ends after the program has ended and its folder is removed.
    signal.signal(signal.SIGTERM, end)
    code = 1
    environment = {**os.environ, "TMPDIR": folder}
    with subprocess.Popen(command, env=environment, preexec_fn=end_with_parent) as program:
        with contextlib.suppress(SystemExit):
            while os.getppid() == launcher:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    ended = program.wait(_POLL_SECONDS)
                    # As shells do: 137 is SIGKILL, which Linux sends when memory runs out.
                    code = ended if ended >= 0 else 128 - ended
                    break
        program.kill()
    shutil.rmtree(folder, ignore_errors=True)
    return code


def _work() -> None:
    """Beam's own worker, for the launcher that the environment names: logs to the run's log,
    ignores Ctrl-C.

    SIGTERM ends it after the shard in progress.
    """
    # A terminal sends Ctrl-C to the whole process group; the launcher ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before Beam is imported, which would log to standard error where the root logger has no
    # handler.
    logging.getLogger().addHandler(logging.NullHandler())
    from beamrank.logs import INHERITED, LoggedStderr, join_log
    from beamrank.machine import number_worker

    if INHERITED in os.environ:
        join_log(os.environ[INHERITED])
    if "WORKER_ID" in os.environ:
        number_worker(os.environ["WORKER_ID"])
    launcher = os.getppid()

    def end_with_launcher() -> None:
        # When the launcher is killed, Beam's worker may wait for ever for a connection.
        while os.getppid() == launcher:
            time.sleep(_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=end_with_launcher, daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    from models.stages import attempt

    def end_after_shards(number: int, _frame: FrameType | None) -> None:
        attempt.start_no_more()
        threading.Thread(target=end_when_idle, args=(128 + number,), daemon=True).start()

    def end_when_idle(code: int) -> None:
        while attempt.in_progress():
            time.sleep(_SHORT_SECONDS)
        os._exit(code)

    # The launcher sends SIGTERM when it was told to end; Slurm, for example, sends it to all
    # processes of a job, and a lost terminal sends SIGHUP.
    signal.signal(signal.SIGTERM, end_after_shards)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, end_after_shards)
    with contextlib.redirect_stderr(LoggedStderr()):
        try:
            sdk_worker_main.main(sys.argv)
        except Exception:
            if os.getppid() != launcher:
                os._exit(1)
            raise


def _serve_pool(*flags: str) -> None:
    prepare_environment()
    share_pools()
    from apache_beam.runners.worker import worker_pool_main

    worker_pool_main.main(flags)


@functools.cache
def share_pools() -> Any:
    """Lets several Java processes share a pool of workers in this process; returns the class of
    such a pool.

    Every executor of Spark and every task manager of Flink numbers its workers from 1. Beam's own
    pool knows a worker by that number only: one Java process that ends would stop a worker of the
    next, whose shards would be repeated.
    """
    from apache_beam.portability.api import beam_fn_api_pb2
    from apache_beam.runners.worker import worker_pool_main

    class SharedPool(worker_pool_main.BeamFnExternalWorkerPoolServicer):
        # A worker whose number is used twice ends when its own Java process disconnects.
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._used_twice: set[str] = set()

        def StartWorker(self, start_worker_request: Any, unused_context: Any) -> Any:
            number = start_worker_request.worker_id
            if number in self._worker_processes or number in self._worker_threads:
                self._used_twice.add(number)
            return super().StartWorker(start_worker_request, unused_context)

        def StopWorker(self, stop_worker_request: Any, unused_context: Any) -> Any:
            if stop_worker_request.worker_id in self._used_twice:
                return beam_fn_api_pb2.StopWorkerResponse()
            return super().StopWorker(stop_worker_request, unused_context)

    worker_pool_main.BeamFnExternalWorkerPoolServicer = SharedPool
    return SharedPool


if __name__ == "__main__":
    main: Any = {"local": _work, "pool": _serve_pool, "child": _run_child}[sys.argv[1]]
    sys.exit(main(*sys.argv[2:]))
