"""Files by URL, through fsspec. Nothing else in beamrank opens, lists or publishes a file by its URL."""

import errno
import hashlib
import io
import os
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem

from beamrank.errors import BeamrankError, PreflightError
from beamrank.storage.conditional_put import create
from beamrank.storage.special_files import check_regular, is_pipe
from beamrank.storage.url_credentials import hide_credentials

_READ_AT_ONCE = 64
_SHOWN = 300
# Two changes of a local file within a tick of its clock get the same time.
_TICK_NANOSECONDS = 20_000_000
# What a store says of a file's content, best first. An etag of Google's changes whenever the file is written again,
# be it with the same content; its MD5 does not, but a file that was put together from others has none.
_CHECKSUMS = ("md5Hash", "content_md5", "ETag", "etag")
_EXTRAS = {"abfs": "azure", "abfss": "azure", "az": "azure", "s3": "s3", "s3a": "s3"}


class StoredFile(NamedTuple):
    """What a store says of a file, unread: its size, and a checksum that tells its content from another's."""

    size_bytes: int
    checksum: str


def is_remote(url: str) -> bool:
    """Whether a path carries a protocol other than file://."""
    return "://" in url and not url.startswith("file://")


def absolute(url: str) -> str:
    """A URL as it is; a local path made absolute, `~` expanded.

    Raises:
        PreflightError: it holds a NUL.
    """
    if "\0" in url:
        raise PreflightError(f"the path {url!r} holds a NUL character, which no name of a file can: correct the path")
    if is_remote(url):
        return url.rstrip("/")
    return os.path.abspath(os.path.expanduser(url.removeprefix("file://")))


def join(folder: str, *names: str) -> str:
    """A path below a folder."""
    return "/".join([folder.rstrip("/"), *names])


def join_relative(folder: str, path: str) -> str:
    """`path` itself where it is absolute, a URL or a home path, else the path below `folder`."""
    if "://" in path or path.startswith(("~", "/")):
        return absolute(path)
    return join(folder, os.path.normpath(path))


def parent(url: str) -> str:
    """The folder that holds a file."""
    return absolute(url).rpartition("/")[0]


def name(url: str) -> str:
    """The last part of a path."""
    return url.rstrip("/").rpartition("/")[2]


@contextmanager
def _located(url: str) -> Iterator[tuple[Any, str]]:
    """A file system and a path in it. Its listings are never remembered: other processes write there too.

    Whatever a store's own libraries raise becomes an OSError, as if it were a disk's.
    """
    url = absolute(url)
    try:
        if is_remote(url):
            filesystem, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        else:  # not by its URL, in which `::` would begin another one
            filesystem, path = LocalFileSystem(use_listings_cache=False), url
    except ImportError as error:
        raise PreflightError(_missing_library(url, error)) from error
    except ValueError as error:
        raise PreflightError(f"cannot use the URL {url}: {error}") from error
    except Exception as error:
        raise _unreachable(url, error) from error
    try:
        yield filesystem, path
    except (OSError, BeamrankError) as error:
        _refuse_impossible(url, error)
        raise
    except Exception as error:
        if isinstance(filesystem, LocalFileSystem):
            raise
        raise _unreachable(url, error) from error


def _refuse_impossible(url: str, error: Exception) -> None:
    """A path that no file can have is not a fault of the disk.

    Raises:
        PreflightError: the error means that.
    """
    number = getattr(error, "errno", None)
    if number in (errno.ENAMETOOLONG, errno.ELOOP):
        shown = url if len(url) <= _SHOWN else f"{url[:_SHOWN]}..."
        raise PreflightError(f"cannot use the path {shown}: {os.strerror(number)}") from error


def _missing_library(url: str, error: ImportError) -> str:
    extra = _EXTRAS.get(url.partition("://")[0])
    remedy = f"pip install 'beamrank[{extra}]', on the workers too" if extra else "install what it names"
    return f"cannot read or write {url}: {error}. To do so, {remedy}"


def _unreachable(url: str, error: Exception) -> OSError:
    return OSError(
        f"cannot reach {url}: {type(error).__name__}: {hide_credentials(str(error))}. Check the URL, the network and "
        "the credentials of this machine (docs/guide/storage.md)"
    )


def exists(url: str) -> bool:
    """Whether a file or a folder is there."""
    with _located(url) as (filesystem, path):
        return bool(filesystem.exists(path))


def is_folder(url: str) -> bool:
    """Whether a folder is there."""
    with _located(url) as (filesystem, path):
        return bool(filesystem.isdir(path))


def size_bytes(url: str) -> int:
    """The size of a file.

    Raises:
        FileNotFoundError: there is none.
    """
    with _located(url) as (filesystem, path):
        return int(filesystem.info(path)["size"])


def sizes_bytes(folder: str) -> dict[str, int]:
    """The names and sizes of the files in a folder; empty where there is no folder."""
    return {name(entry["name"]): int(entry["size"]) for entry in _files(folder)}


def states(folder: str) -> dict[str, str]:
    """The names of the files in a folder, each with a text that changes when the file is written again."""
    return {name(entry["name"]): repr(entry) for entry in _files(folder)}


@dataclass(frozen=True)
class FileState:
    """A file's size, and when it was last written in seconds since 1970, where the storage says so."""

    size_bytes: int
    modified_seconds: float | None


def file_states(folder: str) -> dict[str, FileState]:
    """The files in a folder by name; empty where there is no folder."""
    return {name(entry["name"]): FileState(int(entry["size"]), _modified(entry)) for entry in _files(folder)}


def _modified(entry: Mapping[str, Any]) -> float | None:
    """The time of writing, which each storage has under a name and in a type of its own."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = entry.get(key)
        if isinstance(value, str):
            with suppress(ValueError):
                value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return None


def version(url: str) -> str:
    """A text that changes whenever a file's content does, found without reading it; a copy of a file has another one.

    For a local file it holds the time of the last change, which no program can set back, and the same of each symbolic
    link on the way to it: a link that pointed to another file for a moment has changed too.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if is_remote(url):
        return " ".join(map(str, stored_file(url)))
    path = absolute(url)
    try:
        found = os.stat(path)
    except OSError as error:
        _refuse_impossible(url, error)
        raise
    links = list(_links(path))
    age = time.time_ns() - max(each.st_ctime_ns for each in (found, *links))
    if 0 <= age < _TICK_NANOSECONDS:
        time.sleep((_TICK_NANOSECONDS - age) / 1e9)
        return version(url)
    state = f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
    return " ".join([state, *(f"{link.st_ino} {link.st_ctime_ns}" for link in links)])


def _links(path: str) -> Iterator[os.stat_result]:
    """The symbolic links that lead to a file, folders among them."""
    for part in (*reversed(Path(path).parents), Path(path)):
        if part.is_symlink():
            yield part.lstat()
            yield from _links(os.path.normpath(part.parent / os.readlink(part)))


def sha256(url: str) -> str:
    """The SHA-256 of a file's content, in hex."""
    with open_binary(url) as file:
        return hashlib.file_digest(cast(io.BufferedIOBase, file), "sha256").hexdigest()


def stored_files(folder: str) -> dict[str, StoredFile]:
    """The names of the files in a folder at a store, each with what the store says of its content."""
    with _located(folder) as (filesystem, _):
        return {name(entry["name"]): _stored(filesystem, entry) for entry in _files(folder)}


def stored_file(url: str) -> StoredFile:
    """What a store says of a file's content, without reading it.

    Raises:
        FileNotFoundError: there is no such file.
    """
    with _located(url) as (filesystem, path):
        return _stored(filesystem, filesystem.info(path))


def _stored(filesystem: Any, entry: dict[str, Any]) -> StoredFile:
    told = next((entry[key] for key in _CHECKSUMS if entry.get(key)), None)
    return StoredFile(int(entry["size"]), str(told or filesystem.checksum(entry["name"])))


def _files(folder: str) -> list[dict[str, Any]]:
    with _located(folder) as (filesystem, path):
        try:
            entries = filesystem.ls(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [entry for entry in entries if entry["type"] == "file"]


def find(url: str) -> list[str]:
    """The files that a path names, sorted: the file itself, every file below a folder, or a glob's matches."""
    with _located(url) as (filesystem, path):
        if filesystem.isfile(path):
            return [absolute(url)]
        found = filesystem.find(path) if filesystem.isdir(path) else filesystem.glob(path)
        return sorted(str(filesystem.unstrip_protocol(one)).removeprefix("file://") for one in found)


def open_binary(url: str, *, pipe: bool = False) -> BinaryIO:
    """A file for reading; with `pipe` a named pipe too, which can be read only once and from its beginning.

    Raises:
        PreflightError: it is neither a file nor a folder.
    """
    with _located(url) as (filesystem, path):
        if isinstance(filesystem, LocalFileSystem):
            if pipe and is_pipe(path):
                return open(path, "rb")
            check_regular(path)
        return cast(BinaryIO, filesystem.open(path, "rb"))


def read_bytes(url: str) -> bytes:
    """A whole file."""
    with _located(url) as (filesystem, path):
        return bytes(filesystem.cat_file(path, **_whole_read(filesystem)))


def read_files(folder: str, names: Sequence[str]) -> dict[str, bytes]:
    """Whole files of a folder by name, many at a time where they are at a store; those that are gone are left out."""
    if not names:
        return {}
    with _located(folder) as (filesystem, path):
        # Not `cat`, which would take a folder with a bracket in its name for a pattern.
        options = _whole_read(filesystem) | ({"batch_size": _READ_AT_ONCE} if filesystem.async_impl else {})
        found = filesystem.cat_ranges([join(path, each) for each in names], None, None, on_error="return", **options)
        for outcome in found:
            if isinstance(outcome, Exception) and not isinstance(outcome, FileNotFoundError):
                raise outcome
        pairs = zip(names, found, strict=True)
        return {each: bytes(content) for each, content in pairs if not isinstance(content, Exception)}


def _whole_read(filesystem: Any) -> dict[str, int]:
    """s3fs asks how large a file is before it reads it, in case pieces could be read at once; ours are small."""
    return {"max_concurrency": 1} if "s3" in filesystem.protocol else {}


def download(url: str, path: str) -> None:
    """Copies a file to this machine."""
    with _located(url) as (filesystem, source):
        filesystem.get_file(source, path)


def upload(path: str, url: str) -> None:
    """Copies a file of this machine to a store, over one that may be there."""
    with _located(url) as (filesystem, target):
        filesystem.put_file(path, target)


def publish(url: str, content: bytes) -> bool:
    """Writes a file that is not there yet, whole or not at all. The first writer wins.

    Local files are written beside their place, synced and linked into it; an object store gets a conditional put
    (ifGenerationMatch=0, If-None-Match: *).

    Returns:
        Whether this call wrote it; False where the file was there already. A put whose answer was lost on the way and
        that was sent again is False too, so the caller looks at what is there.
    """
    if is_remote(url):
        with _located(url) as (filesystem, path):
            return create(filesystem, path, content)
    path = absolute(url)
    while True:
        with _temporary_beside(path) as temporary, suppress(FileNotFoundError):
            _write_synced(temporary, [content])
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            _sync_folder(path)
            return True
        # Another run has sealed a stage in this folder and swept it: a temporary file belongs to no plan.


def publish_content(url: str, content: bytes) -> None:
    """`publish` of a file that is named after its content: where other bytes have that name, they are replaced."""
    if not publish(url, content) and read_bytes(url) != content:
        replace(url, content)


def replace(url: str, content: bytes) -> None:
    """Writes a file whole, over one that may be there."""
    if is_remote(url):
        with _located(url) as (filesystem, path):
            filesystem.pipe_file(path, content)
        return
    while True:
        # As in `publish`: what is swept is written again.
        with suppress(FileNotFoundError):
            replace_stream(url, [content])
            return


def replace_stream(url: str, chunks: Iterable[bytes]) -> None:
    """`replace` for content that is not held in memory."""
    if is_remote(url):
        # Not through a file of fsspec's, which an error in the middle would close, and so publish in part.
        with tempfile.NamedTemporaryFile() as spool:
            spool.writelines(chunks)
            spool.flush()
            upload(spool.name, url)
        return
    path = absolute(url)
    with _temporary_beside(path) as temporary:
        _write_synced(temporary, chunks)
        os.replace(temporary, path)
        _sync_folder(path)


def remove(url: str) -> None:
    """Removes a file if it is there."""
    with _located(url) as (filesystem, path), suppress(FileNotFoundError):
        filesystem.rm_file(path)


@contextmanager
def _temporary_beside(path: str) -> Iterator[str]:
    """A hidden name in the folder of a file, whose folder is made if need be; nothing is left there."""
    folder, base = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{base}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
    finally:
        Path(temporary).unlink(missing_ok=True)


def _write_synced(path: str, chunks: Iterable[bytes]) -> None:
    with open(path, "wb") as file:
        file.writelines(chunks)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: str) -> None:
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
