"""Runs a job and detects when it can no longer end.

FnApiRunner hangs when a worker process is killed, so a job runs in a thread while the main thread
watches child processes and receipts.
"""

import contextlib
import os
import re
import threading
import time
import traceback
from collections.abc import Callable
from errno import EDQUOT, EFBIG, ENOSPC
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from beamrank.errors import (
    BeamrankError,
    ConfigError,
    DataError,
    PreflightError,
    ReceiptError,
    TemporaryError,
    WorkerLostError,
    thread_limit,
)
from beamrank.logs import LoggedStderr
from beamrank.storage.digested import RewrittenError
from beamrank.storage.stores import UnansweredError
from models.lucene.jvm import JavaError
from models.stages import attempt
from pipelines.runners.workers import ENDING, is_worker

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.runners.runner import PipelineResult

_POLL_SECONDS = 0.25
_POLLS_AT_MOST = 10
_BEAMS_WORKER_THREAD = "run_worker"
# Workers end shortly before the thread of the pipeline; one that ends earlier was killed.
_GRACE_SECONDS = 15.0
# A runner gives the text of what a worker raised: `module.Class: message`. Java's errors become
# plain ones.
_OURS = {
    f"{kind.__module__}.{kind.__name__}": BeamrankError if kind is JavaError else kind
    for kind in (
        BeamrankError,
        ConfigError,
        DataError,
        JavaError,
        PreflightError,
        ReceiptError,
        RewrittenError,
        TemporaryError,
        UnansweredError,
    )
}
_RAISED = re.compile(
    rf"(?<![\w.])({'|'.join(map(re.escape, _OURS))}): (.*?)(?= \[while "
    r"running|\n\n|\nTraceback|\Z)",
    re.DOTALL,
)
_EXIT_CODE = re.compile(r"return code (-?\d+)\Z")
_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r'File "(.+?)", line ([0-9]+)')
_ROOT = Path(attempt.__file__).parents[2]
_OUR_FOLDERS = tuple(
    f"{_ROOT / name}{os.sep}" for name in ("beamrank", "models", "transforms", "pipelines")
)
_WHILE_RUNNING = re.compile(r" \[while running .*\]\Z", re.DOTALL)
# Raised for a full disk, a quota and a limit on the size of files.
_FULL = re.compile(rf"\[Errno (?:{ENOSPC}|{EDQUOT}|{EFBIG})\] .*?(?= \[while running|\n|\Z)")
_LAST_LINE = re.compile(r"^(\w[\w.]*: .*?)(?: \[while running .*)?$", re.MULTILINE)
# The words of Prism, of Flink and of Spark.
_LOST_WORKER = re.compile(
    r"SDK worker disconnected|didn't get control connection"
    r"|[Tt]ask ?[Mm]anager.{0,200}(?:was lost|timed out|no longer "
    r"reachable)|TaskExecutor.{0,200}disconnected"
    r"|ExecutorLostFailure|Remote RPC client disassociated|indeterminate output was failed and "
    r"retried",
    re.DOTALL,
)


def run_watched(
    pipeline: "beam.Pipeline", progress: Callable[[], object], stall_seconds: float
) -> None:
    """Runs a pipeline to its end: see `watch`."""
    from apache_beam.options.pipeline_options import PortableOptions

    watch(
        partial(_run, pipeline),
        progress,
        stall_seconds,
        pipeline.options.view_as(PortableOptions).job_endpoint,
    )


def watch(
    work: Callable[[], None],
    progress: Callable[[], object],
    stall_seconds: float,
    endpoint: str | None = None,
) -> None:
    """Does work of this process and its workers; `progress`, how much is done, may stay equal up to
    a limit.

    Raises:
        WorkerLostError: a worker process or the job server at `endpoint` died.
        BeamrankError: the work failed, or stalled.
        Interrupted: this process was told to end, and no shard is in progress any more.
    """
    # Beam prints the traceback of every failure that it raises, once or twice: the log has room for
    # it.
    with contextlib.redirect_stderr(LoggedStderr()), _Workers() as workers, ENDING.after(workers):

        def check() -> None:
            if ENDING.check():
                return
            workers.check()
            # Beam's client would wait for a dead server as long as for a job.
            _check_server(endpoint)

        error = wait_with_stall(
            work, progress, stall_seconds, lambda: "treating the job as stalled", check
        )
    if error is not None:
        _check_server(endpoint, error)
        raise explain(error) from error


def _check_server(endpoint: str | None, error: BaseException | None = None) -> None:
    if endpoint is not None:
        from pipelines.runners.job_server import check_job_server

        check_job_server(endpoint, error)


class _Outcome(contextlib.ContextDecorator):
    """Keeps the error of the function that it decorates."""

    error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> bool:
        self.error = error
        return True


def wait_with_stall(
    work: Callable[[], None],
    progress: Callable[[], object],
    stall_seconds: float,
    on_stall: Callable[[], str],
    check: Callable[[], None] = lambda: None,
    poll_seconds: float = _POLL_SECONDS,
) -> BaseException | None:
    """Does work in a thread; returns the error that ended it.

    `on_stall` ends work whose `progress` stays the same beyond the limit, and describes that for
    the message of a BeamrankError; `check` raises where it cannot end.
    """
    outcome = _Outcome()
    thread = threading.Thread(target=outcome(work), name="pipeline", daemon=True)
    thread.start()
    last, idle, looked = progress(), 0.0, time.monotonic()
    while True:
        thread.join(poll_seconds)
        if not thread.is_alive():
            return outcome.error
        check()
        now, before, looked = progress(), looked, time.monotonic()
        # A process that was suspended between two looks did nothing, and did not stall.
        idle += min(looked - before, _POLLS_AT_MOST * poll_seconds)
        if now != last:
            last, idle = now, 0.0
        elif idle > stall_seconds:
            raise BeamrankError(
                f"no shard made progress for {stall_seconds / 60:g} minutes (stall_minutes): "
                f"{on_stall()}. Run the same command again to resume; raise stall_minutes if "
                "workers take longer to start, or a shard of a stage without inferences does"
            )


def _run(pipeline: "beam.Pipeline") -> None:
    from apache_beam.runners.runner import PipelineState

    result = pipeline.run()
    while not PipelineState.is_terminal(result.state):
        time.sleep(_POLL_SECONDS)
    if result.state == PipelineState.DONE:
        # Only cleans up: it waits ten seconds for the end of messages, which a Java job server
        # never ends.
        threading.Thread(target=_clean_up, args=(result,), daemon=True).start()
    else:
        result.wait_until_finish()


def _clean_up(result: "PipelineResult") -> None:
    with contextlib.suppress(Exception):
        result.wait_until_finish()


class _Workers:
    """The SDK worker processes of this process, which end with the `with` block where that
    fails.
    """

    def __init__(self) -> None:
        self._seen: dict[int, psutil.Process] = {}
        self._exit_codes: list[int] = []
        self._missed: float | None = None

    def __enter__(self) -> Self:
        """Starts to count failed threads of FnApiRunner: each waits for a worker, which may die
        before it is seen.
        """
        self._hook, threading.excepthook = threading.excepthook, self._note
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # An interrupted process ends its children by itself.
        if kind is not None and issubclass(kind, Exception) and self._seen:
            for process in self._find():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            # They note the end of their workers now, and not while the next job runs; other threads
            # print it.
            for thread in threading.enumerate():
                if thread.name == _BEAMS_WORKER_THREAD:
                    thread.join(_GRACE_SECONDS)
            time.sleep(_POLL_SECONDS)
        threading.excepthook = self._hook

    def _note(self, failed: threading.ExceptHookArgs) -> None:
        if failed.thread is not None and failed.thread.name == _BEAMS_WORKER_THREAD:
            code = _EXIT_CODE.search(str(failed.exc_value))
            self._exit_codes.append(int(code[1]) if code else 1)
        else:
            self._hook(failed)

    def _find(self) -> list[psutil.Process]:
        """The worker processes that run."""
        for child in psutil.Process().children():
            if child.pid not in self._seen and is_worker(child):
                self._seen[child.pid] = child
        # A copy, because SIGTERM may find this in the middle.
        return list(filter(_lives, list(self._seen.values())))

    def check(self) -> None:
        """Raises WorkerLostError if a worker has died and the pipeline does not end."""
        running = self._find()
        dead = [pid for pid, process in list(self._seen.items()) if process not in running]
        if dead or self._exit_codes:
            self._report(dead)

    def _report(self, dead: list[int]) -> None:
        """Raises WorkerLostError once the pipeline had the time to end."""
        self._missed = self._missed or time.monotonic()
        signals = [-code for code in self._exit_codes if code < 0]
        # No worker that ends by itself is killed by a signal.
        if signals or time.monotonic() - self._missed > _GRACE_SECONDS:
            name = f"worker process {dead[0]}" if dead else "a worker process"
            how = f"was killed by signal {signals[0]}" if signals else "died"
            raise WorkerLostError(f"{name} {how} (possibly out of memory)")

    def start_no_more(self) -> None:
        """From now on no shard is started, here and in the worker processes."""
        attempt.start_no_more()
        for process in self._find():
            with contextlib.suppress(psutil.Error):
                process.terminate()

    def is_busy(self) -> bool:
        """Whether a shard is in progress: a worker process ends after its own."""
        return attempt.in_progress() or bool(self._find())


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    return False


def explain(error: BaseException) -> BeamrankError:
    """The error that a worker raised, extracted from the text of the runner's error."""
    if isinstance(error, BeamrankError):
        kind = _OURS.get(f"{type(error).__module__}.{type(error).__name__}", BeamrankError)
        return of_started_job(kind, _WHILE_RUNNING.sub("", str(error)))
    if raised := _RAISED.findall(str(error)):
        name, message = raised[-1]
        return of_started_job(_OURS[name], message.strip())
    if full := _FULL.search(str(error)):
        return BeamrankError(
            f"a worker cannot write: {full[0]}. Finished shards are kept: make room, then run the "
            "same command again to resume"
        )
    if _LOST_WORKER.search(str(error)):
        return WorkerLostError(f"a worker process was lost (possibly out of memory): {error}")
    lines = _LAST_LINE.findall(str(error)) if _TRACEBACK in str(error) else []
    reason = lines[-1] if lines else f"{type(error).__name__}: {error}"
    return BeamrankError(f"the job failed: {reason}{_raised_at(error)}{thread_limit(reason)}")


def _raised_at(error: BaseException) -> str:
    """The file and line of a package where an error came from: the last frame that our code called,
    not a library's frame below it.
    """
    text = "".join(traceback.format_tb(error.__traceback__))
    frames = _FRAME.findall(str(error) if _TRACEBACK in str(error) else text)
    ours = [at for at, (file, _) in enumerate(frames) if file.startswith(_OUR_FOLDERS)]
    if not frames:
        return ""
    file, line = frames[min(ours[-1] + 1, len(frames) - 1) if ours else -1]
    return f" ({file}, line {line})"


def of_started_job(kind: type[BeamrankError], message: str) -> BeamrankError:
    """An error of a started job: its exit code is 1, or a temporary error's, because others mean
    that nothing was started.
    """
    stays = issubclass(kind, TemporaryError) or kind.exit_code == BeamrankError.exit_code
    return kind(message) if stays else BeamrankError(message)
