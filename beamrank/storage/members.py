"""Compressed files of several members, such as parallel compressors and `cat` make; tar archives of one file."""

import io
import tarfile
from collections.abc import Callable
from itertools import islice
from typing import BinaryIO, Protocol

from beamrank.errors import DataError

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
