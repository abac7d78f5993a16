"""Runs of the command line as processes: started, watched by their receipts, killed, and looked at afterwards."""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import psutil

from tests.support.cascades import BEAMRANK, run_here

TWO_PROCESSES = ("--", "--direct_running_mode=multi_processing", "--direct_num_workers=2")
_PROGRESS = re.compile(r"[a-z0-9-]+: ([\d,]+ of [\d,]+ (shards|corpus units read)|[\d,]+ docs), elapsed .*")
_LOG_NAME = re.compile(r"log file: .*")
_STAGE_DONE = re.compile(r"[a-z0-9-]+: \d+ shards? done in [\d:]+")
_POLL_SECONDS = 0.005
_PATIENCE_SECONDS = 120.0

Moment = Callable[[Path], bool]
FileState = tuple[int, int, int]


@cache
def undisturbed_run(config: Path) -> Path:
    """The output of one run that nobody disturbed."""
    output = config.parent / "undisturbed"
    run_here(config, output)
    return output


def said_but_progress(stderr: str) -> list[str]:
    """The lines of standard error, without progress, the time that stages took, and the name of the log."""
    dropped = (_PROGRESS, _STAGE_DONE, _LOG_NAME)
    return [line for line in stderr.splitlines() if not any(pattern.fullmatch(line) for pattern in dropped)]


def receipts(stage: str, count: int) -> Moment:
    """When so many shards of a stage have a receipt."""
    return lambda output: len(list(output.glob(f"{stage}*/receipts/0*.json"))) >= count


def a_file(pattern: str) -> Moment:
    """When there is such a file."""
    return lambda output: any(output.glob(pattern))


@contextlib.contextmanager
def started(config: Path, output: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A run in a process of its own, ended in any case."""
    command = [BEAMRANK, "run", str(config), "--output", str(output), *arguments]
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
                psutil.wait_procs(below, timeout=20)


def wait_until(moment: Moment, output: Path, process: "subprocess.Popen[str]") -> None:
    """Waits for a moment in the life of a run.

    Raises:
        AssertionError: the run ended before, or it took too long.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
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


def committed(output: Path) -> dict[str, FileState]:
    """Every receipt of an output and the part that it names, with what changes when a file is written again."""
    names = [path.relative_to(output) for path in output.glob("*/receipts/0*.json")]
    names += [path.relative_to(output) for path in output.glob("*/part-*.parquet") if _has_receipt(path)]
    return {str(name): _state(output / name) for name in names}


def parts(output: Path) -> list[str]:
    """The parts of an output; their names hold their content's digest."""
    return sorted(str(path.relative_to(output)) for path in output.glob("*/part-*.parquet"))


def _has_receipt(part: Path) -> bool:
    shard = part.name.split("-")[1]
    return any(part.name in path.read_text() for path in part.parent.glob(f"receipts/{shard}-*.json"))


def _state(path: Path) -> FileState:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size
