"""Child processes: their environment and their end."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

_PATIENCE_SECONDS = 3


def prepare_environment() -> None:
    """Makes child processes find this interpreter, and not import a user's folder called `models`."""
    folder = str(Path(sys.executable).parent)
    if os.environ.get("PATH", "").split(os.pathsep)[0] != folder:
        os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", "")])
    os.environ["PYTHONSAFEPATH"] = "1"
    # Torch's threads spin while they wait, which starves other processes on the same cores, such as a second worker: on
    # two shared cores, spinning made scoring three times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def end_children() -> None:
    """Ends all child processes, so that none outlives an interrupted command."""
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
