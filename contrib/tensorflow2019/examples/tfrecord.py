"""TFRecord files: length, checksum of the length, content, checksum of the content, for each record.

The checksums are CRC32C, masked as in LevelDB.
"""

import gzip
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, cast

import google_crc32c
import numpy as np
import numpy.typing as npt

from beamrank.errors import DataError
from beamrank.records import BadRow
from beamrank.storage.streams import open_stream

Bytes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int64]

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_GZIP = b"\x1f\x8b\x08"
_MAX_RECORD_BYTES = 1 << 30


def masked_crc(content: bytes) -> int:
    """The masked CRC32C of some bytes."""
    crc: int = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(contents: Bytes, lengths: Lengths) -> bytes:
    """The records of a file.

    Args:
        contents: uint8[sum of lengths], the contents one after the other.
        lengths: int64[n], the bytes of each.
    """
    joined = contents.tobytes()
    headers = {length: _HEADER.pack(length, masked_crc(struct.pack("<Q", length))) for length in set(lengths.tolist())}
    parts: list[bytes] = []
    start = 0
    for length in lengths.tolist():
        content = joined[start : start + length]
        parts += (headers[length], content, _FOOTER.pack(masked_crc(content)))
        start += length
    return b"".join(parts)


def is_tfrecord(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes is a TFRecord file: its first length has a checksum."""
    if len(beginning) < _HEADER.size:
        return False
    return bool(_HEADER.unpack_from(beginning)[1] == masked_crc(beginning[:8]))


@contextmanager
def open_records(url: str) -> Iterator[BinaryIO]:
    """Opens a file of examples; TensorFlow's option GZIP compresses one under any name."""
    with open_stream(url) as file:
        compressed = file.read(len(_GZIP)) == _GZIP
    with open_stream(url) as file:
        yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if compressed else file


@dataclass(frozen=True)
class RecordRange:
    """Some records of a file: the number and the first byte of the first one, and how many there are."""

    url: str
    first: int
    offset: int
    count: int

    def place(self, number: int, offset: int) -> str:
        """The place of a record, for messages."""
        return f"{self.url}: record {number} (from 0), at byte {offset},"


def record_ranges(url: str, records: int) -> list[RecordRange]:
    """A file split into ranges of so many records; contents are not read.

    Raises:
        DataError: the file cannot be read, is truncated, or a length is damaged: what follows it cannot be found.
    """
    whole = RecordRange(url, 0, 0, 0)
    starts: list[int] = []
    number = offset = 0
    with open_records(url) as file:
        for offset, length in _headers(file, whole):
            if number % records == 0:
                starts.append(offset)
            number += 1
            skipped = length + _FOOTER.size
            if file.seek(skipped - 1, 1) < 0 or len(file.read(1)) < 1:
                raise DataError(f"{whole.place(number - 1, offset)} is truncated: the file ends in it. Fetch it again")
    return [
        RecordRange(url, place * records, start, min(records, number - place * records))
        for place, start in enumerate(starts)
    ]


def read_records(some: RecordRange, bad: list[BadRow]) -> Iterator[tuple[int, bytes]]:
    """Yields the number of each record, from 0, and its content; one with a wrong checksum is added to `bad`.

    Raises:
        DataError: the file cannot be read, is truncated, or a length is damaged.
    """
    with open_records(some.url) as file:
        file.seek(some.offset)
        headers = islice(_headers(file, some), some.count)
        for number, (offset, length) in enumerate(headers, some.first):
            content, footer = file.read(length), file.read(_FOOTER.size)
            if len(footer) < _FOOTER.size:
                raise DataError(f"{some.place(number, offset)} is truncated: the file ends in it. Fetch it again")
            if _FOOTER.unpack(footer)[0] == masked_crc(content):
                yield number, content
            else:
                bad.append(BadRow(some.place(number, offset), "has a wrong checksum"))


def _headers(file: BinaryIO, some: RecordRange) -> Iterator[tuple[int, int]]:
    """The offset and the content's length of each record from here on; the caller reads on to the next record."""
    offset, number = some.offset, some.first
    checked: dict[bytes, int] = {}
    while header := file.read(_HEADER.size):
        length = checked.get(header)
        if length is None:
            length = checked[header] = _checked_length(header, some.place(number, offset))
        yield offset, length
        offset, number = offset + _HEADER.size + length + _FOOTER.size, number + 1


def _checked_length(header: bytes, place: str) -> int:
    if len(header) < _HEADER.size:
        raise DataError(f"{place} is truncated: the file ends in it. Fetch it again")
    length, crc = _HEADER.unpack(header)
    if crc != masked_crc(header[:8]) or length > _MAX_RECORD_BYTES:
        raise DataError(
            f"{place} has a wrong checksum of its length, so the records after it cannot be found. The file is "
            "damaged, or is not a TFRecord file: fetch it again"
        )
    return int(length)


def group(records: Iterator[tuple[int, bytes]], size: int) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
    """Records in groups of at most `size`: their numbers and their contents."""
    numbers: list[int] = []
    contents: list[bytes] = []
    for number, content in records:
        numbers.append(number)
        contents.append(content)
        if len(contents) == size:
            yield numbers, contents
            numbers, contents = [], []
    if contents:
        yield numbers, contents
