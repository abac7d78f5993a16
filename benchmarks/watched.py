"""Commands as a user runs them, with their seconds and peak memory, and functions in a process of their own."""

import logging
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import ParamSpec, TypeVar

import psutil

BEAMRANK = str(Path(sys.executable).parent / "beamrank")

_SAMPLE_SECONDS = 0.05
_TAIL_CHARS = 3000

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Watched:
    """A command that ended well; `peak_bytes` is the resident memory of its processes together, sampled 20 times/s."""

    started: float
    seconds: float
    peak_bytes: int


def watch(command: Sequence[str | Path], **environment: str) -> Watched:
    """Runs a command to its end.

    Raises:
        RuntimeError: it failed.
    """
    with TemporaryFile("w+") as talk:
        started, clock = time.time(), time.monotonic()
        process = psutil.Popen(
            [str(word) for word in command], stdout=talk, stderr=subprocess.STDOUT, env=os.environ | environment
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, _resident_bytes(process))
            time.sleep(_SAMPLE_SECONDS)
        seconds = time.monotonic() - clock
        if process.returncode != 0:
            talk.seek(0)
            words = " ".join(map(str, command))
            raise RuntimeError(f"{words} ended with exit code {process.returncode}:\n{talk.read()[-_TAIL_CHARS:]}")
    return Watched(started, seconds, peak)


def _resident_bytes(process: psutil.Process) -> int:
    total = 0
    with suppress(psutil.NoSuchProcess):
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += each.memory_info().rss
    return total


def be_quiet() -> None:
    """Silences warnings of Beam and its friends at import, and progress bars: call it before that."""
    logging.basicConfig(level=logging.ERROR)
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def run_apart(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function in a fresh process: a JVM, a model or a warm cache of one measurement must not help another."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=be_quiet) as pool:
        return pool.submit(function, *args, **kwargs).result()
