"""Files as byte streams, decompressed (gzip, bzip2, xz, zstd) and taken out of tar, by the names'
endings.
"""

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa

from beamrank.errors import BeamrankError, ConfigError, DataError, PreflightError, TemporaryError
from beamrank.storage import files as storage
from beamrank.storage.stores import UnreachableError, check_refusal, is_unanswered, unreachable
from beamrank.storage.urls import hide_credentials

# The disks of TREC have `compress`, also as .0z, .1z and .2z.
_COMPRESS = dict.fromkeys((".z", ".0z", ".1z", ".2z"), "compress")
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", **_COMPRESS}
_TAR, _SHORT_TAR = ".tar", re.compile(r"\.t(gz|bz2|xz|zst)$")
# Each writes a member of a file: all members are read.
_COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda content: gzip.compress(content, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda content: bytes(pa.compress(content, "zstd", asbytes=True)),
}
# The last ones are Hadoop's.
_NOT_READ = (".zip", ".7z", ".rar", ".lz", ".lz4", ".lzma", ".br", ".deflate", ".lzo", ".snappy")
_CHUNK_BYTES = 1 << 16
_BUFFER_BYTES = _MEMBER_BYTES = 1 << 20
# About how much smaller text is compressed.
_TIMES_SMALLER = 4
_READ_ERRORS = (
    OSError,
    EOFError,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    pa.ArrowException,
    UnicodeDecodeError,
    MemoryError,
)


def compression(url: str) -> str | None:
    """How a file is packed, by the ending of its name: a compression, `tar` for any tar archive,
    None for a plain file.

    Raises PreflightError for a compression that beamrank does not read.
    """
    inner, method = _outer(url)
    if method == "compress":
        raise PreflightError(
            f"{url} is packed by `compress`, which beamrank does not read: unpack it with `gzip "
            "-dc FILE > NEW_FILE` (or `uncompress`)",
            kind="packed",
            file=url,
        )
    if inner.removesuffix(_TAR).endswith(_NOT_READ):
        raise PreflightError(
            f"{url} has a format that beamrank does not read: unpack it, or compress the one file "
            "in it with gzip, bzip2, xz or zstd",
            kind="packed",
            file=url,
        )
    return "tar" if inner.endswith(_TAR) else method


def _outer(name: str) -> tuple[str, str | None]:
    """A file's name in lower case without the ending of its compression, and the compression."""
    name = _SHORT_TAR.sub(r".tar.\1", name.lower())
    ending = next((known for known in _COMPRESSIONS if name.endswith(known)), "")
    return name.removesuffix(ending), _COMPRESSIONS.get(ending)


def without_compression(name: str) -> str:
    """A file's name in lower case, without the endings of a compression and of a tar archive."""
    return _outer(name)[0].removesuffix(_TAR)


def has_ending(name: str, endings: tuple[str, ...]) -> bool:
    """Whether a file's name ends so, in any case and without the ending of a compression."""
    inner = without_compression(name)
    if inner.endswith(_NOT_READ) and inner.rpartition(".")[0].endswith(endings):
        compression(name)
    return inner.endswith(endings)


def text_bytes(url: str) -> int:
    """The size of a file's text; an estimate for a compressed file."""
    return storage.size_bytes(url) * (_TIMES_SMALLER if _outer(url)[1] else 1)


def check_packable(url: str) -> None:
    """Raises ConfigError where a file cannot be written in the form that its name promises."""
    inner, method = _outer(url)
    method = "tar" if inner.endswith(_TAR) else method
    endings = (ending for ending in _NOT_READ if inner.removesuffix(_TAR).endswith(ending))
    method = next(endings, method or "").lstrip(".")
    if method and method not in _COMPRESSORS:
        raise ConfigError(
            f"cannot write {url}, which is packed with {method}: a file whose name ends in .gz, "
            ".bz2, .xz or .zst is compressed so, any other is plain; unpack one that is to be "
            "changed"
        )


def packed(url: str, content: Iterable[bytes]) -> Iterable[bytes]:
    """The bytes of a file with this content: compressed if its name says so. Raises as
    `check_packable` does.
    """
    check_packable(url)
    method = compression(url)
    return content if method is None else map(_COMPRESSORS[method], _joined(content))


def _joined(content: Iterable[bytes]) -> Iterator[bytes]:
    """Larger pieces of a content; one where it is empty, since an empty file is no compressed
    one.
    """
    pieces, size, is_first = list[bytes](), 0, True
    for piece in content:
        pieces.append(piece)
        size += len(piece)
        if size > _MEMBER_BYTES:
            yield b"".join(pieces)
            pieces, size, is_first = [], 0, False
    if pieces or is_first:
        yield b"".join(pieces)


@contextmanager
def open_stream(url: str, *, pipe: bool = False) -> Iterator[BinaryIO]:
    """Opens a file, decompressed; errors of reading inside the `with` block become DataError.

    A compressed file may have several members, which are read one after the other. A truncated file
    is an error, unless it was cut exactly between two members: then it is a complete file. A tar
    archive is read as the one file in it; a second file is an error, at the end of the first. With
    `pipe` the file may be a named pipe.
    """
    packing, method = compression(url), _outer(url)[1]
    with errors_as(DataError, url), storage.open_binary(url, pipe=pipe) as file:
        if packing is not None and getattr(file, "size", None) == 0:
            raise DataError(
                f"{url} is empty, so it is not a complete {packing} file: fetch it again",
                kind="damaged",
                file=url,
            )
        content = file if method is None else _decompressed(file, method)
        yield _buffered(_Chunks(_only_file(content, url))) if packing == "tar" else content


def _decompressed(file: BinaryIO, method: str) -> BinaryIO:
    """The decompressed content.

    fsspec's readers lose data without an error: they accept a truncated .zst, and a .bz2 or .xz
    whose second member is damaged. So do Python's own of .bz2 and .xz.
    """
    if method == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if method == "zstd":
        return _buffered(pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd"))
    return _buffered(
        _Chunks(_members(file, bz2.BZ2Decompressor if method == "bz2" else lzma.LZMADecompressor))
    )


def _buffered(stream: io.RawIOBase) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(stream, _BUFFER_BYTES))


class _Chunks(io.RawIOBase):
    """Chunks of bytes as a stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _members(file: BinaryIO, start_member: Callable[[], Any]) -> Iterator[bytes]:
    """The content of all members of a compressed file; zero bytes between them are padding."""
    rest = file.read(_CHUNK_BYTES)
    while rest:
        member = start_member()
        while not member.eof:
            if member.needs_input and not rest:
                rest = file.read(_CHUNK_BYTES)
                if not rest:
                    raise EOFError("the file ends before its compressed data does")
            yield member.decompress(rest, _BUFFER_BYTES)
            rest = b""
        rest = member.unused_data.lstrip(b"\0")
        while not rest and (block := file.read(_CHUNK_BYTES)):
            rest = block.lstrip(b"\0")


class _Header(tarfile.TarInfo):
    """The header of a tar's member. tarfile takes a damaged one after the first for the end of the
    archive.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if not any(buf):
                raise  # The end of the archive.
            raise tarfile.ReadError(f"a header is damaged: {error}") from error


def _only_file(archive: BinaryIO, url: str) -> Iterator[bytes]:
    """The content of the one file of a tar archive, without folders and macOS's `._NAME` files."""
    tar = tarfile.open(fileobj=archive, mode="r|", tarinfo=_Header)  # noqa: SIM115 (its file is closed with the archive)
    members = (
        member
        for member in tar
        if not member.isdir() and not storage.name(member.name).startswith("._")
    )
    first = next(members, None)
    if first is None:
        raise DataError(
            f"{url} holds no file: fetch it again, or give a different one",
            kind="not-one-file",
            file=url,
        )
    content = tar.extractfile(first) if first.isreg() else None
    if content is None:
        raise DataError(
            f"{url} holds {first.name!r}, which is a link or a special file: unpack it, and give "
            "the file to read",
            kind="not-one-file",
            file=url,
        )
    yield from iter(lambda: content.read(_CHUNK_BYTES), b"")
    second = next(members, None)
    if second is not None:
        raise DataError(
            f"{url} holds several files ({first.name!r}, {second.name!r}, ...): unpack it, and "
            "give the file to read",
            kind="not-one-file",
            file=url,
        )
    while archive.read(_CHUNK_BYTES):  # The checksum of a compressed archive is behind its end.
        pass


@contextmanager
def errors_as(kind: type[BeamrankError], url: str) -> Iterator[None]:
    """Turns errors of reading a file, such as a damaged compressed file, into one of ours that
    names the file.
    """
    try:
        yield
    except TemporaryError:
        raise
    except DataError as error:
        raise kind(str(error), **error.of_input) from error
    except UnreachableError as error:
        raise kind(str(error)) from error
    except FileNotFoundError as error:
        raise kind(f"there is no file {url}", kind="no-file", file=url) from error
    except IsADirectoryError as error:
        raise kind(f"{url} is a folder: give a file", kind="folder", file=url) from error
    except _READ_ERRORS as error:
        try:
            check_refusal(url, error)
        except UnreachableError as refusal:
            raise kind(str(refusal)) from error
        if is_unanswered(error):
            raise unreachable(url, error) from error
        reason, hint = "damaged", ". It may be damaged or truncated: fetch it again"
        if isinstance(error, MemoryError):
            reason = "too-large"
            hint = ". It is too large, not damaged: write it with shorter texts, or in more parts"
        elif getattr(error, "errno", None):
            reason = hint = ""
        raise kind(
            f"cannot read {url}: {hide_credentials(str(error)) or type(error).__name__}{hint}",
            kind=reason,
            file=url,
        ) from error
