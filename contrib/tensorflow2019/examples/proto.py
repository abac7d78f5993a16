"""`tf.train.Example` messages whose features are lists of integers, many at a time and without protobuf.

Example { features: 1 { feature: 1, for each { key: 1, value: 2 { int64_list: 3 { value: 1, packed varints } } } } }

Lists that are not packed, with a tag before each varint, are read too.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beamrank.formats.checks import RowError

Values = npt.NDArray[np.integer]
Lengths = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_KEY, _VALUE, _INT64_LIST, _PACKED, _UNPACKED = 0x0A, 0x12, 0x1A, 0x0A, 0x08
_MOST_VARINT_BYTES = 10
# Of the length of a message.
_LENGTH_BYTES = 5
# Numbers below this have at most three bytes.
_MOST_TABLE = 1 << 21


class Part(NamedTuple):
    """A part of n messages: the bytes of all, one after the other, and how many each has."""

    content: Bytes
    lengths: Lengths


def encode(features: Mapping[str, tuple[Values, Lengths]]) -> tuple[Bytes, Lengths]:
    """The messages of n examples, one after the other, and their lengths in bytes.

    Args:
        features: by name, the values of all examples one after the other, which are not negative, and int64[n], how
            many each example has.
    """
    entries: list[Part] = []
    for name in sorted(features):
        values, counts = features[name]
        packed, sizes = _varints(values)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        packed_lengths = np.diff(ends[np.concatenate([[0], np.cumsum(counts)])])
        # An empty list is an empty message.
        inner = _nested(_PACKED, [Part(packed, packed_lengths)], where=counts > 0)
        key = _repeated(bytes([_KEY, len(name)]) + name.encode(), len(counts))
        entries += _nested(_KEY, [key, *_nested(_VALUE, _nested(_INT64_LIST, inner))])
    joined = _joined(_nested(_KEY, entries))
    return joined.content, joined.lengths


class ExampleError(RowError):
    """A message cannot be read; `row` is its number among those given."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


class _Spans(NamedTuple):
    """A part of each message: where it starts and ends in the bytes of all."""

    starts: Lengths
    ends: Lengths

    @property
    def empty(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.starts == self.ends)


class _Lists(NamedTuple):
    """The varints of a feature in the bytes of all messages, and where they are not packed."""

    starts: Lengths
    ends: Lengths
    unpacked: npt.NDArray[np.bool_]


def decode(contents: Sequence[bytes]) -> dict[str, tuple[npt.NDArray[np.int64], Lengths]]:
    """The features of some messages: the reverse of `encode`.

    Raises:
        ExampleError: one is not an example, has other features than the first, or features that are not integers.
    """
    # Lengths are read without a look at the end of the bytes.
    joined = np.frombuffer(b"".join([*contents, bytes(_MOST_VARINT_BYTES)]), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, contents), np.int64, len(contents)))
    features = _only(joined, _Spans(np.concatenate([[0], ends[:-1]]), ends), _KEY)
    found: dict[str, _Lists] = {}
    at = features.starts
    while (at < features.ends).any():
        _refuse(at >= features.ends, "has fewer features than the others")
        entry = _field(joined, at, features.ends, _KEY)
        key = _field(joined, entry.starts, entry.ends, _KEY)
        values = _values(joined, _to_the_end(joined, key.ends, entry.ends, _VALUE))
        for name, rows in _by_name(joined, key):
            lists = found.setdefault(
                name, _Lists(np.full(len(ends), -1), np.full(len(ends), -1), np.zeros(len(ends), np.bool_))
            )
            _refuse(rows & (lists.starts >= 0), f"has the feature {name!r} twice")
            for known, new in zip(lists, values, strict=True):
                known[rows] = new[rows]
        at = entry.ends
    for name, lists in found.items():
        _refuse(lists.starts < 0, f"lacks the feature {name!r}, which others have")
    return {name: _decoded(joined, name, lists) for name, lists in found.items()}


def _values(joined: Bytes, feature: _Spans) -> _Lists:
    """The integers of a feature."""
    wrong = ~feature.empty & (joined[feature.starts] != _INT64_LIST)
    _refuse(wrong, "has a feature that is not a list of integers")
    values = _only(joined, feature, _INT64_LIST)
    unpacked = ~values.empty & (joined[values.starts] == _UNPACKED)
    packed = _only(joined, _Spans(values.starts, np.where(unpacked, values.starts, values.ends)), _PACKED)
    return _Lists(packed.starts, np.where(unpacked, values.ends, packed.ends), unpacked)


def _by_name(joined: Bytes, key: _Spans) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Each name among the keys, and the messages that have it."""
    left = np.ones(len(key.starts), np.bool_)
    while left.any():
        first = int(np.argmax(left))
        name = joined[key.starts[first] : key.ends[first]]
        same = left & (key.ends - key.starts == len(name))
        rows = np.flatnonzero(same)
        same[rows] = (joined[key.starts[rows, None] + np.arange(len(name))] == name).all(axis=1)
        yield name.tobytes().decode(errors="replace"), same
        left &= ~same


def _only(joined: Bytes, message: _Spans, tag: int) -> _Spans:
    """The one field of each message; an empty message has an empty one."""
    at = message.starts.copy()
    filled = np.flatnonzero(~message.empty)
    spans = _Spans(at, message.ends.copy())
    found = _field(joined, at[filled], message.ends[filled], tag, filled)
    _refuse(found.ends != message.ends[filled], "is not a tf.train.Example", filled)
    spans.starts[filled] = found.starts
    return spans


def _to_the_end(joined: Bytes, at: Lengths, ends: Lengths, tag: int) -> _Spans:
    spans = _field(joined, at, ends, tag)
    _refuse(spans.ends != ends, "is not a tf.train.Example")
    return spans


def _field(joined: Bytes, at: Lengths, ends: Lengths, tag: int, rows: Lengths | None = None) -> _Spans:
    """The field with a length at a place of each message."""
    _refuse((at >= ends) | (joined[np.minimum(at, len(joined) - 1)] != tag), "is not a tf.train.Example", rows)
    starts = at + 1
    lengths = np.zeros_like(at)
    going = np.ones(len(at), np.bool_)
    for place in range(_LENGTH_BYTES):
        byte = joined[np.minimum(starts, len(joined) - 1)].astype(np.int64)
        lengths += np.where(going, (byte & 0x7F) << 7 * place, 0)
        starts = starts + going
        going &= byte > 0x7F
    _refuse(going | (starts + lengths > ends), "is not a tf.train.Example", rows)
    return _Spans(starts, starts + lengths)


def _refuse(wrong: npt.NDArray[np.bool_], reason: str, rows: Lengths | None = None) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ExampleError(row if rows is None else int(rows[row]), reason)


def _decoded(joined: Bytes, name: str, lists: _Lists) -> tuple[npt.NDArray[np.int64], Lengths]:
    lengths = lists.ends - lists.starts
    stops = np.cumsum(lengths)
    packed = joined[np.repeat(lists.starts - (stops - lengths), lengths) + np.arange(lengths.sum())]
    last = packed < 0x80
    ends = np.flatnonzero(last) + 1
    sizes = np.diff(ends, prepend=0)
    whole = np.concatenate([[True], last])[np.where(lengths > 0, stops, 0)]
    _refuse(~whole, f"has the feature {name!r}, whose integers are cut")
    if sizes.max(initial=0) > _MOST_VARINT_BYTES:
        raise ExampleError(0, f"or one after it has the feature {name!r}, whose integers are too long")
    counts = np.diff(np.concatenate([[0], np.cumsum(last)])[np.concatenate([[0], stops])])
    values = np.zeros(len(ends), np.int64)
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > place)
        values[rows] |= (packed[ends[rows] - sizes[rows] + place].astype(np.int64) & 0x7F) << 7 * place
    return _without_tags(values, counts, lists.unpacked) if lists.unpacked.any() else (values, counts)


def _without_tags(
    values: npt.NDArray[np.int64], counts: Lengths, unpacked: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], Lengths]:
    """The integers of lists that are not packed, in which each second varint is a tag."""
    rows = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(values)) - (np.cumsum(counts) - counts)[rows]
    tags = unpacked[rows] & (places % 2 == 0)
    wrong = tags & (values != _UNPACKED)
    _refuse(
        unpacked & (counts % 2 == 1) | (np.bincount(rows[wrong], minlength=len(counts)) > 0),
        "is not a tf.train.Example",
    )
    return values[~tags], np.where(unpacked, counts // 2, counts)


def _varints(values: Values) -> Part:
    """Integers of seven bits a byte, lowest first, and the bytes of each."""
    largest = int(values.max(initial=0))
    if largest < _MOST_TABLE:
        table, table_sizes = _varint_table(max(largest, 1).bit_length())
        sizes = table_sizes[values]
        return Part(table[values][np.arange(table.shape[1]) < sizes[:, None]], sizes)
    encoded = [_varint(value) for value in values.tolist()]
    return Part(np.frombuffer(b"".join(encoded), np.uint8), np.fromiter(map(len, encoded), np.int64, len(encoded)))


@lru_cache
def _varint_table(bits: int) -> tuple[Bytes, Lengths]:
    """The varints of all numbers of so many bits: uint8[2**bits, 3], and how many of the bytes count."""
    numbers = np.arange(1 << bits)
    sizes = np.asarray(1 + (numbers >= 1 << 7) + (numbers >= 1 << 14), np.int64)
    places = np.arange(3)
    more = np.where(sizes[:, None] > places + 1, 0x80, 0)
    table: Bytes = (numbers[:, None] >> 7 * places & 0x7F | more).astype(np.uint8)
    return table, sizes


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _nested(tag: int, parts: Sequence[Part], where: npt.NDArray[np.bool_] | None = None) -> list[Part]:
    """The parts of each message as a field: tag, length, content; left out where `where` is false."""
    sizes = _varints(np.sum([part.lengths for part in parts], axis=0))
    header = _joined([_repeated(bytes([tag]), len(sizes.lengths)), sizes])
    if where is not None and not where.all():
        header = Part(header.content[np.repeat(where, header.lengths)], header.lengths * where)
    return [header, *parts]


def _repeated(content: bytes, count: int) -> Part:
    return Part(np.tile(np.frombuffer(content, np.uint8), count), np.full(count, len(content), np.int64))


def _joined(parts: Sequence[Part]) -> Part:
    """The parts of each message one after the other."""
    lengths = np.sum([part.lengths for part in parts], axis=0)
    starts = np.cumsum(lengths) - lengths
    joined = np.empty(int(lengths.sum()), np.uint8)
    for content, sizes in parts:
        joined[np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(content))] = content
        starts += sizes
    return Part(joined, lengths)
