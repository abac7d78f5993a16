"""The command line in this process or in others: run, started together, watched by its files,
killed.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import psutil
from typer.testing import CliRunner

from beamrank.errors import BeamrankError, exit_code
from pipelines.cli import app
from pipelines.runners.workers import WORKER_MODULE

BEAMRANK = str(Path(sys.executable).parent / "beamrank")
TWO_PROCESSES = ("--", "--direct_running_mode=multi_processing", "--direct_num_workers=2")
_PROGRESS = re.compile(
    r"[a-z0-9-]+: ([\d,]+ of [\d,]+ (shards|parts|corpus units read)|[\d,]+ docs), elapsed .*"
)
_LOG_NAME = re.compile(r"log file: .*")
_STAGE_DONE = re.compile(r"[a-z0-9-]+: \d+ shards? done in [\d:]+")
_POLL_SECONDS = 0.005
PATIENCE_SECONDS = 300.0

Moment = Callable[[Path], bool]


def beamrank(
    *arguments: str | Path, timeout: float = 500, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, as a user runs it."""
    return subprocess.run(
        [BEAMRANK, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "COLUMNS": "200", **environment},
        check=False,
    )


def beamrank_here(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command line in this process, which saves the seconds that importing Beam and torch
    takes.
    """
    command = [str(argument) for argument in arguments]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    code, stderr = done.exit_code, done.stderr
    if isinstance(done.exception, BeamrankError):
        code, stderr = exit_code(done.exception), f"{stderr}error: {done.exception}\n"
    elif not isinstance(done.exception, SystemExit | None):
        raise done.exception
    return subprocess.CompletedProcess(command, code, done.stdout, stderr)


def succeed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command in this process that must succeed."""
    done = beamrank_here(*arguments)
    assert done.returncode == 0, done.stderr
    return done


def refused(*arguments: str | Path, code: int) -> str:
    """Standard error of a command in this process that must end with an exit code, and print
    nothing else.
    """
    done = beamrank_here(*arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    return done.stderr


def without_progress(stderr: str) -> list[str]:
    """The lines of standard error, without progress, the time that stages took, and the name of the
    log.
    """
    dropped = (_PROGRESS, _STAGE_DONE, _LOG_NAME)
    return [
        line
        for line in stderr.splitlines()
        if not any(pattern.fullmatch(line) for pattern in dropped)
    ]


def receipts_exist(stage: str, count: int) -> Moment:
    """When so many shards of a stage have a receipt."""
    return lambda output: len(list(output.glob(f"{stage}*/receipts/0*.json"))) >= count


def file_exists(pattern: str) -> Moment:
    """When there is such a file."""
    return lambda output: any(output.glob(pattern))


@contextlib.contextmanager
def started(config: Path, output: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A run in a process of its own, ended in any case."""
    with started_command("run", config, "--output", output, *arguments) as process:
        yield process


@contextlib.contextmanager
def started_command(*arguments: str | Path) -> Iterator["subprocess.Popen[str]"]:
    """A command in a process of its own, ended in any case."""
    command = [BEAMRANK, *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                below = children(process)
                process.kill()
                psutil.wait_procs(below, timeout=PATIENCE_SECONDS)


def wait_until(moment: Moment, output: Path, process: "subprocess.Popen[str]") -> None:
    """Waits for a moment in the life of a run.

    Raises:
        AssertionError: the run ended before, or it took too long.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not moment(output):
        assert process.poll() is None, f"the run ended before the moment: {process.communicate()}"
        assert time.monotonic() < deadline, "the moment did not come"
        time.sleep(_POLL_SECONDS)


def children(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    """All processes below a run."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def with_argument(processes: Iterable[psutil.Process], text: str) -> list[psutil.Process]:
    """The processes that still run and whose command line has a text."""
    found = []
    for each in processes:
        with contextlib.suppress(psutil.Error):
            if text in " ".join(each.cmdline()):
                found.append(each)
    return found


def worker_processes(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    """The worker processes of a run."""
    return with_argument(children(process), WORKER_MODULE)


def run_together(commands: Sequence[Sequence[str]], seconds: float) -> list[str]:
    """Starts programs, tells them to continue once each has printed `ready`, and gives what they
    print after that.
    """
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for command in commands
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = [process.communicate(timeout=seconds)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return printed
