"""The files that a path names: a file, the files below a folder, or the matches of a glob.

Files and folders whose names begin with `_` or `.` are no data, unless the path itself names them:
Spark, Hadoop, editors and notebooks leave them beside their files.
"""

import glob
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from fsspec.implementations.local import LocalFileSystem

from beamrank.errors import PreflightError
from beamrank.storage import files as storage

NOT_DATA = "Names that begin with _ or . are no data"
_MAGIC = re.compile(r"[*?\[]")
_ESCAPED = re.compile(r"\[([*?\[])\]")
# How Hadoop marks a folder at a store.
_FOLDER_MARK = "_$folder$"
_PARQUET = (".parquet", ".pq")
# The logs of Delta, Hudi and Iceberg tables, and what may be between a table and the folder of a
# file: partitions, also in Iceberg's `data`.
_LOGS = ("_delta_log/*", ".hoodie/*", "metadata/*.metadata.json")
_BELOW_TABLE = (re.compile(r"(/[^/]+=[^/]*)*\Z"), re.compile(r"/data(/[^/]+=[^/]*)*\Z"))


class _RemoteEntry(NamedTuple):
    """An entry of a folder of a store, in the form of os.DirEntry."""

    name: str
    is_folder: bool

    def is_dir(self) -> bool:
        return self.is_folder

    def is_symlink(self) -> bool:
        return False


_Entry: TypeAlias = "os.DirEntry[str] | _RemoteEntry"
_Globs: TypeAlias = frozenset[tuple[str, ...]]


def is_data(base: str) -> bool:
    """Whether a file or a folder of this name, which no path names, is data."""
    return not base.startswith(("_", ".")) and not base.endswith(_FOLDER_MARK)


def absolute_glob(path: str, folder: str | None = None) -> str:
    """A path or a glob made absolute; of the folder's name nothing becomes a part of the glob.

    Args:
        path: a path that exists is no glob.
        folder: the one that a relative path is below; default: the current one.
    """
    if path.startswith("~") and "/" in path:
        home, _, path = path.partition("/")
        folder = os.path.expanduser(home)
    if "://" in path or path.startswith("/"):
        return storage.absolute(path)
    folder = storage.absolute(".") if folder is None else folder
    joined = storage.join_relative(folder, path)
    if not _MAGIC.search(folder) or storage.exists(joined):
        return joined
    return storage.join_relative(glob.escape(folder), path)


def relative_to(output: str, path: str) -> str:
    """A path as the plan of an output holds it: from the output on (`./`, `../`) where it is below
    it or its parent, so that it stays right where both are copied or renamed. Else as it is.
    """
    if not path.startswith("/") and "://" not in path:
        return path
    named = storage.absolute(path)
    # A configuration and an output can have been named through different links.
    real = storage.join(storage.resolved(storage.parent(path) or "/"), storage.name(named))
    for mark, folder in _anchors(output):
        starts = (folder, glob.escape(folder), storage.resolved(folder))
        for start, form in product(starts, (named, real)):
            if f"{form}/".startswith(f"{start}/"):
                return mark + form[len(start) + 1 :]
    return path


def resolved_in(output: str, path: str) -> str:
    """The path that `relative_to` made relative, from where the output is now."""
    for mark, folder in _anchors(output):
        if path == mark:
            return folder
        if path.startswith(mark):
            below = path.removeprefix(mark)
            is_glob = _MAGIC.search(below) is not None
            return absolute_glob(f"./{below}", folder) if is_glob else storage.join(folder, below)
    return path


def _anchors(output: str) -> Iterator[tuple[str, str]]:
    """The folders from which paths are relative, each after its mark: never a root, or a protocol's
    beginning.
    """
    output, above = storage.absolute(output), storage.parent(output)
    yield "./", output
    if above and not above.endswith(":/"):
        yield "../", above


def find(url: str) -> list[str]:
    """The files that a path names, sorted. Links to folders are followed, and each real folder is
    read once.

    Args:
        url: a file, a folder or a glob.

    Raises:
        PreflightError: a folder cannot be listed, or holds data and is a match, a link leads
            nowhere, or Parquet files belong to a table whose log is the only place that says which
            of its files are current.
    """
    url = absolute_glob(url)
    with storage.located(url) as (filesystem, path):
        if storage.is_folder(url):
            tree, pattern = _Tree(filesystem, path), ["**"]
        elif filesystem.isfile(path) or not _MAGIC.search(path):
            return [storage.absolute(url)] if storage.exists(url) else []
        else:
            folder, pattern = _split(path)
            tree = _Tree(filesystem, folder)
        matches = dict(tree.matches(pattern))
        paths = sorted(matches)
        first = next((path for path in paths if matches[path]), None)
        if first is not None:
            raise PreflightError(
                f"{tree.url(first)} is a folder, and {url} matches it: add `/*` to the glob for "
                "the files in it, or give the folder"
            )
        tree.refuse_tables(path for path in paths if path.lower().endswith(_PARQUET))
        return list(map(tree.url, paths))


def root_of(url: str) -> str:
    """The folder that a path names, or that its glob begins in."""
    url = absolute_glob(url)
    if storage.is_folder(url):
        return storage.absolute(url)
    with storage.located(url) as (filesystem, path):
        return _Tree(filesystem, _split(path)[0]).url(_split(path)[0])


def path_below(path: str, url: str) -> str | None:
    """The path of a file below a folder, a file or a glob that would take it once it is there; None
    for other files.

    It is empty where the path or the glob itself names the file, or a folder that holds it.
    """
    path, url = storage.resolved(absolute_glob(path)), storage.resolved(url)
    if not _MAGIC.search(path) or storage.exists(path):
        below = url.removeprefix(f"{path}/")
        is_taken = url == path or (below != url and all(map(is_data, below.split("/"))))
        return ("" if url == path else below) if is_taken else None
    folder, pattern = _split(path)
    names = url.removeprefix(f"{folder}/").split("/") if url.startswith(f"{folder}/") else []
    globs = _closure([tuple(pattern)])
    for number, name in enumerate(names, 1):
        is_match, globs = _step(globs, name)
        if is_match and (number == len(names) or "**" not in pattern):
            return ""
    return None


def _split(path: str) -> tuple[str, list[str]]:
    """The folder that a glob begins in, and the glob's parts below it."""
    parts = path.split("/")
    is_glob = [_MAGIC.search(_ESCAPED.sub("", part)) is not None for part in parts[:-1]] + [True]
    count = is_glob.index(True)
    below = [
        part
        for part, before in zip(parts, ["", *parts], strict=False)
        if (part, before) != ("**", "**")
    ][count:]
    return "/".join(_ESCAPED.sub(r"\1", part) for part in parts[:count]), below


class _Tree:
    """The files below a folder."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem = filesystem
        self._root = root
        self._prefix = f"{root.rstrip('/')}/"
        self._is_local = isinstance(filesystem, LocalFileSystem)
        # Of a store that lists all files at once: what is in each folder.
        self._listed: dict[str, list[_RemoteEntry]] | None = None

    def matches(self, pattern: Sequence[str]) -> Iterator[tuple[str, bool]]:
        """The paths that a glob below the folder matches, and whether each is a folder that holds
        data.

        Folders are entered before links to folders, so that a link never hides a folder. Below, a
        folder is its path below the root, with a slash at its end, and it has the globs that are
        left for it.
        """
        if "**" in pattern and not self._is_local:
            self._listed = self._list_all()
        folders = deque([("", _closure([tuple(pattern)]))])
        links, entered, matched = type(folders)(), set[object](), set[object]()
        while folders or links:
            folder, globs = (folders or links).popleft()
            identity = self._identity(folder)
            if (identity, globs) in entered:
                continue
            entered.add((identity, globs))
            for entry in self._entries(folder):
                is_match, below = _step(globs, entry.name)
                if not (is_match or below):
                    continue
                path, is_folder = folder + entry.name, self._is_folder(folder, entry)
                if is_folder and below:
                    (links if entry.is_symlink() else folders).append((f"{path}/", below))
                if is_match and (identity, entry.name) not in matched:
                    matched.add((identity, entry.name))
                    path = self._prefix + path
                    # Each folder would be a match of a glob with `**`.
                    if not is_folder or (
                        "**" not in pattern and _Tree(self._filesystem, path).holds(["**"])
                    ):
                        yield path, is_folder

    def holds(self, pattern: Sequence[str]) -> bool:
        """Whether there is a match."""
        return any(True for _ in self.matches(pattern))

    def refuse_tables(self, files: Iterable[str]) -> None:
        """Raises PreflightError where files belong to a table that keeps old rows beside current
        ones.
        """
        folders = {file.rpartition("/")[0] for file in files}
        for table in sorted(
            {below.sub("", folder) for folder in folders for below in _BELOW_TABLE}
        ):
            for log in _LOGS:
                if self._filesystem.glob(f"{glob.escape(table)}/{log}"):
                    name = f"{storage.name(table)}/{log.partition('/')[0]}"
                    raise PreflightError(
                        f"{self.url(table)} is a Delta, Hudi or Iceberg table: only the log in "
                        f"{name} says which files are current. Export the current rows as Parquet",
                        kind="table",
                        file=name,
                    )

    def url(self, path: str) -> str:
        """The URL of a path, or a local path itself."""
        return str(self._filesystem.unstrip_protocol(path)).removeprefix("file://")

    def _list_all(self) -> dict[str, list[_RemoteEntry]]:
        """The entries of each folder; empty objects whose names end in a slash are folders of a
        console.
        """
        try:
            entries = self._filesystem.find(self._root, detail=True)
        except FileNotFoundError:
            return {}
        listed: dict[str, dict[_RemoteEntry, None]] = {}
        for path, entry in entries.items():
            if path.startswith(self._prefix) and (not path.endswith("/") or entry["size"]):
                folder, parts = "", path.removeprefix(self._prefix).split("/")
                for part in parts[:-1]:
                    listed.setdefault(folder, {})[_RemoteEntry(part, True)] = None
                    folder += f"{part}/"
                listed.setdefault(folder, {})[_RemoteEntry(parts[-1], False)] = None
        return {folder: list(entries) for folder, entries in listed.items()}

    def _identity(self, folder: str) -> object:
        if not self._is_local:
            return folder
        try:
            about = os.stat(self._prefix + folder)
        except OSError:
            return folder  # It cannot be listed either, which is an error.
        return about.st_dev, about.st_ino

    def _entries(self, folder: str) -> Sequence[_Entry]:
        """The entries of a folder, sorted by name where links can be; nothing where the root does
        not exist.
        """
        path = (self._prefix + folder)[:-1] if folder else self._root
        entries: Sequence[_Entry] = ()
        try:
            if self._listed is not None:
                entries = self._listed.get(folder, [])
            elif self._is_local:
                with os.scandir(path or "/") as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            else:
                listed = storage.entries_in(self._filesystem, path)
                entries = [
                    _RemoteEntry(storage.name(entry["name"]), entry["type"] == "directory")
                    for entry in listed
                ]
        except OSError as error:
            if folder or not isinstance(error, FileNotFoundError | NotADirectoryError):
                if not self._is_local:
                    raise
                raise PreflightError(
                    f"cannot list {path}: {error.strerror}. Its files would be left out: give "
                    "this user the right to read it, or leave it out of the path"
                ) from error
        return entries

    def _is_folder(self, folder: str, entry: _Entry) -> bool:
        path = self._prefix + folder + entry.name
        try:
            if entry.is_symlink():
                os.stat(path)
            return entry.is_dir()
        except OSError as error:
            raise PreflightError(
                f"the link {path} cannot be followed: {error.strerror}. What it leads to would be "
                "left out: correct or remove the link"
            ) from error


def _step(globs: _Globs, name: str) -> tuple[bool, _Globs]:
    """Whether a name matches one of some globs, and the globs that are left below it."""
    fitting = [parts for parts in globs if _fits(parts[0], name)]
    is_match = any(len(parts) == 1 and parts != ("**",) for parts in fitting)
    return is_match, _closure(parts if parts[0] == "**" else parts[1:] for parts in fitting)


def _closure(globs: Iterable[tuple[str, ...]]) -> _Globs:
    """Globs, and what they are where `**` stands for no folder; at the end it stands for all
    files.
    """
    kept = [parts for parts in globs if parts]
    kept += [parts[1:] or ("*",) for parts in kept if parts[0] == "**"]
    return frozenset(kept)


def _fits(part: str, base: str) -> bool:
    """Whether a name is one that a part of a glob stands for."""
    is_named = base.startswith(("_", ".")) and part.startswith(base[0])
    return (is_data(base) or is_named) and fnmatchcase(base, part)
