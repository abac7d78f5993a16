"""An object store in memory with the calls of fsspec: puts that create and never replace, lost
answers, puts that arrive late.
"""

import io
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec import AbstractFileSystem

from tests.protocol.local_world import Change, LocalWorld

PROTOCOL = "simulated"


@dataclass(frozen=True)
class Stored:
    """An object, and when it was written by the store's clock."""

    content: bytes
    modified: float


class StoreWorld(LocalWorld):
    """The store, beside the local folders of its machines, where locks are.

    Attributes:
        objects: by path.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.objects: dict[str, Stored] = {}
        SimulatedStore.world = self

    def content(self, path: str) -> bytes | None:
        stored = self.objects.get(path)
        return None if stored is None else stored.content

    def put(self, path: str, content: bytes, creates: bool) -> None:
        """A put, and what fails of it."""
        self._stop("put", path)
        fault = self.scheduler.put()
        if fault is not None and fault.what == "delay":
            self.scheduler.later(fault.value, partial(self._arrive, path, content, creates))
            raise TimeoutError(f"no answer about {path}")
        if not self._arrive(path, content, creates):
            raise FileExistsError(path)
        if fault is not None and fault.what == "lose":
            raise TimeoutError(f"no answer about {path}")
        if fault is not None and creates:
            # The client sends it again.
            raise FileExistsError(path)

    def _arrive(self, path: str, content: bytes, creates: bool) -> bool:
        if creates and path in self.objects:
            return False
        before = self.content(path)
        self.objects[path] = Stored(content, self.scheduler.now)
        self.watch(Change(path, before, content))
        return True

    def delete(self, path: str) -> None:
        self._stop("delete", path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        before = self.objects.pop(path)
        self.watch(Change(path, before.content, None))


class SimulatedStore(AbstractFileSystem):
    """The file system of the current world."""

    protocol = PROTOCOL
    cachable = False
    world: ClassVar[StoreWorld]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix(f"{PROTOCOL}://").strip("/")

    def _info(self, path: str) -> dict[str, Any]:
        objects = self.world.objects
        if path in objects:
            stored = objects[path]
            size, mtime = len(stored.content), stored.modified
            return {"name": path, "size": size, "type": "file", "mtime": mtime}
        if any(name.startswith(f"{path}/") for name in objects):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        self.world._stop("head", path)
        return self._info(path)

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        path = self._strip_protocol(path)
        self.world._stop("list", path)
        below = (
            name[len(path) + 1 :] for name in self.world.objects if name.startswith(f"{path}/")
        )
        names = sorted({name.partition("/")[0] for name in below})
        if not names:
            raise FileNotFoundError(path)
        return [self._info(f"{path}/{name}") for name in names]

    def exists(self, path: str, **_: Any) -> bool:
        try:
            return bool(self.info(path))
        except FileNotFoundError:
            return False

    def isdir(self, path: str) -> bool:
        try:
            return bool(self.info(path)["type"] == "directory")
        except FileNotFoundError:
            return False

    def isfile(self, path: str) -> bool:
        try:
            return bool(self.info(path)["type"] == "file")
        except FileNotFoundError:
            return False

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        path = self._strip_protocol(path)
        self.world._stop("get", path)
        content = self.world.content(path)
        if content is None:
            raise FileNotFoundError(path)
        return content

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self.world.put(self._strip_protocol(path), value, mode == "create")

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        self.pipe_file(rpath, Path(lpath).read_bytes())

    def rm_file(self, path: str) -> None:
        self.world.delete(self._strip_protocol(path))

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return io.BytesIO(self.cat_file(path))


fsspec.register_implementation(PROTOCOL, SimulatedStore, clobber=True)
