"""Inputs that are nearly valid: changed bytes, and changed values where a codec takes a format
apart.
"""

import bz2
import gzip
import io
import json
import lzma
import math
import tarfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cbor2
import pyarrow as pa
import pyarrow.parquet as pq

from contrib.tensorflow2019.examples import tfrecord

_LARGEST_BYTES = 1 << 17
Pick = Callable[[int], int]
"""A number below another: drawn by hypothesis, by a random generator or from what Atheris gives."""


def pick_from(drawn: bytes) -> Pick:
    """Picks by drawn bytes, four at a time; zeros where they end, as hypothesis shrinks."""
    numbers = iter([int.from_bytes(drawn[at : at + 4], "big") for at in range(0, len(drawn), 4)])
    return lambda below: next(numbers, 0) % below


_TOKENS = (
    *rb"""" "" , { } [[ ] : # <DOC> </DOC> <!-- <script> <top> <num> &a *a""".split(),
    *rb"1e999 -0 NaN null 0x10 1_0 \ud800 %ff ../../x q1 d1 PAR1".split(),
    *(b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n\n", b"\t", b" ", b"9" * 400),
    *(b".I 7\n", b".W\n", b"- ", b"!!x ", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\x1b]0;x\x07"),
    *(b"\x9f", b"\x83\x00", b"\x7f\xff\xff\xff", b"\xff" * 8, b"\x1f\x8b"),
)
_DEEP: Any = []
for _ in range(300):
    _DEEP = [_DEEP]
_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 7, 2**31, 2**63, 10**30, 1.5, -0.0, 1e308, math.inf, math.nan),
    *([], {}, [[]], {"a": 1}, "", "a b", "\0", "\ud800", "\u2028", "\x1b[2J", "x" * 5000, b"\xff"),
    *("x", "../../x", "1", "q1", "d1", "auto"),
    _DEEP,
)


class Codec(NamedTuple):
    """Takes a file apart into a value, and puts it together; either may raise any error, where
    bytes are changed.
    """

    load: Callable[[bytes], Any]
    dump: Callable[[Any], bytes]


def _dump_header(parts: list[Any]) -> bytes:
    header = json.dumps(parts[0]).encode()
    return b"".join([len(header).to_bytes(8, "little"), header, parts[1]])


def _load_header(content: bytes) -> list[Any]:
    end = 8 + int.from_bytes(content[:8], "little")
    return [json.loads(content[8:end]), content[end:]]


def _load_items(content: bytes) -> list[Any]:
    file, items = io.BytesIO(content), []
    while file.tell() < len(content):
        items.append(cbor2.load(file))
    return items


def _load_records(content: bytes) -> list[bytes]:
    contents, at = [], 0
    while at < len(content):
        end = at + 12 + int.from_bytes(content[at : at + 8], "little")
        contents.append(content[at + 12 : end])
        at = end + 4
    return contents


def to_parquet(columns: dict[str, Any], **how: Any) -> bytes:
    """A Parquet file of some columns."""
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **{"row_group_size": 2, **how})
    return sink.getvalue()


def to_arrow(columns: dict[str, Any]) -> bytes:
    """An Arrow IPC file of some columns."""
    sink, table = io.BytesIO(), pa.table(columns)
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, 2)
    return sink.getvalue()


def _load_arrow(content: bytes) -> Any:
    table = pa.ipc.open_file(content).read_all()
    table.validate(full=True)
    return table.to_pydict()


def to_tar(content: bytes, mode: str) -> bytes:
    """An archive with one file of docs; the mode says how it is compressed."""
    sink, header = io.BytesIO(), tarfile.TarInfo("docs.jsonl")
    header.size = len(content)
    with tarfile.open(fileobj=sink, mode=mode) as tar:  # type: ignore[call-overload]
        tar.addfile(header, io.BytesIO(content))
    return sink.getvalue()


def to_lines(rows: Sequence[Any]) -> bytes:
    """JSON, a line each."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def packed(pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]) -> Codec:
    """The codec of a compressed file, whose value is its content."""
    return Codec(lambda content: [unpack(content)], lambda value: pack(value[0]))


JSON = Codec(json.loads, lambda value: json.dumps(value).encode())
LINES = Codec(lambda content: list(map(json.loads, content.splitlines())), to_lines)
TEXT = Codec(lambda content: content.split(b"\n"), b"\n".join)
CBOR = Codec(_load_items, lambda items: b"".join(map(cbor2.dumps, items)))
PARQUET = Codec(lambda content: pq.read_table(pa.BufferReader(content)).to_pydict(), to_parquet)
ARROW = Codec(_load_arrow, to_arrow)
SAFETENSORS = Codec(_load_header, _dump_header)
RECORDS = Codec(_load_records, tfrecord.frame)
PACKED = {
    "gz": packed(gzip.compress, gzip.decompress),
    "bz2": packed(bz2.compress, bz2.decompress),
    "xz": packed(lzma.compress, lzma.decompress),
    "zst": packed(
        lambda content: bytes(pa.compress(content, "zstd", asbytes=True)),
        lambda content: bytes(pa.CompressedInputStream(pa.BufferReader(content), "zstd").read()),
    ),
}


def mutate(content: bytes, codec: Codec | None, pick: Pick) -> bytes:
    """A content with one to four changes."""
    for _ in range(1 + pick(4)):
        content = _mutated(content, codec, pick)[:_LARGEST_BYTES]
    return content


def _mutated(content: bytes, codec: Codec | None, pick: Pick) -> bytes:
    if codec is not None and pick(3):
        try:
            return codec.dump(_changed(codec.load(content), pick))
        except Exception:  # A changed value need not fit the format.
            pass
    return _changed_bytes(content, pick)


def _changed(value: Any, pick: Pick) -> Any:
    """A value with another one somewhere in it."""
    if isinstance(value, dict) and value and pick(6):
        key = list(value)[pick(len(value))]
        rest = {name: other for name, other in value.items() if name != key}
        kind = pick(8)
        other = ("", "x", "doc_id", "q1", "check", "../x")[pick(6)]
        return (
            rest
            if kind == 0
            else {**rest, other: value[key]}
            if kind == 1
            else {**value, key: _changed(value[key], pick)}
        )
    if isinstance(value, list) and value and pick(6):
        at, kind = pick(len(value)), pick(8)
        middle = (
            [[], [value[at]] * 2, [value[at]] * 40, [value[pick(len(value))]]][kind]
            if kind < 4
            else None
        )
        return [
            *value[:at],
            *([_changed(value[at], pick)] if middle is None else middle),
            *value[at + 1 :],
        ]
    if isinstance(value, bytes) and pick(8):
        return _changed_bytes(value, pick)
    if isinstance(value, str) and pick(3):
        return _changed_bytes(value.encode("utf-8", "surrogatepass"), pick).decode(
            "utf-8", "surrogateescape"
        )
    return _VALUES[pick(len(_VALUES))]


def _changed_bytes(content: bytes, pick: Pick) -> bytes:
    at = pick(len(content) + 1)
    end = min(len(content), at + pick(1 + min(len(content), (4, 64, 1 << 20)[pick(3)])))
    part, kind = content[at:end], pick(9)
    if kind == 0 and at < len(content):
        return content[:at] + bytes([content[at] ^ 1 << pick(8)]) + content[at + 1 :]
    if kind == 1:
        return content[:at] + bytes([pick(256)]) + content[at + 1 :]
    if kind == 2:
        return content[:at] + content[end:]
    if kind == 3:
        return content[:at] + part * (2 + pick(40)) + content[end:]
    if kind == 4:
        to = pick(len(content) + 1)
        return content[:to] + part + content[to:]
    if kind == 5:
        return content[:at]
    token = _TOKENS[pick(len(_TOKENS))]
    return content[:at] + token * (1 + 200 * (not pick(20))) + content[end if kind == 6 else at :]
