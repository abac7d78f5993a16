"""How what a worker raises reaches the user, and how a pipeline that cannot end is noticed."""

import itertools
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from errno import EDQUOT, EFBIG, ENOSPC
from functools import partial

import apache_beam as beam
import psutil
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beamrank.errors import BeamrankError, ConfigError, DataError, ReceiptError, WorkerLostError
from models.lucene.jvm import JavaError
from pipelines.runners.options import Runner, new_pipeline
from pipelines.runners.watchdog import (
    _Workers,
    explain,
    run_watched,
    wait_with_stall,
)
from pipelines.runners.workers import WORKER_MODULE
from tests.support.processes import TWO_PROCESSES, beamrank, with_argument, without_progress
from tests.support.small_collection import SmallCollection
from tests.support.waiting import WaitFn, endless

_SLEEP = "import time; print('here', flush=True); time.sleep(300)"
MESSAGE = "doc 'a' is wrong: [see line 3]. Mend it,\nthen run again"


class RaiseFn(beam.DoFn):
    def __init__(self, error):
        self._error = error

    def process(self, _):
        raise self._error


def _pipeline(step, value, *flags):
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", *flags]))
    _ = pipeline | beam.Create([value]) | beam.Reshuffle() | beam.ParDo(step)
    return pipeline


def _full(number):
    return OSError(number, os.strerror(number), "/out/mono/part-00001")


def test_workers_are_those_of_this_process_alone():
    """The caller's program may have started another launcher, whose workers end by themselves."""
    own = [sys.executable, "-S", "-c", _SLEEP, WORKER_MODULE]
    launcher = [sys.executable, "-S", "-c", f"import subprocess; subprocess.run({own!r})"]
    with _Workers() as workers, ExitStack() as started:
        for command in (own, launcher):
            process = started.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            assert process.stdout.readline() == b"here\n"
            started.callback(process.kill)
            for child in psutil.Process(process.pid).children():
                started.callback(child.kill)
        assert len(workers._find()) == 1


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (DataError(MESSAGE), DataError, MESSAGE),
        # Nothing that a job raises was found before it started, which is what the exit codes 2 and
        # 3 say.
        (ConfigError(MESSAGE), BeamrankError, MESSAGE),
        (ZeroDivisionError("zero"), BeamrankError, "the job failed: .*ZeroDivisionError.*zero"),
        *(
            (
                _full(number),
                BeamrankError,
                rf"cannot write: \[Errno {number}\] .*-00001'\. Finished shards.* make room",
            )
            for number in (ENOSPC, EDQUOT, EFBIG)
        ),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("mode", ["in_memory", "multi_threading"])
def test_worker_error_arrives_as_it_was_raised(error, kind, message, mode, capfd):
    with pytest.raises(BeamrankError) as raised:
        run_watched(_pipeline(RaiseFn(error), 1, f"--direct_running_mode={mode}"), lambda: 0, 60.0)
    assert (type(raised.value), raised.value.exit_code) == (kind, 1)
    assert (
        str(raised.value) == MESSAGE
        if message == MESSAGE
        else re.search(message, str(raised.value), re.DOTALL)
    )
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        *(
            (
                f"Traceback (most recent call last):\n  File ...\n{words} [while running 'X']",
                BeamrankError,
                "lower `threads`",
            )
            for words in (
                "RuntimeError: can't start new thread",
                "BlockingIOError: [Errno 11] Resource temporarily unavailable",
            )
        ),
        (
            "beamrank.errors.DataError: a is wrong [while running 'X/Y']\n\n",
            DataError,
            "a is wrong",
        ),
        (
            "Error received from SDK harness for instruction 7: Traceback (most recent call "
            "last):\n  File ...\nValueError: cause\n\nThe above exception was the direct cause of "
            "the following exception:\n\nTraceback (most recent call last):\n  raise "
            "...\nbeamrank.errors.PreflightError: no index\n\nDuring handling of the above "
            "exception, another exception occurred:\n\nbeamrank.errors.PreflightError: no index "
            "[while running 'RunShard']",
            BeamrankError,
            "no index",
        ),
        ("beamrank.errors.ReceiptError: x", ReceiptError, "x"),
        ("SDK worker disconnected: worker_3", WorkerLostError, "worker_3"),
        ("RemoteTransportException: the remote task manager was lost.", WorkerLostError, "lost."),
        (
            "The heartbeat of TaskManager with id 10.77.0.11:1-17e920 timed out.",
            WorkerLostError,
            "out.",
        ),
        (
            "A shuffle map stage with indeterminate output was failed and retried.",
            WorkerLostError,
            "retried.",
        ),
        (
            "beamrank.errors.NoSuchError: x",
            BeamrankError,
            "RuntimeError: beamrank.errors.NoSuchError: x",
        ),
        ("mine.errors.DataError: x", BeamrankError, "RuntimeError: mine.errors.DataError: x"),
        (
            "bundle failed:Traceback (most recent call last):\n  File ...\nOSError: a\n\nDuring "
            "handling ...:\n\nTraceback (most recent call last):\n  File ...\nRuntimeError: "
            "OSError: a: b [while running 'RunShard']\n",
            BeamrankError,
            "the job failed: RuntimeError: OSError: a: b",
        ),
        (
            "bundle failed:\nOSError: [Errno 28] No space left on device: '/a'\n\nDuring handling "
            "...:\n\nRuntimeError: OSError: [Errno 28] No space left on device: '/a' [while "
            "running 'RunShard']",
            BeamrankError,
            "on device: '/a'. Finished shards are kept: make room, then run the same command "
            "again to resume",
        ),
    ],
)
def test_worker_error_is_found_in_text(text, kind, message):
    found = explain(RuntimeError(text))
    assert type(found) is kind
    assert str(found).endswith(message)


def test_worker_error_of_java_is_found_in_text():
    text = "models.lucene.jvm.JavaError: java.lang.Error: b [while running 'X']"
    for error in (RuntimeError(text), JavaError("java.lang.Error", "b")):
        assert str(explain(error)) == "java.lang.Error: b"


def test_stalled_pipeline_is_given_up():
    with (
        endless() as seconds,
        pytest.raises(BeamrankError, match=r"0\.01 minutes"),
    ):
        run_watched(_pipeline(WaitFn(), seconds), lambda: 5, 0.6)


def test_slow_pipeline_is_not_given_up():
    steps = iter(range(10_000))
    run_watched(_pipeline(WaitFn(), 1.5), lambda: next(steps), 0.6)


def test_suspended_process_did_not_stall(monkeypatch):
    """The clock of a process that was suspended for an hour goes on."""
    seconds, looks = time.monotonic, itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: seconds() + 3600.0 * (next(looks) > 3))
    assert wait_with_stall(partial(time.sleep, 1.5), lambda: 5, 60.0, str) is None


def test_killed_worker_process_ends_the_pipeline():
    """FnApiRunner would wait for it for ever; the other worker ends too."""
    pipeline = new_pipeline(Runner.LOCAL, TWO_PROCESSES[1:])
    _ = pipeline | beam.Create([["sleep", "67"]]) | beam.Reshuffle() | beam.Map(subprocess.call)
    killed: list[int] = []

    def kill_the_worker_at_work():
        for child in with_argument(psutil.Process().children(recursive=True), "67"):
            worker = child.parent()
            if not killed and worker is not None and child.name() == "sleep":
                killed.append(worker.pid)
                worker.kill()
                child.kill()
        return 0

    with pytest.raises(WorkerLostError, match=" 9") as raised:
        run_watched(pipeline, kill_the_worker_at_work, 60.0)
    assert f" {killed[0]} " in str(raised.value)
    assert with_argument(psutil.Process().children(recursive=True), WORKER_MODULE) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [(), TWO_PROCESSES, ("--runner", "embed")],
    ids=["in_memory", "multi_processing", "embed"],
)
def test_worker_error_is_printed_once_and_nothing_else(arguments, tmp_path, checkpoints):
    collection = SmallCollection(tmp_path, {"d1": "a cat"}, {"q1": "cat"}).given_run(
        {"q1": ["d1", "d2"]}, k=12
    )
    path = collection.with_models(checkpoints).path
    done = beamrank("run", path, *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert without_progress(done.stderr) == [
        "error: candidate docs of shard 0 that are not in the corpus: 1 (first: 'd2' of query_id "
        "'q1'). Their scores would be missing from the run. Check that the corpus is the one that "
        "the index or the given run was made from, or set on_missing_doc: drop"
    ]
