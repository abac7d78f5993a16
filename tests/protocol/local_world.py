"""A file system in memory with the calls of `os` and of fsspec's local files, for the machines of a
simulation: locks, clocks, and what a machine did not sync.
"""

import io
import os
import posixpath
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EBADF, EWOULDBLOCK
from fcntl import LOCK_NB, LOCK_SH
from stat import S_IFDIR, S_IFREG
from types import SimpleNamespace
from typing import Any, NamedTuple

from fsspec.implementations.local import LocalFileSystem

from tests.protocol.schedules import Process, Scheduler

TMP = "/tmp"


@dataclass(eq=False)
class Inode:
    """A file. `synced` is what survives a power failure; None where nothing does."""

    content: bytes = b""
    synced: bytes | None = None
    modified: float = 0.0


@dataclass
class Folder:
    """Names in a folder; `durable` are those that survive a power failure, and `journal` the
    changes since, in order.
    """

    names: dict[str, Inode] = field(default_factory=dict)
    durable: dict[str, Inode] = field(default_factory=dict)
    journal: list[dict[str, Inode | None]] = field(default_factory=list)


@dataclass(eq=False)
class Opened:
    """An open file description."""

    file: Inode | Folder
    process: Process | None
    machine: str
    lock: int = 0
    uses: int = 1


class Change(NamedTuple):
    """A change of a file of an output, which others see."""

    path: str
    before: bytes | None
    after: bytes | None


class LocalWorld:
    """The calls. `watch` sees each change of a name."""

    def __init__(self, scheduler: Scheduler, seed: int = 0) -> None:
        self.scheduler = scheduler
        self.folders: dict[str, Folder] = {"/": Folder()}
        self.opened: dict[int, Opened] = {}
        self.offsets: dict[str, float] = {}
        self.watch: Callable[[Change], None] = lambda change: None
        self._chance = random.Random(seed)
        self._number = 100
        scheduler.released = self.release
        scheduler.power = self.power

    # Processes and clocks.

    @property
    def machine(self) -> str:
        current = self.scheduler.current
        return "outside" if current is None else current.machine

    def time(self) -> float:
        return self.scheduler.now + self.offsets.get(self.machine, 0.0)

    def monotonic(self) -> float:
        return self.scheduler.now

    def gethostname(self) -> str:
        return self.machine

    def getpid(self) -> int:
        current = self.scheduler.current
        return 1 if current is None else 10 + current.number

    def uuid4(self) -> Any:
        return SimpleNamespace(hex=f"{self._chance.getrandbits(128):032x}")

    # Names. Each machine has its own temporary folder.

    def _split(self, path: str) -> tuple[str, str]:
        path = path.rstrip("/") or "/"
        if path == TMP or path.startswith(f"{TMP}/"):
            path = f"/{self.machine}{path}"
        folder, _, base = path.rpartition("/")
        return folder or "/", base

    def _whole(self, path: str) -> str:
        folder, base = self._split(path)
        return f"{folder.rstrip('/')}/{base}"

    def find(self, path: str) -> Inode | Folder | None:
        folder, base = self._split(path)
        whole = f"{folder.rstrip('/')}/{base}"
        if whole in self.folders:
            return self.folders[whole]
        return self.folders[folder].names.get(base) if folder in self.folders else None

    def _get(self, path: str) -> Inode | Folder:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return node

    def _set(self, path: str, node: Inode | None, gone: str = "") -> None:
        """Names a file, or removes the name; with `gone`, another name in the folder ends at the
        same moment.
        """
        folder, base = self._split(path)
        if folder not in self.folders:
            raise FileNotFoundError(2, "No such file or directory", path)
        names = self.folders[folder].names
        before = names.pop(base, None)
        change: dict[str, Inode | None] = {base: node}
        if node is not None:
            names[base] = node
        if gone:
            names.pop(gone, None)
            change[gone] = None
        self.folders[folder].journal.append(change)
        self.watch(
            Change(
                f"{folder}/{base}",
                None if before is None else before.content,
                None if node is None else node.content,
            )
        )

    def content(self, path: str) -> bytes | None:
        """The content of a file, for observers."""
        node = self.find(path)
        return node.content if isinstance(node, Inode) else None

    def _stop(self, call: str, path: str = "") -> None:
        self.scheduler.stop(f"{call} {path}")

    # Descriptors.

    def _new(self, opened: Opened) -> int:
        self._number += 1
        self.opened[self._number] = opened
        return self._number

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        self._stop("open" if not flags & os.O_CREAT else "create", path)
        node = self.find(path)
        if flags & os.O_CREAT:
            if node is not None and flags & os.O_EXCL:
                raise FileExistsError(17, "File exists", path)
            if node is None:
                node = Inode(modified=self.scheduler.now)
                self._set(path, node)
        elif node is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        assert node is not None
        return self._new(Opened(node, self.scheduler.current, self.machine))

    def _opened(self, descriptor: int) -> Opened:
        if descriptor not in self.opened:
            raise OSError(EBADF, "Bad file descriptor")
        return self.opened[descriptor]

    def dup(self, descriptor: int) -> int:
        opened = self._opened(descriptor)
        opened.uses += 1
        return self._new(opened)

    def close(self, descriptor: int) -> None:
        opened = self.opened.pop(descriptor, None)
        if opened is not None:
            opened.uses -= 1
            opened.lock = opened.lock if opened.uses else 0

    def write(self, descriptor: int, content: bytes) -> int:
        self._stop("write")
        node = self._opened(descriptor).file
        assert isinstance(node, Inode)
        node.content += content
        node.modified = self.scheduler.now
        return len(content)

    def fsync(self, descriptor: int) -> None:
        self._stop("fsync")
        node = self._opened(descriptor).file
        if isinstance(node, Inode):
            node.synced = node.content
            return
        node.durable, node.journal = dict(node.names), []

    @contextmanager
    def fdopen(self, descriptor: int, mode: str) -> Iterator[Any]:
        def writelines(chunks: Any) -> None:
            self.write(descriptor, b"".join(chunks))

        yield SimpleNamespace(writelines=writelines, flush=lambda: None, fileno=lambda: descriptor)
        self.close(descriptor)

    def flock(self, descriptor: int, kind: int) -> None:
        self._stop("flock")
        opened = self._opened(descriptor)

        def is_free() -> bool:
            others = [
                one
                for one in self.opened.values()
                if one.file is opened.file
                and one is not opened
                and one.lock
                # A machine does not see the locks of others.
                and one.machine == opened.machine
            ]
            return not others or (
                bool(kind & LOCK_SH) and all(one.lock == LOCK_SH for one in others)
            )

        if not is_free():
            if kind & LOCK_NB:
                raise BlockingIOError(EWOULDBLOCK, "Resource temporarily unavailable")
            self.scheduler.wait(is_free)
        opened.lock = kind & ~LOCK_NB

    # Names.

    def link(self, source: str, target: str) -> None:
        self._stop("link", target)
        node = self._get(source)
        if self.find(target) is not None:
            raise FileExistsError(17, "File exists", target)
        assert isinstance(node, Inode)
        self._set(target, node)

    def replace(self, source: str, target: str) -> None:
        self._stop("rename", target)
        node = self._get(source)
        if isinstance(node, Folder) or isinstance(self.find(target), Folder):
            raise IsADirectoryError(21, "Is a directory", target)
        self._set(target, node, gone=posixpath.basename(source))

    def unlink(self, path: str) -> None:
        self._stop("unlink", path)
        if not isinstance(self._get(path), Inode):
            raise IsADirectoryError(21, "Is a directory", path)
        self._set(path, None)

    remove = unlink

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._stop("mkdir", path)
        if self.find(path) is not None:
            raise FileExistsError(17, "File exists", path)
        self.folders[self._whole(path)] = Folder()

    def makedirs(self, path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        # Journals of real file systems keep a folder with the first file in it that is synced.
        whole = self._whole(path)
        if whole not in self.folders:
            self._stop("mkdir", path)
            while whole and whole not in self.folders:
                self.folders[whole] = Folder()
                whole = whole.rpartition("/")[0]

    def rmdir(self, path: str) -> None:
        self._stop("rmdir", path)
        whole = self._whole(path)
        if self.listed(whole):
            raise OSError(39, "Directory not empty", path)
        self.folders.pop(whole, None)

    def utime(self, path: str) -> None:
        self._stop("utime", path)
        node = self._get(path)
        assert isinstance(node, Inode)
        node.modified = self.scheduler.now

    def listed(self, whole: str) -> list[str]:
        below = {
            name[len(whole) + 1 :]
            for name in self.folders
            if name.startswith(f"{whole}/") and "/" not in name[len(whole) + 1 :]
        }
        return sorted([*self.folders[whole].names, *below]) if whole in self.folders else []

    def stat(self, path: str, **_: Any) -> Any:
        node = self._get(path)
        if isinstance(node, Folder):
            newest = max((file.modified for file in node.names.values()), default=0.0)
            # The folder of a file that was just made has its time.
            return SimpleNamespace(st_mode=S_IFDIR | 0o755, st_mtime=newest, st_size=0)
        return SimpleNamespace(
            st_mode=S_IFREG | 0o644, st_mtime=node.modified, st_size=len(node.content)
        )

    def readlink(self, path: str) -> str:
        raise OSError(22, "Invalid argument", path)

    @contextmanager
    def scandir(self, path: str) -> Iterator[Any]:
        self._stop("scandir", path)
        if not isinstance(self._get(path), Folder):
            raise NotADirectoryError(20, "Not a directory", path)
        yield [_DirEntry(self, path, name) for name in self.listed(self._whole(path))]

    @property
    def path(self) -> Any:
        return SimpleNamespace(
            exists=lambda path: self.find(path) is not None,
            lexists=lambda path: self.find(path) is not None,
            isdir=lambda path: isinstance(self.find(path), Folder),
            isfile=lambda path: isinstance(self.find(path), Inode),
            islink=lambda path: False,
            realpath=lambda path: path,
        )

    def local_filesystem(self, **_: Any) -> "SimulatedLocalFiles":
        return SimulatedLocalFiles(self)

    # Ends.

    def release(self, process: Process) -> None:
        """The kernel closes the files of a process that ended."""
        process.renewals.clear()
        for number, opened in list(self.opened.items()):
            if opened.process is process:
                opened.lock = 0
                del self.opened[number]

    def power(self, machine: str, value: int) -> None:
        """What was not synced is lost: all of it (0), all content but no names (1), or the last few
        names of a folder and the content of some files.
        """
        chance = random.Random(value)
        kept = set[int]()
        for folder in self.folders.values():
            count = len(folder.journal)
            left = {0: 0, 1: count}.get(value, chance.randint(0, count))
            for change in folder.journal[:left]:
                for name, node in change.items():
                    if node is None:
                        folder.durable.pop(name, None)
                    else:
                        folder.durable[name] = node
            folder.names, folder.journal = dict(folder.durable), []
            for node in folder.names.values():
                if id(node) not in kept:
                    kept.add(id(node))
                    if value < 2 or chance.random() < 0.5:
                        node.content = node.synced or b""
                    node.synced = node.content


class _DirEntry:
    def __init__(self, world: LocalWorld, folder: str, name: str) -> None:
        self._world, self.name, self.path = world, name, f"{folder}/{name}"

    def stat(self, follow_symlinks: bool = True) -> Any:
        return self._world.stat(self.path)

    def is_dir(self) -> bool:
        return self._world.path.isdir(self.path)


class SimulatedLocalFiles(LocalFileSystem):
    """fsspec's local files, in a world."""

    cachable = False

    def __init__(self, world: LocalWorld) -> None:
        super().__init__()
        self._world = world

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        self._world._stop("stat", path)
        return self._info(path)

    def _info(self, path: str) -> dict[str, Any]:
        about = self._world.stat(path)
        kind = "directory" if about.st_mode & S_IFDIR else "file"
        return {
            "name": path,
            "size": about.st_size,
            "type": kind,
            "mtime": about.st_mtime,
            "islink": False,
        }

    def ls(self, path: str, detail: bool = False, **_: Any) -> Any:
        self._world._stop("list", path)
        if not isinstance(self._world._get(path), Folder):
            return [self._info(path)]
        return [
            self._info(f"{path}/{name}") for name in self._world.listed(self._world._whole(path))
        ]

    def exists(self, path: str, **_: Any) -> bool:
        self._world._stop("exists", path)
        return self._world.find(path) is not None

    def isdir(self, path: str) -> bool:
        self._world._stop("exists", path)
        return isinstance(self._world.find(path), Folder)

    def isfile(self, path: str) -> bool:
        self._world._stop("exists", path)
        return isinstance(self._world.find(path), Inode)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        self._world._stop("read", path)
        node = self._world._get(path)
        if isinstance(node, Folder):
            raise IsADirectoryError(21, "Is a directory", path)
        return node.content

    def rm_file(self, path: str) -> None:
        self._world.unlink(path)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return io.BytesIO(self.cat_file(path))
