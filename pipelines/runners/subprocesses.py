"""The processes below this one: what they are told, and their end."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

_PATIENCE_SECONDS = 3


def prepare_environment() -> None:
    """Makes every process that we start find this interpreter and never a folder of the user's called `models`."""
    folder = str(Path(sys.executable).parent)
    if os.environ.get("PATH", "").split(os.pathsep)[0] != folder:
        os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", "")])
    os.environ["PYTHONSAFEPATH"] = "1"
    # Torch's threads spin while they wait for each other, which starves whatever shares the cores with them, a second
    # worker first of all: on two cores that other work shared, two spinning threads scored three times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def end_children() -> None:
    """Ends every process below this one, so that none outlives an interrupted command."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        _signal(child.terminate)
    _, alive = psutil.wait_procs(children, timeout=_PATIENCE_SECONDS)
    for child in alive:
        _signal(child.kill)


def _signal(send: Callable[[], None]) -> None:
    try:
        send()
    except psutil.NoSuchProcess:
        return
