"""A shard at work: its stage counts the inputs that are done, and once a minute a file beside the
receipts tells others. A shard that was left open has such a file too.
"""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any

from beamrank.storage import files as storage
from beamrank.storage.documents import Count, Document, Seconds
from beamrank.system import system

TELL_SECONDS = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Working(Document):
    """How many inputs of a shard were done, of how many, when its attempt last told."""

    shard: Count
    done: Count
    inputs: Count


@dataclass(frozen=True)
class LeftOpen(Document):
    """Why and when an attempt left a shard open: see `beamrank.errors.LeftOpenError`."""

    shard: Count
    reason: str
    left_seconds: Seconds


class ShardProgress:
    """An attempt at a shard, which several threads may count. Without a `url` it tells nobody."""

    def __init__(self, shard: int = 0, url: str = "") -> None:
        self.done = self.inputs = 0
        self._shard, self._url, self._told = shard, url, False
        self._lock, self._next = Lock(), system.monotonic() + TELL_SECONDS

    def add(self, done: int, inputs: int = 0) -> None:
        """Counts inputs that are done now, and inputs that will be. An input is what the stage
        chooses.
        """
        with self._lock:
            self.done += done
            self.inputs += inputs
            if self._url and system.monotonic() >= self._next:
                self._told = True
                content = Working(self._shard, self.done, self.inputs).to_json()
                self._try(storage.replace, content)
                self._next = system.monotonic() + TELL_SECONDS

    def end(self) -> None:
        """Removes the file; a killed process leaves it."""
        if self._told:
            self._try(storage.remove)

    def _try(self, change: Callable[..., None], *arguments: Any) -> None:
        # The shard goes on without it.
        try:
            change(self._url, *arguments)
        except Exception as error:
            _log.warning("%s cannot be written or removed: %s", self._url, error)


current: ContextVar[ShardProgress] = ContextVar("work")


def shard_at_work() -> ShardProgress:
    """The work of this thread, for stages to count; elsewhere one that nobody sees."""
    return current.get(None) or ShardProgress()
