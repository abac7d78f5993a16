"""Files by URL, through fsspec. All opening, listing and publishing of files by their URLs goes
through this module.
"""

import errno
import hashlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import known_implementations

from beamrank.errors import BeamrankError, PreflightError
from beamrank.storage import local_files, stores
from beamrank.storage.stores import UnreachableError
from beamrank.storage.urls import hide_credentials, shown_message
from beamrank.system import system

_WEB = ("http://", "https://")
_READ_AT_ONCE = 64
# Less than the age at which gc removes a file.
_OLD_SECONDS = 3600.0
_SHOWN = 300
# The names that NFS and FUSE give it.
_REMOVED = re.compile(r"\.(nfs|fuse_hidden)[0-9a-f]{8,}")
# Links of a chain of URLs that serve their copies without a look at the store.
_COPYING = {
    name
    for name, implementation in known_implementations.items()
    if implementation["class"].startswith("fsspec.implementations.cached.")
}


def is_remote(url: str) -> bool:
    """Whether a path carries a protocol other than file://."""
    return "://" in url and not url.startswith("file://")


def absolute(url: str) -> str:
    """A URL without a slash at its end, which only web servers need; a local path made absolute,
    `~` expanded.
    """
    if "\0" in url:
        raise PreflightError(
            f"the path {url!r} contains a NUL character, which is not allowed in paths"
        )
    if is_remote(url):
        return url if url.startswith(_WEB) else url.rstrip("/")
    try:
        return os.path.abspath(os.path.expanduser(url.removeprefix("file://")))
    except FileNotFoundError as error:
        raise PreflightError(
            "the current folder does not exist any more: change to a folder that exists, and run "
            "the same command again"
        ) from error


def resolved(url: str) -> str:
    """`absolute`, without symbolic links."""
    path = absolute(url)
    return path if is_remote(path) else system.path.realpath(path)


def join(folder: str, *names: str) -> str:
    """A path below a folder."""
    return "/".join([folder.rstrip("/"), *names])


def join_relative(folder: str, path: str) -> str:
    """`path` itself where it is absolute, a URL or a home path, else the path below `folder`."""
    if "://" in path or path.startswith(("~", "/")):
        return absolute(path)
    return join(folder, os.path.normpath(path))


def parent(url: str) -> str:
    return absolute(url).rstrip("/").rpartition("/")[0]


def name(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


@contextmanager
def located(url: str) -> Iterator[tuple[Any, str]]:
    """A file system, which caches no listings since other processes write there too, and a path in
    it.

    Errors of a store's own libraries become OSErrors, like errors of a disk.
    """
    url = absolute(url)
    filesystem, path = _filesystem(url)
    try:
        yield filesystem, path
    except Exception as error:
        refuse_impossible_path(url, error)
        if not isinstance(filesystem, LocalFileSystem) and not isinstance(
            error, BeamrankError | UnreachableError
        ):
            stores.check_refusal(url, error)
            # A library's own kind of OSError, such as aiohttp's, may not name the URL.
            is_named = isinstance(error, OSError) and type(error).__module__ == "builtins"
            if not is_named or stores.is_unanswered(error):
                raise stores.unreachable(url, error) from error
        raise


def _filesystem(url: str) -> tuple[Any, str]:
    if not is_remote(url):  # not by its URL, in which `::` would begin another one
        return system.local_filesystem(use_listings_cache=False), url
    for protocol in (link.partition("://")[0] for link in url.split("::")):
        if protocol in _COPYING:
            raise PreflightError(
                f"{url} reads copies that are kept on this machine, so a file that has changed at "
                f"its store would be read in its old form: leave {protocol}:: out of the URL"
            )
    options: dict[str, Any] = {}
    if url.startswith(_WEB):
        # Ranges of a packed answer would not be ranges of the file.
        configured = fsspec.config.conf.get(url.partition("://")[0], {}).get("headers", {})
        options = {"headers": {**configured, "Accept-Encoding": "identity"}}
    try:
        filesystem, path = fsspec.core.url_to_fs(url, use_listings_cache=False, **options)
    except ImportError as error:
        raise stores.missing_library(url, error) from error
    except ValueError as error:
        raise PreflightError(f"cannot use the URL {url}: {error}") from error
    except Exception as error:
        raise stores.unreachable(url, error) from error
    return filesystem, path


def refuse_impossible_path(url: str, error: Exception) -> None:
    """Raises PreflightError for a path that no file can have; other errors are faults of the
    disk.
    """
    number = getattr(error, "errno", None)
    if number in (errno.ENAMETOOLONG, errno.ELOOP):
        shown = url if len(url) <= _SHOWN else f"{url[:_SHOWN]}..."
        raise PreflightError(f"cannot use the path {shown}: {os.strerror(number)}") from error


def place(url: str) -> list[str]:
    """What holds a path: the kind of file system, its address, and the bucket."""
    with located(url) as (filesystem, path):
        if isinstance(filesystem, LocalFileSystem):
            return local_files.mount(path)
        address = hide_credentials(stores.endpoint(filesystem))
        return [type(filesystem).__name__, address, path.partition("/")[0]]


def exists(url: str) -> bool:
    """Whether a file or a folder exists; a web server that does not answer is an error."""
    with located(url) as (filesystem, path):
        return bool(
            filesystem.exists(path, strict=True)
            if path.startswith(_WEB)
            else filesystem.exists(path)
        )


def is_folder(url: str) -> bool:
    """Whether a folder exists; at a store, an empty object may have the folder's name.

    Of a web server only a URL that ends in a slash is one: any page holds links.
    """
    with located(url) as (filesystem, path):
        if path.startswith(_WEB) and not path.endswith("/"):
            return False
        if filesystem.isdir(path):
            return True
        if (
            isinstance(filesystem, LocalFileSystem)
            or not filesystem.isfile(path)
            or filesystem.size(path)
        ):
            return False
        return any(entry["name"].startswith(f"{path}/") for entry in entries_in(filesystem, path))


def entries_in(filesystem: Any, folder: str) -> list[dict[str, Any]]:
    """The entries of a folder of a file system, without the object by which a store's console marks
    the folder itself.
    """
    itself = f"{folder.rstrip('/')}/"
    return [
        entry
        for entry in filesystem.ls(folder, detail=True)
        if entry["name"] != itself and (entry["type"], f"{entry['name']}/") != ("directory", itself)
    ]


def _list(
    folder: str, kind: str = "", is_kind: Callable[[str], bool] = system.path.exists
) -> list[dict[str, Any]]:
    """The entries of one kind in a folder, or all; none if there is no folder."""
    with located(folder) as (filesystem, path):
        try:
            entries = entries_in(filesystem, path)
        except (FileNotFoundError, NotADirectoryError):
            return []
    # fsspec does not say what a local link leads to.
    return [
        entry
        for entry in entries
        if kind in ("", entry["type"]) or (entry.get("islink") and is_kind(entry["name"]))
    ]


def is_empty(folder: str) -> bool:
    return not _list(folder)


def list_files(folder: str) -> list[dict[str, Any]]:
    """Fsspec's entries of the files in a folder; empty if there is no folder."""
    return _list(folder, "file", system.path.isfile)


def sizes_bytes(folder: str) -> dict[str, int]:
    """The names and sizes of the files in a folder; empty if there is no folder."""
    return {name(entry["name"]): int(entry["size"]) for entry in list_files(folder)}


def entry_names(folder: str) -> set[str]:
    """The names of all that is in a folder, links that lead nowhere too; empty if there is none.

    A file that was removed while a process had it open is none, though NFS and FUSE list it.
    """
    names = (name(entry["name"]) for entry in _list(folder))
    return {base for base in names if not _REMOVED.fullmatch(base)}


def folder_names(folder: str) -> set[str]:
    """The names of the folders in a folder; empty if there is no folder."""
    return {name(entry["name"]) for entry in _list(folder, "directory", system.path.isdir)}


def check_folder(output: str) -> None:
    """Raises PreflightError where no file can be written below an output, or the output ends with
    this process.
    """
    check_lasting(output)
    try:
        is_file = exists(output) and not is_folder(output)
    except UnreachableError as error:
        raise PreflightError(f"cannot write to the output {output}: {error}") from error
    if is_file:
        raise PreflightError(
            f"the output {output} is not a folder: give one, or a path where nothing exists"
        )


def check_lasting(output: str) -> None:
    """Raises PreflightError where an output ends with this process."""
    if any(link.startswith("memory:") for link in output.split("::")):
        raise PreflightError(
            f"the output {output} would end with this process: give a folder, or a URL of a store"
        )


def is_special(url: str) -> bool:
    """Whether a local path is a device, a pipe or an open file of this process, which no file can
    replace.
    """
    return not is_remote(url) and local_files.is_special(absolute(url))


def size_bytes(url: str) -> int:
    """The size of a file; raises FileNotFoundError, or PreflightError where its server does not
    tell.
    """
    with located(url) as (filesystem, path):
        size = filesystem.info(path)["size"]
    if size is None:
        raise PreflightError(
            f"the server of {url} does not tell the file's size: download it, and give the copy"
        )
    return int(size)


def sha256(url: str) -> str:
    with open_binary(url) as file:
        return hashlib.file_digest(cast(io.BufferedIOBase, file), "sha256").hexdigest()


def open_binary(url: str, *, pipe: bool = False, read_ahead: bool = True) -> BinaryIO:
    """A file for reading.

    Args:
        url: the file.
        pipe: whether it may be a named pipe, which can be read only once and from its beginning.
        read_ahead: whether a store is asked for more than is read, in megabytes.
    """
    with located(url) as (filesystem, path):
        if isinstance(filesystem, LocalFileSystem):
            if pipe and local_files.is_pipe(path):
                return open(path, "rb")
            local_files.check_regular(path)
        file = filesystem.open(path, "rb", **({} if read_ahead else {"cache_type": "none"}))
        stores.refuse_unpacked(url, getattr(file, "details", {}))
        return cast(BinaryIO, file)


def read_bytes(url: str) -> bytes:
    with located(url) as (filesystem, path):
        return bytes(filesystem.cat_file(path, **_whole_read(filesystem)))


def read_files(folder: str, names: Sequence[str]) -> dict[str, bytes]:
    """Whole files of a folder by name, many at a time if they are at a store; files that do not
    exist are left out.
    """
    if not names:
        return {}
    with located(folder) as (filesystem, path):
        # Not `cat`, which takes a folder with a bracket in its name for a pattern.
        options = _whole_read(filesystem) | (
            {"batch_size": _READ_AT_ONCE} if filesystem.async_impl else {}
        )
        paths = [join(path, base) for base in names]
        outcomes = dict(
            zip(
                names,
                filesystem.cat_ranges(paths, None, None, on_error="return", **options),
                strict=True,
            )
        )
        for outcome in outcomes.values():
            if isinstance(outcome, Exception) and not isinstance(outcome, FileNotFoundError):
                raise outcome
        return {
            base: bytes(content)
            for base, content in outcomes.items()
            if not isinstance(content, Exception)
        }


def _whole_read(filesystem: Any) -> dict[str, int]:
    """s3fs asks for a file's size before reading it, so that it can read in pieces; our files are
    small.
    """
    return {"max_concurrency": 1} if "s3" in filesystem.protocol else {}


def download(url: str, path: str) -> None:
    """Copies a file to this machine."""
    with located(url) as (filesystem, source):
        stores.refuse_unpacked(url, filesystem.info(source))
        filesystem.get_file(source, path)


def upload(path: str, url: str) -> None:
    """Copies a file of this machine to a store; an existing file is replaced."""
    with located(url) as (filesystem, target):
        filesystem.put_file(path, target)


def publish(url: str, content: bytes) -> bool:
    """Writes a file that does not exist yet, whole or not at all. The first writer wins.

    Local files are written beside their target, synced and linked to it; an object store gets a
    conditional put (ifGenerationMatch=0, If-None-Match: *).

    Returns:
        Whether this call wrote it; False if the file existed. A put whose answer was lost and that
        was sent again is False too, so the caller must read the file.
    """
    if is_remote(url):
        with located(url) as (filesystem, path):
            return stores.create(filesystem, path, content)
    return local_files.publish_file(absolute(url), content)


def publish_content(url: str, content: bytes) -> None:
    """`publish` of a file that is named after its content; other bytes under that name are
    replaced, and the same bytes are as new where they are old, so that `gc` leaves them.
    """
    if publish(url, content):
        return
    if is_remote(url) or read_bytes(url) != content:
        replace(url, content)
    elif system.time() - system.stat(absolute(url)).st_mtime > _OLD_SECONDS:
        system.utime(absolute(url))


@contextmanager
def held(url: str, content: bytes) -> Iterator[Callable[[], None]]:
    """A new file that shows others that this process is in the `with` block, where a function
    renews its time of writing.
    """
    if not is_remote(url):
        with local_files.held_file(absolute(url), content):
            yield partial(system.utime, absolute(url))
        return
    with local_files.held_file(_lock(url), b""):
        publish(url, content)
        try:
            yield partial(replace, url, content)
        finally:
            # Without renewal it counts for some minutes only.
            with suppress(OSError):
                remove(url)


def _lock(url: str) -> str:
    """The file of this machine that is locked for a file at a store, which has no locks."""
    return os.path.join(os.environ.get("TMPDIR", "/tmp"), f".{name(url)}.lock")


@contextmanager
def holder_ended(
    url: str, machine: str, age_seconds: float | None, most_seconds: float
) -> Iterator[bool]:
    """Whether the process that holds a file has ended: see `local_files.holder_ended`."""
    path = _lock(url) if is_remote(url) else absolute(url)
    if is_remote(url) and not system.path.exists(path):
        yield age_seconds is not None and age_seconds > most_seconds
        return
    with local_files.holder_ended(path, machine, age_seconds, most_seconds) as ended:
        yield ended


def release(url: str) -> None:
    """Removes a file that a process held which has ended."""
    remove(url)
    if is_remote(url):
        remove(_lock(url))


def replace(url: str, content: bytes) -> None:
    """Writes a file whole; an existing file or a link is replaced, never the target of the link.

    A device or a pipe is written to.
    """
    if is_remote(url):
        with located(url) as (filesystem, path):
            filesystem.pipe_file(path, content)
    else:
        local_files.replace_file(absolute(url), [content])


def replace_stream(url: str, chunks: Iterable[bytes], *, through_link: bool = False) -> None:
    """`replace` for content that is not held in memory; `through_link` is for a file that the user
    names: a link stays, and its target is replaced.
    """
    if is_remote(url):
        # Not through fsspec's file: an error in the middle would close it, and publish a part of
        # the content.
        with tempfile.NamedTemporaryFile() as spool:
            spool.writelines(chunks)
            spool.flush()
            upload(spool.name, url)
        return
    local_files.replace_file(absolute(url), chunks, through_link=through_link, removes_old=True)


def is_link(url: str) -> bool:
    """Whether a local path is a symbolic link."""
    return not is_remote(url) and system.path.islink(absolute(url))


def leads_away(folder: str, path: str) -> bool:
    """Whether what is at a path below a folder is a link, or behind one; the folder may be one."""
    return any(_links_on_way(folder, path.split("/")))


def _links_on_way(folder: str, names: Sequence[str]) -> Iterator[str]:
    """The links on the way from a folder down to what is below it, from the top."""
    return filter(is_link, (join(folder, *names[:end]) for end in range(1, len(names) + 1)))


def own_folder(folder: str, *names: str) -> str:
    """The path of a folder below another one, into which files are written by their names.

    A link in its place, or on the way, is removed, with a warning: behind it may be other files of
    these names.
    """
    for url in _links_on_way(folder, names):
        print(
            shown_message(
                f"warning: {url} is a link to {system.readlink(absolute(url))}, and no file is "
                "replaced behind a link: a folder takes its place, and the link's target stays"
            ),
            file=sys.stderr,
        )
        remove(url)
    return join(folder, *names)


def remove_leftovers(folder: str, path: str = "") -> None:
    """Removes the temporary files of killed writers in a local folder, or in one below it that is
    not behind a link.
    """
    if not is_remote(folder) and not (path and leads_away(folder, path)):
        local_files.remove_leftovers(os.path.join(absolute(folder), path))


def remove(url: str) -> None:
    with located(url) as (filesystem, path), suppress(FileNotFoundError):
        filesystem.rm_file(path)


def remove_files(folder: str, names: Iterable[str]) -> None:
    """Removes files and links of a folder, many at a time; a local folder too, if it is empty."""
    with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
        list(pool.map(remove, (join(folder, name) for name in sorted(names))))
    if not is_remote(folder):
        with suppress(OSError):
            system.rmdir(absolute(folder))
