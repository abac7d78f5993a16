"""An object store in memory whose calls fail on request, and the status that a damaged output must
show.
"""

import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EIO, ENOSPC
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from beamrank.commit.plan import Plan

PROTOCOL = "faulty"

Snapshot = Mapping[str, bytes]


@dataclass
class Faults:
    """Which calls fail: one write and one read in so many, drawn with a seed; all writes once
    `free_bytes` are used.

    A read times out. A write fails in one of these ways:

    * refuse: nothing happens, and an error is raised.
    * lose: it happens, but the answer is lost: the call times out.
    * cut: the first bytes arrive, and an error is raised.
    """

    seed: int = 0
    one_write_in: int = 0
    one_read_in: int = 0
    kinds: tuple[str, ...] = ("refuse", "lose", "cut")
    free_bytes: int | None = None
    happened: int = 0
    _random: random.Random = field(init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def of_write(self) -> str | None:
        """How a write fails, if it does."""
        return self._random.choice(self.kinds) if self._strikes(self.one_write_in) else None

    def of_read(self) -> bool:
        """Whether a read fails."""
        return self._strikes(self.one_read_in)

    def _strikes(self, one_in: int) -> bool:
        with self._lock:
            struck = one_in > 0 and self._random.randrange(one_in) == 0
            self.happened += struck
        return struck

    def takes(self, size_bytes: int) -> int:
        """How many bytes of a write there is room for."""
        with self._lock:
            if self.free_bytes is None:
                return size_bytes
            taken = min(size_bytes, self.free_bytes)
            self.free_bytes -= taken
            self.happened += taken < size_bytes
            return taken

    def cut(self, size_bytes: int) -> int:
        """Where a write breaks off."""
        return self._random.randrange(size_bytes) if size_bytes else 0


class FaultyFileSystem(MemoryFileSystem):
    """A store in memory; every write and read asks `faults` first. A write that breaks off leaves
    what it wrote.
    """

    protocol = PROTOCOL
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    faults: ClassVar[Faults] = Faults()
    turn: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix(f"{PROTOCOL}://"))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        fault = self.faults.of_write()
        if fault == "refuse":
            raise OSError(EIO, "the store does not answer", path)
        size = self.faults.takes(len(value)) if fault != "cut" else self.faults.cut(len(value))
        # fsspec looks, then writes; a store decides who was first.
        with self.turn:
            super().pipe_file(path, value[:size], mode=mode, **kwargs)
        if fault == "cut":
            raise ConnectionResetError(f"the connection broke after {size} bytes of {path}")
        if size < len(value):
            raise OSError(ENOSPC, "no space left", path)
        if fault == "lose":
            raise TimeoutError(f"no answer about {path}")

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        self.pipe_file(rpath, Path(lpath).read_bytes())

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        if self.faults.of_read():
            raise TimeoutError(f"no answer about {path}")
        return bytes(super().cat_file(path, start, end, **kwargs))


fsspec.register_implementation(PROTOCOL, FaultyFileSystem, clobber=True)


@contextmanager
def failing(faults: Faults) -> Iterator[Faults]:
    """The store fails in this way."""
    before, FaultyFileSystem.faults = FaultyFileSystem.faults, faults
    try:
        yield faults
    finally:
        FaultyFileSystem.faults = before


def snapshot(output: str) -> dict[str, bytes]:
    """The files of an output at the faulty store, by their paths below it."""
    root = FaultyFileSystem._strip_protocol(output) + "/"
    files = {path: file.getvalue() for path, file in tuple(FaultyFileSystem.store.items())}
    return {
        path.removeprefix(root): content
        for path, content in sorted(files.items())
        if path.startswith(root)
    }


def restore(output: str, files: Snapshot) -> None:
    """Makes an output what a snapshot says."""
    store = FaultyFileSystem()
    root = store._strip_protocol(output) + "/"
    for path in [path for path in store.store if path.startswith(root)]:
        del store.store[path]
    for path, content in files.items():
        MemoryFileSystem.pipe_file(store, root + path, content)


def expected_status(there: Snapshot, whole: Snapshot, plan: Plan) -> list[int]:
    """How many shards of each stage are done by what lies there, told from the files of an
    undisturbed run alone.
    """
    done: dict[str, set[str]] = {}
    for stage in plan.stages:
        names = [name for name in whole if name.startswith(f"{stage.name}/receipts/")]
        by_shard = {name.rpartition("/")[2].partition("-")[0]: name for name in names}
        ready = set(by_shard).intersection(*(done[each] for each in stage.inputs))
        sealed = any(
            _sealed(there, whole, name)
            for name in whole
            if name.startswith(f"{stage.name}/manifest-")
        )
        if not sealed or len(ready) < len(plan.shards):
            ready = {shard for shard in ready if _done(there, whole, stage.name, by_shard[shard])}
        done[stage.name] = ready
    return [len(shards) for shards in done.values()]


def _done(there: Snapshot, whole: Snapshot, stage: str, name: str) -> bool:
    return _without_times(there.get(name)) == _without_times(whole[name]) and _part_is_there(
        there, whole, f"{stage}/{json.loads(whole[name])['part']}"
    )


def _sealed(there: Snapshot, whole: Snapshot, name: str) -> bool:
    stage = name.partition("/")[0]
    parts = [f"{stage}/{receipt['part']}" for receipt in json.loads(whole[name])["receipts"]]
    return _without_times(there.get(name)) == _without_times(whole[name]) and all(
        _part_is_there(there, whole, part) for part in parts
    )


def _part_is_there(there: Snapshot, whole: Snapshot, part: str) -> bool:
    return len(there.get(part, b"")) == len(whole[part])


def _without_times(content: bytes | None) -> Any:
    """A receipt or a seal without what differs from run to run; None where it is not whole."""
    try:
        values = json.loads(content or b"")
    except ValueError:
        return None
    for each in [values, *values.get("receipts", [])]:
        for key in ("seconds", "committed_seconds", "host", "process"):
            each.pop(key, None)
        each.pop("check", None)
    return values
