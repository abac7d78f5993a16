"""Compressed files of several members, such as parallel compressors and `cat` make."""

import io
from collections.abc import Callable
from typing import BinaryIO, Protocol

_CHUNK_BYTES = 1 << 16
_PADDING = b"\0"


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
