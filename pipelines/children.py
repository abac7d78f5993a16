"""The processes below this one."""

from collections.abc import Callable

import psutil

_PATIENCE_SECONDS = 3


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
