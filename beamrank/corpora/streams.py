"""Files as byte streams, decompressed by the ending of their names."""

import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import pyarrow as pa
from fsspec.utils import infer_compression

from beamrank import storage
from beamrank.errors import BeamrankError, DataError, PreflightError

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
_READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, pa.lib.ArrowException)


def compression(url: str) -> str | None:
    """How a file is compressed, by the ending of its name; None where it is not.

    Raises:
        PreflightError: in a way that cannot be read here.
    """
    for ending, method in _COMPRESSIONS.items():
        if url.lower().endswith(ending):
            return method
    if infer_compression(url) is not None or url.lower().endswith((".zip", ".7z", ".tar", ".tgz")):
        raise PreflightError(
            f"{url} is packed in a way that beamrank does not read: unpack it, or compress the one file that it holds "
            f"with gzip, bzip2, xz or zstd"
        )
    return None


def without_compression(name: str) -> str:
    """A file's name in lower case, without the ending that says how it is compressed."""
    name = name.lower()
    for ending in _COMPRESSIONS:
        name = name.removesuffix(ending)
    return name


@contextmanager
def open_stream(url: str) -> Iterator[BinaryIO]:
    """Opens a file, decompressed; errors of the reading inside the `with` block become DataError."""
    method = compression(url)
    with errors_as(DataError, url):
        if method != "zstd":
            with storage.open_binary(url, compression=method) as file:
                yield file
            return
        # fsspec's zstd reader takes a truncated file for a whole one; Arrow's does not.
        with storage.open_binary(url) as file:
            source = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
            yield cast(BinaryIO, io.BufferedReader(source, 1 << 20))


@contextmanager
def errors_as(kind: type[BeamrankError], url: str) -> Iterator[None]:
    """Turns the errors of reading a file, a damaged compressed one among them, into one of ours that names it."""
    try:
        yield
    except DataError as error:
        raise kind(str(error)) from error
    except _READ_ERRORS as error:
        hint = "" if getattr(error, "errno", None) else ". It may be damaged or cut short: fetch it again"
        raise kind(f"cannot read {url}: {error}{hint}") from error


def files_with_endings(*endings: str) -> Callable[[str], list[str]]:
    """Finds a corpus's files: the file itself, a glob's matches, or those below a folder with one of the endings."""

    def find(path: str) -> list[str]:
        found = storage.find(path)
        if found and not storage.is_folder(path):
            return found
        files = [url for url in found if without_compression(storage.name(url)).endswith(endings)]
        files = [url for url in files if not storage.name(url).startswith(".")]
        if not files:
            reason = f"holds no files named *{', *'.join(endings)}" if storage.exists(path) else "does not exist"
            raise PreflightError(f"the corpus {path} {reason}: give `corpus.path` a file, a folder or a glob")
        return files

    return find
