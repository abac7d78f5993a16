"""Files of `compress` (.Z), as the disks of TREC hold them: LZW codes of 9 to 16 bits, in groups of eight."""

import io
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

MAGIC = b"\x1f\x9d"
_FIRST_BITS, _LAST_BITS = 9, 16
_CLEAR = 256
_GROUP = 8
_CHUNK_GROUPS = 1 << 9
# Text needs less than 1 MB; a file of one repeated byte would need 2 GB.
_MAX_TABLE_BYTES = 256 << 20


class Lzw(io.RawIOBase):
    """The decompressed content. The format has no end mark and no checksum, so a truncated file shows no damage."""

    def __init__(self, file: BinaryIO) -> None:
        """Begins after the magic bytes, which the caller has read."""
        self._chunks = _decompressed(file)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Reads the next bytes.

        Raises:
            OSError: the file is damaged.
        """
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _decompressed(file: BinaryIO) -> Iterator[bytes]:
    flags = (file.read(1) or b"\0")[0]
    table = _Table(flags & 0x1F, clears=bool(flags & 0x80))
    buffer = b""
    while True:
        bits, left = table.bits, table.codes_left()
        wanted = min(-(-left // _GROUP), _CHUNK_GROUPS) * bits
        while len(buffer) < wanted and (more := file.read(wanted - len(buffer))):
            buffer += more
        codes = _unpacked(buffer[:wanted], bits)[:left]
        if not codes:
            return
        text, used = table.decode(codes)
        yield text
        # A group is read to its end, also where the width of its codes changes in the middle.
        buffer = buffer[-(-used // _GROUP) * bits :]


def _unpacked(content: bytes, bits: int) -> list[int]:
    """The complete codes in some bytes, the lowest bits first."""
    digits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
    rows = digits[: len(digits) // bits * bits].reshape(-1, bits)
    weights: NDArray[np.int32] = 1 << np.arange(bits, dtype=np.int32)
    codes: list[int] = (rows @ weights).tolist()
    return codes


class _Table:
    """The texts of the codes so far.

    Attributes:
        bits: the width of the next code.
    """

    def __init__(self, last_bits: int, clears: bool) -> None:
        if not _FIRST_BITS <= last_bits <= _LAST_BITS:
            raise OSError(f"it names codes of {last_bits} bits, and `compress` writes 9 to 16")
        self._last_bits = last_bits
        self._clears = clears
        self._clear()

    def _clear(self) -> None:
        self.bits = _FIRST_BITS
        self._texts = [bytes([value]) for value in range(_CLEAR)] + [b""] * self._clears
        self._previous = b""
        self._held_bytes = 0

    def codes_left(self) -> int:
        """After how many codes their width may change: each but the first adds an entry to the table."""
        if self.bits == self._last_bits:
            return 1 << self._last_bits
        return (1 << self.bits) - len(self._texts) + (not self._previous)

    def decode(self, codes: list[int]) -> tuple[bytes, int]:
        """The text of some codes of the present width, and how many were used: the code that clears the table ends it.

        Raises:
            OSError: a code is impossible, or the table becomes too large.
        """
        texts, previous, full = self._texts, self._previous, 1 << self._last_bits
        output: list[bytes] = []
        for code in codes:
            if code == _CLEAR and self._clears:
                self._clear()
                return b"".join(output), len(output) + 1
            if code < len(texts):
                text = texts[code]
            elif code == len(texts) and previous:
                text = previous + previous[:1]
            else:
                raise OSError("it holds a code without a text")
            if previous and len(texts) < full:
                texts.append(previous + text[:1])
            output.append(text)
            previous = text
        self._previous = previous
        decoded = b"".join(output)
        self._note_size(len(decoded))
        return decoded, len(output)

    def _note_size(self, added_bytes: int) -> None:
        """Widens the codes where the table needs it, and limits the table, whose texts are those that were decoded."""
        if len(self._texts) < 1 << self._last_bits:
            self._held_bytes += added_bytes
        if self._held_bytes > _MAX_TABLE_BYTES:
            raise OSError("it repeats a few bytes too often to be text")
        if len(self._texts) == 1 << self.bits and self.bits < self._last_bits:
            self.bits += 1
