"""One input under limits: no error but ours, no hang, no memory beyond a bound, no row lost."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from beamrank.errors import BeamrankError
from beamrank.storage.streams import open_stream
from benchmarks.fuzz.targets import Target

MOST_SECONDS = 10.0
_PAGE = resource.getpagesize()


class OverrunError(BaseException):
    """An input took too long; no handler of errors may catch it."""


class Prepared(NamedTuple):
    """A target with its folder."""

    target: Target
    path: str
    seeds: tuple[bytes, ...]


def prepare(target: Target, folder: Path) -> Prepared:
    """Makes what is around a target's file."""
    folder.mkdir(parents=True)
    path, seeds = target.make(folder)
    return Prepared(target, path, tuple(seeds))


def attempt(prepared: Prepared, content: bytes) -> bool:
    """Reads a content; returns whether it was read, not refused. Anything else is an error of the
    product.
    """
    target, path = prepared.target, prepared.path
    Path(path).write_bytes(content)
    before, highest = _resident(), _highest()
    try:
        with _limited():
            read = target.read(path)
    except BeamrankError as error:
        if not str(error).strip():
            raise AssertionError("an error without a message") from error
        return False
    finally:
        # Of the whole process, and it never falls: measured again where it rose.
        if _highest() > highest and _highest() - before > _most_bytes(len(content)):
            unpacked, used = _unpacked_bytes(path), memory_of(lambda: target.read(path))
            assert used <= _most_bytes(unpacked), f"{used:,} bytes for an input of {unpacked:,}"
    least = target.rows(content)
    assert read >= least, f"of {least} rows {read} were read or counted"
    return True


def memory_of(read: Callable[[], object]) -> int:
    """The bytes that a function takes at its most, whatever comes of it."""
    before = _resident()
    Path("/proc/self/clear_refs").write_text("5")
    with suppress(Exception):
        read()
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 - before


def _most_bytes(unpacked: int) -> int:
    return (64 << 20) + 20 * unpacked


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def _highest() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _unpacked_bytes(path: str) -> int:
    size, unpacked = os.path.getsize(path), 0
    # A damaged file may unpack to much before its error.
    with suppress(BeamrankError), open_stream(path) as file:
        for chunk in iter(lambda: file.read(1 << 16), b""):
            unpacked += len(chunk)
    return max(size, unpacked)


@contextmanager
def _limited() -> Iterator[None]:
    """Ends the block after ten seconds of the processor: others may use the machine."""

    def overrun(*_: Any) -> None:
        raise OverrunError(f"it took more than {MOST_SECONDS:.0f} seconds")

    signal.signal(signal.SIGPROF, overrun)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
