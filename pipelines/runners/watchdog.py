"""Runs a Beam pipeline and detects when it can no longer end.

FnApiRunner hangs when a worker process is killed, so the pipeline runs in a thread while the main thread watches child
processes and receipts.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable
from errno import EDQUOT, EFBIG, ENOSPC
from typing import Self

import apache_beam as beam
import psutil
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.runners.runner import PipelineResult, PipelineState

from beamrank.errors import BeamrankError, ConfigError, DataError, PreflightError, ReceiptError
from beamrank.logs import LoggedStderr
from beamrank.storage.digested import RewrittenError
from models.lucene.jvm import JavaError
from pipelines.runners.job_server import check_job_server
from pipelines.runners.workers import WORKER_MODULE

_POLL_SECONDS = 0.25
_BEAMS_WORKER_THREAD = "run_worker"
# Workers end shortly before the thread of the pipeline; one that ends earlier was killed.
_GRACE_SECONDS = 15.0
# A runner gives the text of what a worker raised: `module.Class: message`. Java's errors become plain ones.
_OURS = {
    f"{kind.__module__}.{kind.__name__}": BeamrankError if kind is JavaError else kind
    for kind in (BeamrankError, ConfigError, DataError, JavaError, PreflightError, ReceiptError, RewrittenError)
}
_RAISED = re.compile(
    rf"(?<![\w.])({'|'.join(map(re.escape, _OURS))}): (.*?)(?= \[while running|\n\n|\nTraceback|\Z)", re.DOTALL
)
_WHILE_RUNNING = re.compile(r" \[while running .*\]\Z", re.DOTALL)

# Raised for a full disk, a quota and a limit on the size of files.
_FULL = re.compile(rf"\[Errno (?:{ENOSPC}|{EDQUOT}|{EFBIG})\] .*?(?= \[while running|\n|\Z)")
# The words of Prism.
_LOST_WORKER = re.compile(r"SDK worker disconnected|didn't get control connection")


def run_watched(pipeline: beam.Pipeline, progress: Callable[[], int], stall_seconds: float) -> None:
    """Runs a pipeline to its end; `progress`, how much is done, may stay the same for `stall_seconds`.

    Raises:
        BeamrankError: the pipeline failed, stalled, or lost a worker.
    """
    outcome: list[BaseException] = []
    endpoint: str | None = pipeline.options.view_as(PortableOptions).job_endpoint
    thread = threading.Thread(target=_run, args=(pipeline, outcome), name="pipeline", daemon=True)
    # Beam prints the traceback of every failure that it raises, once or twice: the log has room for it.
    with contextlib.redirect_stderr(LoggedStderr()), _Workers() as workers:

        def check() -> None:
            workers.check()
            # Beam's client would wait for a dead server as long as for a job.
            check_job_server(endpoint)

        thread.start()
        wait_with_stall(thread, progress, stall_seconds, on_stall=lambda: "treating the job as stalled", check=check)
    if outcome:
        check_job_server(endpoint, outcome[0])
        raise explain(outcome[0]) from outcome[0]


def wait_with_stall(
    thread: threading.Thread,
    done: Callable[[], int],
    stall_seconds: float,
    *,
    on_stall: Callable[[], str],
    check: Callable[[], None] = lambda: None,
    poll_seconds: float = _POLL_SECONDS,
) -> None:
    """Waits for the thread of a job, or raises BeamrankError where `done` stays the same for `stall_seconds`.

    `on_stall` ends such a job, and describes that for the message; `check` raises where a job cannot end.
    """
    last, moved = done(), time.monotonic()
    while True:
        thread.join(poll_seconds)
        if not thread.is_alive():
            return
        check()
        now = done()
        if now != last:
            last, moved = now, time.monotonic()
        elif time.monotonic() - moved > stall_seconds:
            raise BeamrankError(
                f"no shard was finished in {stall_seconds / 60:g} minutes (stall_minutes): {on_stall()}. Run the same "
                "command again to resume; raise stall_minutes if workers start, or a shard takes, longer"
            )


def _run(pipeline: beam.Pipeline, outcome: list[BaseException]) -> None:
    try:
        result = pipeline.run()
        while not PipelineState.is_terminal(result.state):
            time.sleep(_POLL_SECONDS)
        if result.state == PipelineState.DONE:
            # Only cleans up: it waits ten seconds for the end of messages, which a Java job server never ends.
            threading.Thread(target=_clean_up, args=(result,), daemon=True).start()
        else:
            result.wait_until_finish()
    except BaseException as error:
        outcome.append(error)


def _clean_up(result: PipelineResult) -> None:
    with contextlib.suppress(Exception):
        result.wait_until_finish()


class _Workers:
    """The SDK worker processes of this process."""

    def __init__(self) -> None:
        self._seen: dict[int, psutil.Process] = {}
        self._unseen = 0
        self._missed: float | None = None

    def __enter__(self) -> Self:
        """Starts to count failed threads of FnApiRunner: each waits for a worker, which may die before it is seen."""
        self._hook, threading.excepthook = threading.excepthook, self._note
        return self

    def __exit__(self, *_: object) -> None:
        threading.excepthook = self._hook

    def _note(self, failed: threading.ExceptHookArgs) -> None:
        if failed.thread is not None and failed.thread.name == _BEAMS_WORKER_THREAD:
            self._unseen += 1
        else:
            self._hook(failed)

    def check(self) -> None:
        """Raises BeamrankError if a worker has died and the pipeline does not end."""
        for child in psutil.Process().children(recursive=True):
            if child.pid not in self._seen and _is_worker(child):
                self._seen[child.pid] = child
        dead = [f"worker process {pid}" for pid, process in self._seen.items() if not _lives(process)]
        if not dead and not self._unseen:
            return
        self._missed = self._missed or time.monotonic()
        if time.monotonic() - self._missed > _GRACE_SECONDS:
            raise BeamrankError(
                f"{dead[0] if dead else 'a worker process'} died, and the runner would wait for it forever (possibly "
                "out of memory). Finished shards are kept: run the same command again to resume"
            )


def _is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return WORKER_MODULE in process.cmdline()
    return False


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    return False


def explain(error: BaseException) -> BeamrankError:
    """The error that a worker raised, extracted from the text of the runner's error."""
    if isinstance(error, BeamrankError):
        kind = _OURS.get(f"{type(error).__module__}.{type(error).__name__}", BeamrankError)
        return in_mid_run(kind, _WHILE_RUNNING.sub("", str(error)))
    raised = _RAISED.findall(str(error))
    if raised:
        name, message = raised[-1]
        return in_mid_run(_OURS[name], message.strip())
    kept = "Finished shards are kept"
    full = _FULL.search(str(error))
    if full is not None:
        return BeamrankError(
            f"a worker cannot write: {full[0]}. {kept}: make room, then run the same command again to resume"
        )
    if _LOST_WORKER.search(str(error)):
        lost = "a worker process was lost (possibly out of memory)"
        return BeamrankError(f"{lost}: {error}. {kept}: run the same command again to resume")
    return BeamrankError(f"the Beam job failed: {type(error).__name__}: {error}")


def in_mid_run(kind: type[BeamrankError], message: str) -> BeamrankError:
    """An error of a started job: its exit code is 1, because other codes mean that nothing was started."""
    return kind(message) if kind.exit_code == BeamrankError.exit_code else BeamrankError(message)
