"""Small files that unpack to much, and headers that claim much."""

import gzip
import json
import lzma
import zlib
from collections.abc import Callable, Mapping, Sequence

from benchmarks.fuzz.inputs import PACKED, to_tar
from contrib.tensorflow2019.tensor_bundle import masked_crc

WHOLE = 32 << 20
"""The bytes to which the files unpack."""


PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    **{name: lambda content, codec=codec: codec.dump([content]) for name, codec in PACKED.items()},  # type: ignore[misc]
    "xz": lambda content: lzma.compress(content, preset=0),
    "tar.xz": lambda content: to_tar(content, "w:xz"),
}
DOC = json.dumps({"id": "d", "contents": "amber " * 200}).encode() + b"\n"


def _xz_of_a_large_dictionary() -> bytes:
    """A header that claims a dictionary of 4 GiB, with its checksum."""
    content = bytearray(lzma.compress(b"amber\n" * 1000))
    at = content.index(b"\x21\x01") - 2
    size = (content[at] + 1) * 4
    content[at + 4] = 40
    content[at + size - 4 : at + size] = zlib.crc32(content[at : at + size - 4]).to_bytes(
        4, "little"
    )
    return bytes(content)


_LENGTH = (1 << 29).to_bytes(8, "little")
_ENTITIES = (
    "<!DOCTYPE x [<!ENTITY a '"
    + "x" * 1000
    + "'>"
    + "".join(f"<!ENTITY {b} '{f'&{a};' * 20}'>" for a, b in zip("abcde", "bcdef", strict=True))
    + "]><ROOT><DOC><DOCNO>&f;</DOCNO></DOC></ROOT>"
)
# The target, its file, and what it holds.
CLAIMS: Sequence[tuple[str, str, bytes]] = (
    ("stream xz", "s.xz", _xz_of_a_large_dictionary()),
    ("corpus car", "docs.cbor", b"\x83\x00\x5b\x00\x00\x00\x40\x00\x00\x00\x00" + b"x" * 99),
    (
        "corpus car",
        "docs.cbor",
        b"\x83\x00\x41a\x9b\x00\x00\x00\x40\x00\x00\x00\x00" + b"\x82\x00" * 99,
    ),
    ("safetensors", "model.safetensors", (1 << 40).to_bytes(8, "little") + b"{" * 99),
    ("TFRecord", "x.tfrecord", _LENGTH + masked_crc(_LENGTH).to_bytes(4, "little") + b"x" * 99),
    ("WebAP", "g.xml", _ENTITIES.encode()),
    (
        "configuration",
        "c.yaml",
        b"a: &a ["
        + b"x," * 99
        + b"]\n"
        + b"".join(
            b"%c: &%c [%b]\n" % (n, n, b"*%c," % (n - 1) * 99) for n in range(ord("b"), ord("h"))
        ),
    ),
    ("configuration", "c.yaml", gzip.compress(bytes(WHOLE))),
)
