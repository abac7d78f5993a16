"""Files as byte streams, decompressed (gzip, bzip2, xz, zstd, compress) by the ending of their names."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import pyarrow as pa

from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.storage import files as storage
from beamrank.storage.lzw import MAGIC, Lzw
from beamrank.storage.members import Decompressor, Members

# The disks of TREC have also .0z, .1z and .2z.
_COMPRESS = dict.fromkeys((".z", ".0z", ".1z", ".2z"), "compress")
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", **_COMPRESS}
_DECOMPRESSORS: dict[str, Callable[[], Decompressor]] = {"bz2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor}
_NOT_READ = (".zip", ".7z", ".rar", ".tar", ".tgz", ".tbz2", ".txz", ".lz4", ".lzma")
_BUFFER_BYTES = 1 << 20
_READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, pa.lib.ArrowException)


def compression(url: str) -> str | None:
    """The compression of a file, by the ending of its name; None if it has none.

    Raises:
        PreflightError: beamrank does not read this compression.
    """
    if without_compression(url).endswith(_NOT_READ):
        raise PreflightError(
            f"{url} has a format that beamrank does not read: unpack it, or compress the one file in it with gzip, "
            "bzip2, xz or zstd"
        )
    return next((method for ending, method in _COMPRESSIONS.items() if url.lower().endswith(ending)), None)


def without_compression(name: str) -> str:
    """A file's name in lower case, without the ending of a compression."""
    name = name.lower()
    for ending in _COMPRESSIONS:
        name = name.removesuffix(ending)
    return name


@contextmanager
def open_stream(url: str, *, pipe: bool = False) -> Iterator[BinaryIO]:
    """Opens a file, decompressed; errors of reading inside the `with` block become DataError.

    A compressed file may have several members, which are read one after the other. A truncated file is an error, unless
    it was cut exactly between two members: then it is a complete file.

    Args:
        url: the file.
        pipe: whether a named pipe is accepted.
    """
    method = compression(url)
    with errors_as(DataError, url), storage.open_binary(url, pipe=pipe) as file:
        if method is None:
            yield file
        elif getattr(file, "size", None) == 0:
            raise DataError(f"{url} is empty, so it is not a complete {method} file: fetch it again")
        else:
            yield _decompressed(file, method)


def _decompressed(file: BinaryIO, method: str) -> BinaryIO:
    """The decompressed content.

    fsspec's readers lose data without an error: they accept a truncated .zst, and a .bz2 or .xz whose second member is
    damaged.
    """
    if method == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    stream: io.RawIOBase
    if method == "compress":
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            raise OSError(f"it is not a file of `compress`: it begins with {magic.hex()}, not {MAGIC.hex()}")
        stream = Lzw(file)
    elif method == "zstd":
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    else:
        stream = Members(file, _DECOMPRESSORS[method])
    return cast(BinaryIO, io.BufferedReader(stream, _BUFFER_BYTES))


@contextmanager
def errors_as(kind: type[BeamrankError], url: str) -> Iterator[None]:
    """Turns errors of reading a file, such as a damaged compressed file, into one of ours that names the file."""
    try:
        yield
    except (DataError, storage.UnreachableError) as error:
        raise kind(str(error)) from error
    except _READ_ERRORS as error:
        hint = "" if getattr(error, "errno", None) else ". It may be damaged or truncated: fetch it again"
        raise kind(f"cannot read {url}: {str(error) or type(error).__name__}{hint}") from error
