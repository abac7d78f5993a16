"""Commands as a user runs them, with their seconds and peak memory; and functions in a process of
their own.
"""

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
class Usage:
    """What a command used. Resident memory is sampled 20 times a second.

    Attributes:
        started: when it started, in seconds since the epoch.
        seconds: its duration.
        peak_bytes: the peak of all its processes together.
        driver_peak_bytes: the peak of its own process.
        worker_peak_bytes: the largest peak of a process that it started; 0 if there was none.
    """

    started: float
    seconds: float
    peak_bytes: int
    driver_peak_bytes: int
    worker_peak_bytes: int


def run_metered(command: Sequence[str | Path], **environment: str) -> Usage:
    """Runs a command to its end.

    Raises:
        RuntimeError: it failed.
    """
    with TemporaryFile("w+") as log:
        started, clock = time.time(), time.monotonic()
        process = psutil.Popen(
            [str(word) for word in command],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
        )
        peak = driver_peak = worker_peak = 0
        while process.poll() is None:
            driver, *workers = _resident_bytes(process)
            peak = max(peak, driver + sum(workers))
            driver_peak, worker_peak = max(driver_peak, driver), max([worker_peak, *workers])
            time.sleep(_SAMPLE_SECONDS)
        seconds = time.monotonic() - clock
        if process.returncode != 0:
            log.seek(0)
            words = " ".join(map(str, command))
            raise RuntimeError(
                f"{words} ended with exit code {process.returncode}:\n{log.read()[-_TAIL_CHARS:]}"
            )
    return Usage(started, seconds, peak, driver_peak, worker_peak)


def _resident_bytes(process: psutil.Process) -> list[int]:
    """The memory of the process, then of the processes that it started."""
    sizes = [0]
    with suppress(psutil.NoSuchProcess):
        sizes[0] = process.memory_info().rss
        for child in process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                sizes.append(child.memory_info().rss)
    return sizes


def be_quiet() -> None:
    """Silences import warnings, of Beam for example, and progress bars; call it before the
    imports.
    """
    logging.basicConfig(level=logging.ERROR)
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def run_apart(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function in a new process, so that no JVM, model or warm cache of another measurement
    helps it.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=be_quiet) as pool:
        return pool.submit(function, *args, **kwargs).result()
