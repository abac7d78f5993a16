"""Files that are no text in UTF-8: packed ones whose name does not say so, and wide encodings."""

import re

from beamrank.errors import PreflightError
from beamrank.formats.decode.base import WrongFormatError

_NAMED = "compressed with {}: give it a name that ends in {}"
_WIDE = "UTF-{}, as some programs write text: convert it with `iconv -f {} -t utf-8`"
# How packed files begin; bzip2's beginning is long because text can begin with BZh, and UTF-16's
# begins UTF-32's too.
_PACKED = {
    re.compile(rb"\x1f\x8b"): _NAMED.format("gzip", ".gz"),
    re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"): _NAMED.format("bzip2", ".bz2"),
    re.compile(rb"\xfd7zXZ\0"): _NAMED.format("xz", ".xz"),
    re.compile(rb"\x28\xb5\x2f\xfd"): _NAMED.format("zstd", ".zst"),
    re.compile(rb"PK\x03\x04.{26}(\[Content_Types\]|_rels/|xl/)", re.DOTALL): (
        "of Excel: save it as CSV UTF-8"
    ),
    re.compile(rb"PK\x03\x04"): "a zip archive: unpack it",
    re.compile(
        rb".{257}ustar", re.DOTALL
    ): "a tar archive: give it a name that ends in .tar or .tar.gz",
    re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff"): _WIDE.format(32, "utf-32"),
    re.compile(rb"\xff\xfe|\xfe\xff"): _WIDE.format(16, "utf-16"),
}
_FEWEST_BYTES = 8
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a]")


def packing_hint(beginning: bytes) -> str:
    """A sentence that names how a file is packed whose name does not, or a wide encoding; empty for
    text in UTF-8.
    """
    for magic, sentence in _PACKED.items():
        if magic.match(beginning):
            return f". The file is {sentence}"
    # Without a byte order mark: the zero byte in most characters, on one side.
    even, odd = beginning[::2].count(0), beginning[1::2].count(0)
    if len(beginning) < _FEWEST_BYTES or 4 * max(even, odd) < len(beginning) or min(even, odd):
        return ""
    return f". The file is {_WIDE.format(16, 'utf-16be' if even else 'utf-16le')}"


def check_text(url: str, beginning: bytes) -> None:
    """Raises PreflightError where a file with this beginning is not text in UTF-8."""
    packed = packing_hint(beginning)
    if packed:
        raise PreflightError(f"{url} does not hold text{packed}", kind="packed", file=url)


def check_binary(url: str, line: bytes) -> None:
    """Raises WrongFormatError where the first line of a file of no known format is not text."""
    character = _BINARY.search(line)
    if character:
        raise WrongFormatError(
            f"{url} does not hold text: it has the byte 0x{character[0].hex()} in its first line. "
            "Write it as text, or as Parquet or Arrow",
            kind="binary",
            file=url,
        )
