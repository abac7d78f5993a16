"""Child processes: their environment and their end."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

_PATIENCE_SECONDS = 3
# gRPC alone reads it, and no_proxy only without it.
_SPARED_BY_GRPC = "no_grpc_proxy"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def prepare_environment() -> None:
    """Makes child processes find this interpreter, and not import a user's folder called `models`.

    Beam's calls to this machine do not go through a proxy then; all other calls go where they went before.
    """
    folder = str(Path(sys.executable).parent)
    if os.environ.get("PATH", "").split(os.pathsep)[0] != folder:
        os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", "")])
    os.environ["PYTHONSAFEPATH"] = "1"
    spared = os.environ.get(_SPARED_BY_GRPC, os.environ.get("no_proxy", "")).split(",")
    os.environ[_SPARED_BY_GRPC] = ",".join(filter(None, dict.fromkeys([*map(str.strip, spared), *_THIS_MACHINE])))
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
