"""Files as byte streams, decompressed (gzip, bzip2, xz, zstd, compress) and taken out of tar, by the names' endings."""

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import pyarrow as pa

from beamrank.errors import BeamrankError, ConfigError, DataError, PreflightError
from beamrank.storage import files as storage
from beamrank.storage.lzw import MAGIC, Lzw
from beamrank.storage.members import Decompressor, Members, OnlyFile

# The disks of TREC have also .0z, .1z and .2z.
_COMPRESS = dict.fromkeys((".z", ".0z", ".1z", ".2z"), "compress")
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", **_COMPRESS}
_TAR, _SHORT_TAR = ".tar", re.compile(r"\.t(gz|bz2|xz|zst)$")
_DECOMPRESSORS: dict[str, Callable[[], Decompressor]] = {"bz2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor}
# Each writes a member of a file: all members are read.
_COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda content: gzip.compress(content, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda content: bytes(pa.compress(content, "zstd", asbytes=True)),
}
# The last ones are Hadoop's.
_NOT_READ = (".zip", ".7z", ".rar", ".lz", ".lz4", ".lzma", ".br", ".deflate", ".lzo", ".snappy")
_BUFFER_BYTES = _MEMBER_BYTES = 1 << 20
# About how much smaller text is compressed.
_TIMES_SMALLER = 4
_READ_ERRORS = (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError, pa.lib.ArrowException)


def compression(url: str) -> str | None:
    """How a file is packed, by the ending of its name: a compression, `tar` for any tar archive, None for a plain file.

    Raises:
        PreflightError: beamrank does not read this compression.
    """
    if without_compression(url).endswith(_NOT_READ):
        raise PreflightError(
            f"{url} has a format that beamrank does not read: unpack it, or compress the one file in it with gzip, "
            "bzip2, xz or zstd"
        )
    inner, method = _outer(url)
    return "tar" if inner.endswith(_TAR) else method


def _outer(name: str) -> tuple[str, str | None]:
    """A file's name in lower case without the ending of its compression, and the compression."""
    name = _SHORT_TAR.sub(r".tar.\1", name.lower())
    ending = next((each for each in _COMPRESSIONS if name.endswith(each)), "")
    return name.removesuffix(ending), _COMPRESSIONS.get(ending)


def without_compression(name: str) -> str:
    """A file's name in lower case, without the endings of a compression and of a tar archive."""
    return _outer(name)[0].removesuffix(_TAR)


def has_ending(name: str, endings: tuple[str, ...]) -> bool:
    """Whether a file's name ends so, in any case and without the ending of a compression.

    Raises:
        PreflightError: it does, in a compression that beamrank does not read.
    """
    inner = without_compression(name)
    if inner.endswith(_NOT_READ) and inner.rpartition(".")[0].endswith(endings):
        compression(name)
    return inner.endswith(endings)


def text_bytes(url: str) -> int:
    """The size of a file's text, of a compressed file about."""
    return storage.size_bytes(url) * (_TIMES_SMALLER if _outer(url)[1] else 1)


def check_packable(url: str) -> None:
    """Makes sure that a file can be written in the form that its name promises.

    Raises:
        ConfigError: it is packed in a way that is only read, or not at all.
    """
    ending = next((each for each in _NOT_READ if without_compression(url).endswith(each)), "")
    method = ending or compression(url)
    if method is not None and method not in _COMPRESSORS:
        raise ConfigError(
            f"cannot write {url}, which is packed with {method.lstrip('.')}: a file whose name ends in .gz, .bz2, .xz "
            "or .zst is compressed so, any other is plain; unpack one that is to be changed"
        )


def packed(url: str, content: Iterable[bytes]) -> Iterable[bytes]:
    """The bytes of a file with this content: compressed if its name says so.

    Raises:
        ConfigError: see `check_packable`.
    """
    check_packable(url)
    method = compression(url)
    return content if method is None else map(_COMPRESSORS[method], _members(content))


def _members(content: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of a content; a single one where it is empty, as an empty file is not compressed."""
    pieces, size, first = list[bytes](), 0, True
    for piece in content:
        pieces.append(piece)
        size += len(piece)
        if size > _MEMBER_BYTES:
            yield b"".join(pieces)
            pieces, size, first = [], 0, False
    if pieces or first:
        yield b"".join(pieces)


@contextmanager
def open_stream(url: str, *, pipe: bool = False) -> Iterator[BinaryIO]:
    """Opens a file, decompressed; errors of reading inside the `with` block become DataError.

    A compressed file may have several members, which are read one after the other. A truncated file is an error, unless
    it was cut exactly between two members: then it is a complete file. A tar archive is read as the one file in it;
    another one is found, and an error, at the end of the first.

    Args:
        url: the file.
        pipe: whether a named pipe is accepted.
    """
    packed, method = compression(url), _outer(url)[1]
    with errors_as(DataError, url), storage.open_binary(url, pipe=pipe) as file:
        if packed is not None and getattr(file, "size", None) == 0:
            raise DataError(f"{url} is empty, so it is not a complete {packed} file: fetch it again")
        content = file if method is None else _decompressed(file, method)
        yield _buffered(OnlyFile(content, url)) if packed == "tar" else content


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
    return _buffered(stream)


def _buffered(stream: io.RawIOBase) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(stream, _BUFFER_BYTES))


@contextmanager
def errors_as(kind: type[BeamrankError], url: str) -> Iterator[None]:
    """Turns errors of reading a file, such as a damaged compressed file, into one of ours that names the file."""
    try:
        yield
    except (DataError, storage.UnreachableError) as error:
        raise kind(str(error)) from error
    except _READ_ERRORS as error:
        try:
            storage.check_refusal(url, error)
        except storage.UnreachableError as refusal:
            raise kind(str(refusal)) from error
        hint = "" if getattr(error, "errno", None) else ". It may be damaged or truncated: fetch it again"
        raise kind(f"cannot read {url}: {str(error) or type(error).__name__}{hint}") from error
