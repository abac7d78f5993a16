"""TFRecord files of `tf.train.Example` messages whose features are lists of integers.

A record is the length of its content, a checksum of the length, the content, and a checksum of the
content: CRC32C, masked as in LevelDB.
"""

import gzip
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from beamrank.errors import DataError
from beamrank.formats.rejects import MOST_ROWS, Rejects
from beamrank.records import BadRow
from beamrank.storage.streams import open_stream
from contrib.tensorflow2019.tensor_bundle import masked_crc, message_classes

# The numbers of some examples, one after the other, and int64[n], how many each has.
Feature = tuple[npt.NDArray[np.integer[Any]], npt.NDArray[np.int64]]

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_GZIP = b"\x1f\x8b\x08"
_MAX_RECORD_BYTES = 1 << 30


# The entries of the map are a list, so that a name that occurs twice is seen; other lists than of
# integers, bytes.
_EXAMPLE = message_classes(
    Example="features 1 optional Features",
    Features="feature 1 repeated Entry",
    Entry="key 1 optional bytes, value 2 optional Feature",
    Feature="bytes_list 1 optional bytes, float_list 2 optional bytes, int64_list 3 optional "
    "Int64List",
    Int64List="value 1 repeated int64[packed]",
)("Example")


def join(bad: Rejects, more: Rejects) -> None:
    """Adds the rows that another process left out; the first of all are kept."""
    bad.count += more.count
    bad.rows += more.rows[: MOST_ROWS - len(bad.rows)]


def encode(features: Mapping[str, Feature]) -> Iterator[bytes]:
    """The messages of n examples, by name of their features."""
    names = sorted(features)
    values = [features[name][0].tolist() for name in names]
    ends = [np.cumsum(features[name][1]).tolist() for name in names]
    keys = [name.encode() for name in names]
    starts = [0] * len(names)
    for stops in zip(*ends, strict=True):
        example = _EXAMPLE()
        for key, numbers, start, stop in zip(keys, values, starts, stops, strict=True):
            integers = example.features.feature.add(key=key).value.int64_list
            integers.SetInParent()
            integers.value.extend(numbers[start:stop])
        yield example.SerializeToString()
        starts = list(stops)


class ExampleError(ValueError):
    """A message cannot be read; `row` is its number among those given."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def decode(contents: Sequence[bytes]) -> dict[str, Feature]:
    """The features of some messages: the reverse of `encode`.

    Raises:
        ExampleError: one is not an example, has other features than the first, or features that are
            not integers.
    """
    rows = [_integers(row, content) for row, content in enumerate(contents)]
    for row, features in enumerate(rows):
        for name in rows[0].keys() ^ features.keys():
            raise ExampleError(row, f"has or lacks the feature {name!r}, unlike the first one")
    return {
        name: (
            np.fromiter(chain.from_iterable(features[name] for features in rows), np.int64),
            np.array([len(features[name]) for features in rows], np.int64),
        )
        for name in rows[0]
    }


def _integers(row: int, content: bytes) -> dict[str, Sequence[int]]:
    """The lists of an example by name."""
    try:
        entries = _EXAMPLE.FromString(content).features.feature
    except DecodeError as error:
        raise ExampleError(row, "is not a tf.train.Example") from error
    lists: dict[str, Sequence[int]] = {}
    for entry in entries:
        name = entry.key.decode(errors="replace")
        if name in lists:
            raise ExampleError(row, f"has the feature {name!r} twice")
        if entry.value.HasField("bytes_list") or entry.value.HasField("float_list"):
            raise ExampleError(row, f"has a feature that is not a list of integers: {name!r}")
        lists[name] = entry.value.int64_list.value
    if not lists:
        raise ExampleError(row, "is not a tf.train.Example, or has no features")
    return lists


def frame(contents: Iterable[bytes]) -> bytes:
    """The records of a file."""
    parts: list[bytes] = []
    for content in contents:
        length = struct.pack("<Q", len(content))
        parts += (
            length,
            _FOOTER.pack(masked_crc(length)),
            content,
            _FOOTER.pack(masked_crc(content)),
        )
    return b"".join(parts)


def is_tfrecord(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes is a TFRecord file: its first length has a
    checksum.
    """
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
    """Some records of a file: the number and the first byte of the first one, and how many there
    are.
    """

    url: str
    first: int
    offset: int
    count: int


def record_ranges(url: str, records: int) -> list[RecordRange]:
    """A file split into ranges of so many records; contents are not read.

    Raises:
        DataError: the file cannot be read, is truncated, or a length is damaged: what follows it
            cannot be found.
    """
    starts: list[int] = []
    number = 0
    with open_records(url) as file:
        for place, offset, length in _headers(file, RecordRange(url, 0, 0, 0)):
            if number % records == 0:
                starts.append(offset)
            number += 1
            if file.seek(length + _FOOTER.size - 1, 1) < 0 or len(file.read(1)) < 1:
                raise _truncated(place)
    return [
        RecordRange(url, place * records, start, min(records, number - place * records))
        for place, start in enumerate(starts)
    ]


def read_records(wanted: RecordRange, bad: Rejects) -> Iterator[tuple[int, bytes]]:
    """Yields the number of each record, from 0, and its content; one with a wrong checksum is added
    to `bad`.

    Raises:
        DataError: the file cannot be read, is truncated, or a length is damaged.
    """
    with open_records(wanted.url) as file:
        file.seek(wanted.offset)
        headers = islice(_headers(file, wanted), wanted.count)
        for number, (place, _, length) in enumerate(headers, wanted.first):
            content, footer = file.read(length), file.read(_FOOTER.size)
            if len(footer) < _FOOTER.size:
                raise _truncated(place)
            if _FOOTER.unpack(footer)[0] == masked_crc(content):
                yield number, content
            else:
                bad.add(wanted.url, [BadRow(place, "it has a wrong checksum")])


def _headers(file: BinaryIO, wanted: RecordRange) -> Iterator[tuple[str, int, int]]:
    """The place (for messages), the offset and the length of the content of each record from here
    on.

    The caller reads on to the next record.
    """
    offset, number = wanted.offset, wanted.first
    while header := file.read(_HEADER.size):
        place = f"{wanted.url}: record {number} (from 0), at byte {offset}"
        if len(header) < _HEADER.size:
            raise _truncated(place)
        length, crc = _HEADER.unpack(header)
        if crc != masked_crc(header[:8]) or length > _MAX_RECORD_BYTES:
            raise DataError(
                f"{place}: its length has a wrong checksum, so the records after it cannot be "
                "found. The file is damaged, or is not a TFRecord file: fetch it again"
            )
        yield place, offset, int(length)
        offset, number = offset + _HEADER.size + length + _FOOTER.size, number + 1


def _truncated(place: str) -> DataError:
    return DataError(
        f"{place}: it is truncated, the file ends in it. Fetch it again", kind="truncated"
    )
