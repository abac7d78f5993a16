"""A step of a pipeline that waits so many seconds, or until its test is over."""

import contextlib
import threading
from collections.abc import Iterator

import apache_beam as beam

_ended = threading.Event()


class WaitFn(beam.DoFn):
    def process(self, seconds: float) -> Iterator[float]:
        _ended.wait(seconds)
        yield seconds


@contextlib.contextmanager
def endless() -> Iterator[float]:
    """Seconds that WaitFn waits only in this context: more than a test may take."""
    try:
        yield 1000.0
    finally:
        _ended.set()
        _ended.clear()
