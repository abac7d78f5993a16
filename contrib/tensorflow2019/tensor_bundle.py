"""Reads the checkpoints that TensorFlow has written since 2016 (`Saver`'s V2 format, a "tensor
bundle").

It does not use TensorFlow: that is a download of 274 MB and 1.4 GB on disk for one file that is
converted once, and it is not available for every Python and machine that beamrank runs on. No other
library reads the format. The part of it that checkpoints of BERT use is small and has not changed
since: an index, which is a LevelDB table from a variable's name to its type, shape and place, and
data files with the bytes. Every checksum that TensorFlow wrote is checked. The tests read files
that TensorFlow's `Saver` wrote.

Not read, and refused by name: compressed indexes (TensorFlow has never written one since 1.2),
big-endian files, and variables cut into slices (`tf.get_variable(partitioner=...)`; BERT has none).
"""

import math
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from beamrank.errors import PreflightError

INDEX_SUFFIX = ".index"

_FOOTER_BYTES = 48
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_BLOCK_TRAILER_BYTES = 5
_CRC_MASK_DELTA = 0xA282EAD8


def message_classes(**messages: str) -> Callable[[str], Any]:
    """Makes classes of protobuf messages from their definitions, and returns them by name.

    A definition has the fields, as in `value 1 repeated int64`, separated by commas. A type with a
    capital is another message. An option, such as `int64[packed]`, is true.
    """

    def field(name: str, number: str, label: str, kind: str) -> dict[str, Any]:
        kind, _, option = kind.rstrip("]").partition("[")
        is_message = kind[0].isupper()
        types = {"type": "TYPE_MESSAGE", "typeName": f".beamrank.{kind}"} if is_message else {}
        return {
            "name": name,
            "number": int(number),
            "label": f"LABEL_{label.upper()}",
            "type": f"TYPE_{kind.upper()}",
            "options": {option: True} if option else {},
            **types,
        }

    defined = {
        "name": "messages.proto",
        "package": "beamrank",
        "syntax": "proto2",
        "messageType": [
            {"name": name, "field": [field(*text.split()) for text in fields.split(",")]}
            for name, fields in messages.items()
        ],
    }
    pool = descriptor_pool.DescriptorPool()
    pool.Add(json_format.ParseDict(defined, FileDescriptorProto()))
    return lambda name: message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"beamrank.{name}")
    )


_MESSAGE = message_classes(
    BundleHeader="num_shards 1 optional int32, endianness 2 optional int32",
    BundleEntry="dtype 1 optional int32, shape 2 optional Shape, shard_id 3 optional int32, "
    "offset 4 optional int64,size 5 optional int64, crc32c 6 optional fixed32, slices 7 repeated "
    "bytes",
    Shape="dim 2 repeated Dimension",
    Dimension="size 1 optional int64",
)
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}  # by TensorFlow's DataType


class Entry(NamedTuple):
    """One variable in the index; `dtype` is TensorFlow's number, the checksum is as stored."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size_bytes: int
    masked_crc: int


class TensorBundle:
    """A checkpoint of TensorFlow.

    Attributes:
        prefix: the common beginning of the names of its files, such as `output/model.ckpt-100000`.
        entries: the variables by name.
        files: the index and the data files.
    """

    def __init__(self, prefix: str) -> None:
        """Reads the index.

        Raises:
            PreflightError: a file is missing or damaged, or of a kind that is not read.
        """
        self.prefix = prefix
        path = prefix + INDEX_SUFFIX
        try:
            with open(path, "rb") as file:
                table = dict(_table(file.read(), path))
            header = _MESSAGE("BundleHeader").FromString(table.pop(b""))
            # The names of slices are not text; their variable is refused.
            names = [name.decode(errors="backslashreplace") for name in table]
            self.entries = dict(
                zip(names, (_entry(value, path) for value in table.values()), strict=True)
            )
        except OSError as error:
            raise PreflightError(
                f"cannot read the checkpoint's index {path}: {error.strerror}"
            ) from error
        except (IndexError, KeyError, ValueError, struct.error, DecodeError) as error:
            raise PreflightError(
                f"{path} is not the index of a TensorFlow checkpoint, or is damaged"
            ) from error
        if header.endianness:
            raise PreflightError(
                f"the checkpoint {prefix} was written on a big-endian machine, which is not read"
            )
        count = header.num_shards
        self._data = [f"{prefix}.data-{shard:05d}-of-{count:05d}" for shard in range(count)]
        self.files = [path, *self._data]
        missing = [name for name in self._data if not os.path.isfile(name)]
        if missing:
            raise PreflightError(
                f"the checkpoint {prefix} is incomplete: {', '.join(missing)} does not exist. Its "
                f"data files belong beside {os.path.basename(path)}, under the names that "
                "TensorFlow gave them"
            )

    def read(self, name: str) -> NDArray[Any]:
        """A variable's values.

        Raises:
            PreflightError: they are damaged, or of a type that is not read.
        """
        entry = self.entries[name]
        if entry.dtype not in _DTYPES:
            raise PreflightError(
                f"the variable {name} of {self.prefix} has TensorFlow's dtype number "
                f"{entry.dtype}; floats of 16, 32 and 64 bits and integers of 32 and 64 bits are "
                "read"
            )
        dtype = np.dtype(_DTYPES[entry.dtype])
        if entry.shard >= len(self._data):
            raise PreflightError(
                f"{self.files[0]} is damaged: it has {name} in data file {entry.shard}, from 0, "
                f"and there are {len(self._data)}. Download or copy the checkpoint again"
            )
        path = self._data[entry.shard]
        content = _piece(path, entry.offset, entry.size_bytes)
        if (
            len(content) != math.prod(entry.shape) * dtype.itemsize
            or masked_crc(content) != entry.masked_crc
        ):
            raise PreflightError(
                f"{path} is damaged: the {entry.size_bytes} bytes of {name} at byte "
                f"{entry.offset} do not have the checksum that TensorFlow wrote. Download or copy "
                "the checkpoint again"
            )
        return np.frombuffer(content, dtype).reshape(entry.shape)


def _piece(path: str, offset: int, size_bytes: int) -> bytes:
    """Some bytes of a file; none where it does not hold all of them."""
    try:
        with open(path, "rb") as file:
            if offset + size_bytes > os.fstat(file.fileno()).st_size:
                return b""
            file.seek(offset)
            return file.read(size_bytes)
    except OSError as error:
        raise PreflightError(
            f"cannot read the checkpoint's data {path}: {error.strerror}"
        ) from error


def _table(content: bytes, path: str) -> Iterator[tuple[bytes, bytes]]:
    """The rows of a LevelDB table: a block of blocks, found from the file's end."""
    footer = content[-_FOOTER_BYTES:]
    if footer[-len(_MAGIC) :] != _MAGIC:
        raise PreflightError(
            f"{path} is not the index of a TensorFlow checkpoint, or is cut off: it does not end "
            "as one. Copy it again"
        )
    _, at = _handle(footer, 0)  # of the table's properties, which TensorFlow leaves empty
    index, _ = _handle(footer, at)
    for _, value in _rows(_block(content, *index, path)):
        place, _ = _handle(value, 0)
        yield from _rows(_block(content, *place, path))


def _handle(content: bytes, at: int) -> tuple[tuple[int, int], int]:
    """The first byte and the size of a block, and the position after them."""
    offset, at = _varint(content, at)
    size, at = _varint(content, at)
    return (offset, size), at


def _block(content: bytes, offset: int, size: int, path: str) -> bytes:
    """A block's content. Its compression and the checksum of both follow it."""
    stored = content[offset : offset + size + _BLOCK_TRAILER_BYTES]
    compression, crc = struct.unpack("<BI", stored[size:])
    if masked_crc(stored[: size + 1]) != crc:
        raise PreflightError(
            f"{path} is damaged: the checksum at byte {offset + size + 1} is wrong. Copy it again"
        )
    if compression:
        raise PreflightError(
            f"{path} is compressed, which is not read: load the checkpoint with TensorFlow and "
            "save it again"
        )
    return stored[:size]


def _rows(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values; a key omits the prefix that it shares with the key before."""
    (restarts,) = struct.unpack("<I", block[-4:])
    at, end, key = 0, len(block) - 4 * (restarts + 1), b""
    while at < end:
        shared, at = _varint(block, at)
        rest, at = _varint(block, at)
        size, at = _varint(block, at)
        key = key[:shared] + block[at : at + rest]
        at += rest
        yield key, block[at : at + size]
        at += size


def _entry(value: bytes, path: str) -> Entry:
    entry = _MESSAGE("BundleEntry").FromString(value)
    if entry.slices:
        raise PreflightError(
            f"{path} has variables that are cut into slices, which is not read: BERT's own code "
            "writes none. Load the checkpoint with TensorFlow and save it without a partitioner"
        )
    shape = tuple(dimension.size for dimension in entry.shape.dim)
    return Entry(entry.dtype, shape, entry.shard_id, entry.offset, entry.size, entry.crc32c)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """An integer of seven bits a byte, lowest first, and the place after it."""
    value = shift = 0
    while content[at] & 0x80:
        value |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | content[at] << shift, at + 1


def masked_crc(content: bytes) -> int:
    """CRC32C as LevelDB and TFRecord store it: turned and shifted, so that data with checksums
    have a sound one.
    """
    crc: int = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + _CRC_MASK_DELTA) & 0xFFFFFFFF
