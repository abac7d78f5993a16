"""Files as byte streams, decompressed and taken out of tar, by the names' endings."""

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import BinaryIO, Protocol, cast

import pyarrow as pa

from beamrank.errors import BeamrankError, ConfigError, DataError, PreflightError
from beamrank.storage import files as storage
from beamrank.storage.lzw import MAGIC, Lzw

_CHUNK_BYTES = 1 << 16
_PADDING = b"\0"
_SHOWN_MEMBERS = 4
_GIVE = "and give the file to read"


class Decompressor(Protocol):
    """Decompresses one member: `bz2.BZ2Decompressor`, `lzma.LZMADecompressor`."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""

    @property
    def needs_input(self) -> bool:
        """Whether the bytes so far give no more output."""

    @property
    def unused_data(self) -> bytes:
        """The bytes after the member."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Decompressed bytes, as far as they are available."""


class Members(io.RawIOBase):
    """The members of a file as one stream; zero bytes between them are padding.

    Python's own readers take a damaged second member for the end of the file, and lose the rest without an error.
    """

    def __init__(self, file: BinaryIO, start_member: Callable[[], Decompressor]) -> None:
        self._file = file
        self._start_member = start_member
        self._decompressor = start_member()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Reads the next bytes.

        Raises:
            EOFError: the file ends within a member.
            OSError, lzma.LZMAError: it is damaged.
        """
        data = b""
        while not data:
            chunk = b""
            if self._decompressor.eof:
                chunk = self._next_member()
                if not chunk:
                    return 0
                self._decompressor = self._start_member()
            elif self._decompressor.needs_input:
                chunk = self._file.read(_CHUNK_BYTES)
                if not chunk:
                    raise EOFError("the file ends before its compressed data does")
            data = self._decompressor.decompress(chunk, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _next_member(self) -> bytes:
        """The beginning of the next member; empty at the end of the file."""
        chunk = self._decompressor.unused_data.lstrip(_PADDING)
        while not chunk and (block := self._file.read(_CHUNK_BYTES)):
            chunk = block.lstrip(_PADDING)
        return chunk


class _Header(tarfile.TarInfo):
    """The header of a member. tarfile takes a damaged one after the first for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if not any(buf):
                raise  # The end of the archive.
            raise tarfile.ReadError(f"a header is damaged: {error}") from error


class OnlyFile(io.RawIOBase):
    """The one file of a tar archive, as a stream; folders and macOS's `._NAME` files do not count."""

    def __init__(self, archive: BinaryIO, url: str) -> None:
        """Reads up to the beginning of the file.

        Raises:
            DataError: there is none, or something else, such as a link, precedes it.
            tarfile.TarError: it is not a tar archive.
        """
        self._archive = archive
        self._url = url
        tar = tarfile.open(fileobj=archive, mode="r|", tarinfo=_Header)  # noqa: SIM115 (its file is closed with the archive)
        self._members = (member for member in tar if not member.isdir() and not _is_of_macos(member.name))
        first = next(self._members, None)
        if first is None:
            raise DataError(f"{url} holds no file: fetch it again, or give another one")
        if not first.isreg():
            raise DataError(f"{url} holds {first.name!r}, which is a link or a special file: unpack it, {_GIVE}")
        self._name = first.name
        content = tar.extractfile(first)
        assert content is not None
        self._file = content

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Reads the next bytes.

        Raises:
            DataError: the file ends, and the archive holds another one.
            OSError, EOFError, tarfile.TarError: the archive is damaged or truncated.
        """
        content = self._file.read(len(buffer))
        if not content:
            self._check_end()
        buffer[: len(content)] = content
        return len(content)

    def _check_end(self) -> None:
        names = [self._name, *(member.name for member in islice(self._members, _SHOWN_MEMBERS))]
        if len(names) > 1:
            shown = ", ".join([*map(repr, names[:_SHOWN_MEMBERS]), *["..."] * (len(names) > _SHOWN_MEMBERS)])
            raise DataError(f"{self._url} holds several files ({shown}): unpack it, {_GIVE}")
        while self._archive.read(_CHUNK_BYTES):  # The checksum of a compressed archive is behind its end.
            pass


def _is_of_macos(name: str) -> bool:
    return name.rpartition("/")[2].startswith("._")


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
