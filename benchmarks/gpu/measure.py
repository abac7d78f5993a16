"""Does steps in another process, each within its time."""

import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from multiprocessing import get_context
from multiprocessing.connection import Connection

import psutil

from benchmarks.gpu.checkpoints import Setup
from benchmarks.gpu.steps import Row, Step
from benchmarks.subprocess_meter import be_quiet

DONE = "done"


def measure(steps: Mapping[str, Step], setup: Setup, seconds: float) -> Iterator[tuple[str, Row]]:
    """Yields the rows of steps, each with the name of its step; the last of each tells how it
    ended. The steps share the seconds; what one leaves is for those after it.
    """
    left, start = list(steps), time.monotonic()
    shares = [*accumulate(step.share for step in steps.values())]
    deadlines = {
        name: start + seconds * share / shares[-1]
        for name, share in zip(steps, shares, strict=True)
    }
    context = get_context("spawn")
    while left:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=_send, args=(sender, setup, {name: steps[name] for name in left})
        )
        process.start()
        sender.close()
        row: Row = {}
        while left and row.get("ended", DONE) == DONE:
            row = _receive(receiver, deadlines[left[0]] - time.monotonic())
            yield left[0], row
            if "ended" in row:
                del left[0]
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.join()


def _receive(receiver: Connection, seconds: float) -> Row:
    """The next row; how the step ended where there is none."""
    try:
        row: Row = receiver.recv() if receiver.poll(max(0.0, seconds)) else {"ended": "cut"}
    except EOFError:
        row = {"ended": "its process died"}
    return row


def _send(sender: Connection, setup: Setup, steps: Mapping[str, Step]) -> None:
    """Does steps in this process, up to one that fails: an error of CUDA can end its use."""
    be_quiet()
    for step in steps.values():
        ended, start = DONE, time.monotonic()
        try:
            for row in step.rows(setup):
                sender.send(row)
        # Whatever it is, the other steps are to be done.
        except Exception as error:
            traceback.print_exc()
            ended = f"{type(error).__name__}: {error}"
        sender.send({"ended": ended, "seconds": round(time.monotonic() - start, 1)})
        if ended != DONE:
            return
