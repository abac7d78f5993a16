"""What a path names: a file, the files below a folder, or the matches of a glob.

Files and folders whose names begin with `_` or `.` are no data, unless the path itself names them: Spark, Hadoop,
editors and notebooks leave them beside their files.
"""

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

from beamrank.errors import PreflightError
from beamrank.storage.files import absolute, entries_in, exists, exists_at, folder_at, join_relative, located, name

NOT_DATA = "Names that begin with _ or . are no data"
_MAGIC = re.compile(r"[*?\[]")
_ESCAPED = re.compile(r"\[([*?\[])\]")
_EVERYTHING: tuple[str, ...] = ("**", "*")
# How Hadoop marks a folder at a store.
_FOLDER_MARK = "_$folder$"
_PARQUET = (".parquet", ".pq")
# Tables that keep files with old rows, by the folders of their logs.
_LOGS = {
    "_delta_log": ("a Delta table", "*"),
    ".hoodie": ("a Hudi table", "*"),
    "metadata": ("an Iceberg table", "*.metadata.json"),
}
_LOG = re.compile(rf"(?:^|(?<=/))(?:{'|'.join(map(re.escape, _LOGS))})(?=/)")
# A folder of a table that may be given alone: a partition, or Iceberg's data.
_INSIDE_TABLE = re.compile(r".+=.*|data")


class _Entry(NamedTuple):
    name: str
    is_folder: bool
    is_link: bool


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
    folder = absolute(".") if folder is None else folder
    joined = join_relative(folder, path)
    if "://" in path or path.startswith("/") or not _MAGIC.search(folder) or exists(joined):
        return joined
    return join_relative(_MAGIC.sub(r"[\g<0>]", folder), path)


def find(url: str, *, folders: bool = False) -> list[str]:
    """The files that a path names, sorted. Links to folders are followed, and each real folder is read once.

    Args:
        url: a file, a folder or a glob.
        folders: a glob without `**` gives the folders that it matches too, if they hold data; else they are refused.

    Raises:
        PreflightError: a folder cannot be listed or is a match, a link leads nowhere, or Parquet files belong to a
            table whose log alone says which of its files are current.
    """
    url = absolute_glob(url)
    with located(url) as (filesystem, path):
        if folder_at(filesystem, path):
            tree, pattern = _Tree(filesystem, path), _EVERYTHING
        elif filesystem.isfile(path) or not _MAGIC.search(path):
            return [absolute(url)] if exists_at(filesystem, path) else []
        else:
            folder, pattern = _split(path)
            tree = _Tree(filesystem, folder)
        found = sorted(tree.matches(pattern))
        if tree.folders and not folders:
            raise PreflightError(
                f"{tree.url(min(tree.folders))} is a folder, and {url} matches it: add `/*` to the glob for the files "
                "in it, or give the folder"
            )
        if any(each.lower().endswith(_PARQUET) for each in found):
            tree.refuse_table(found)
        return list(map(tree.url, found))


def _split(path: str) -> tuple[str, tuple[str, ...]]:
    """The folder that a glob begins in, and the glob's parts below it."""
    parts = path.split("/")
    count = next(
        number
        for number, part in enumerate(parts, 1)
        if number == len(parts) or _MAGIC.search(_ESCAPED.sub("", part)) is not None
    )
    return "/".join(_ESCAPED.sub(r"\1", part) for part in parts[: count - 1]), tuple(parts[count - 1 :])


class _Tree:
    """The files below a folder."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self._filesystem = filesystem
        self._root = root
        self._is_local = isinstance(filesystem, LocalFileSystem)
        # A store that lists all files at once, with no request for each folder.
        self._is_flat = isinstance(filesystem, AsyncFileSystem) and type(filesystem)._find is not AsyncFileSystem._find
        self._files: list[str] | None = None
        # The folders among the matches.
        self.folders: set[str] = set()
        # Folders that may be logs of tables, of those that were come across.
        self._logs: set[str] = set()

    def matches(self, pattern: Sequence[str]) -> Iterator[str]:
        """The paths that a glob below the folder matches."""
        if not (self._is_flat and "**" in pattern):
            return self._walk(pattern)
        if self._files is None:
            self._files = self._list_all()
        prefix = self._root.rstrip("/") + "/"
        return (f"{prefix}{path}" for path in self._files if _matches(pattern, path))

    def refuse_table(self, files: Sequence[str]) -> None:
        """Refuses files that were found here and belong to a table; folders that no match is below are not looked at.

        Raises:
            PreflightError: they do.
        """
        logs, above = set(self._logs), self._root
        while _INSIDE_TABLE.fullmatch(name(above)):
            above = above.rpartition("/")[0]
            logs |= {path for each in _LOGS if self._filesystem.isdir(path := f"{above}/{each}")}
        for path in sorted(logs):
            table, _, folder = path.rpartition("/")
            kind, log = _LOGS[folder]
            taken = next((file for file in files if file.startswith(f"{table}/")), None)
            if taken is not None and any(True for _ in _Tree(self._filesystem, path).matches((log,))):
                raise PreflightError(
                    f"{self.url(taken)} is a file of {kind}: only the log in {name(table)}/{folder} says which of its "
                    "files are current, and the others hold rows that were deleted or replaced. Export the current "
                    "rows as Parquet, and give the export"
                )

    def url(self, path: str) -> str:
        """The URL of a path, or a local path itself."""
        return str(self._filesystem.unstrip_protocol(path)).removeprefix("file://")

    def _list_all(self) -> list[str]:
        """The paths below the folder; empty objects whose names end in a slash are folders of a console."""
        try:
            entries = self._filesystem.find(self._root, detail=True)
        except FileNotFoundError:
            return []
        prefix = self._root.rstrip("/") + "/"
        files = [path for path, entry in entries.items() if not path.endswith("/") or entry["size"]]
        self._logs |= {path[: log.end()] for path in files for log in _LOG.finditer(path, len(prefix))}
        return [path[len(prefix) :] for path in files if path.startswith(prefix)]

    def _walk(self, pattern: Sequence[str]) -> Iterator[str]:
        """Folders are entered before links to folders, so that a link never hides a folder."""
        end = len(pattern)
        seen: set[tuple[object, frozenset[int]]] = set()
        given: set[tuple[object, str]] = set()
        folders, links = deque([(self._root, _closed(pattern, {0}) - {end})]), deque[tuple[str, frozenset[int]]]()
        while folders or links:
            folder, places = (folders or links).popleft()
            identity = self._identity(folder)
            if (identity, places) in seen:
                continue
            seen.add((identity, places))
            for entry in self._entries(folder, pattern, places):
                path = f"{folder.rstrip('/')}/{entry.name}"
                after = _advanced(pattern, places, entry.name)
                if entry.is_folder and after - {end}:
                    (links if entry.is_link else folders).append((path, after - {end}))
                # Of a glob with `**` each folder would be a match.
                is_match = end in after and (
                    not entry.is_folder or ("**" not in pattern and _Tree(self._filesystem, path).holds_data())
                )
                if is_match and (identity, entry.name) not in given:
                    given.add((identity, entry.name))
                    if entry.is_folder:
                        self.folders.add(path)
                    yield path

    def holds_data(self) -> bool:
        """Whether there is a file."""
        return any(True for _ in self.matches(_EVERYTHING))

    def _identity(self, folder: str) -> object:
        if not self._is_local:
            return folder
        try:
            found = os.stat(folder or "/")
        except OSError:
            return folder  # It cannot be listed either, which is an error.
        return found.st_dev, found.st_ino

    def _entries(self, folder: str, pattern: Sequence[str], places: frozenset[int]) -> Iterator[_Entry]:
        """What is in a folder and begins a match, sorted by name."""
        if not self._is_local:
            for entry in self._stored(folder):
                self._note_log(folder, entry.name)
                if _advanced(pattern, places, entry.name):
                    yield entry
            return
        try:
            with os.scandir(folder or "/") as entries:
                present = list(entries)
        except OSError as error:
            if folder == self._root and isinstance(error, FileNotFoundError | NotADirectoryError):
                return
            raise PreflightError(
                f"cannot list {folder}: {error.strerror}. Its files would be left out: give this user the right to "
                "read it, or leave it out of the path"
            ) from error
        for each in sorted(present, key=lambda one: one.name):
            self._note_log(folder, each.name)
            if not _advanced(pattern, places, each.name):
                continue
            try:
                if each.is_symlink():
                    os.stat(each.path)
                yield _Entry(each.name, each.is_dir(), each.is_symlink())
            except OSError as error:
                raise PreflightError(
                    f"the link {each.path} cannot be followed: {error.strerror}. What it leads to would be left out: "
                    "correct or remove the link"
                ) from error

    def _note_log(self, folder: str, base: str) -> None:
        if base in _LOGS:
            self._logs.add(f"{folder.rstrip('/')}/{base}")

    def _stored(self, folder: str) -> Iterator[_Entry]:
        try:
            entries = entries_in(self._filesystem, folder)
        except (FileNotFoundError, NotADirectoryError):
            if folder != self._root:
                raise
            return
        for each in entries:
            yield _Entry(name(each["name"]), each["type"] == "directory", False)


def _matches(pattern: Sequence[str], path: str) -> bool:
    """Whether a glob matches a path."""
    places = _closed(pattern, {0})
    for part in path.split("/"):
        places = _advanced(pattern, places, part)
    return len(pattern) in places


def _advanced(pattern: Sequence[str], places: frozenset[int], base: str) -> frozenset[int]:
    """The parts of a glob that may come after a name which may be one of some parts; one behind the last is a match."""
    parts = {each: pattern[each] for each in places if each < len(pattern)}
    stay = {each for each, part in parts.items() if part == "**" and is_data(base)}
    return _closed(pattern, stay | {each + 1 for each, part in parts.items() if part != "**" and _fits(part, base)})


def _closed(pattern: Sequence[str], places: set[int]) -> frozenset[int]:
    """`**` stands for no folder too."""
    for number, part in enumerate(pattern):
        if part == "**" and number in places:
            places.add(number + 1)
    return frozenset(places)


def _fits(part: str, base: str) -> bool:
    """Whether a name is one that a part of a glob stands for."""
    is_named = base.startswith(("_", ".")) and part.startswith(base[0])
    return (is_data(base) or is_named) and fnmatchcase(base, part)
