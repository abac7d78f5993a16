"""Files of `compress` (.Z): gzip's own reader is the reference."""

import hashlib
import io
import subprocess
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beamrank.errors import DataError
from beamrank.storage.lzw import MAGIC, Lzw
from beamrank.storage.streams import compression, open_stream, without_compression

_RANDOM = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(2500))
_TEXT = " ".join(str(i * i) for i in range(8_000)).encode()


def lzw_compressed(content: bytes, last_bits: int = 16, clear_at: int | None = None) -> bytes:
    """What `compress -b last_bits` writes; the table is cleared when it is full and `clear_at` more codes are out."""
    output = bytearray(MAGIC + bytes([last_bits | 0x80]))
    bits = 9
    codes: list[int] = []

    def flush():
        number = sum(code << (bits * i) for i, code in enumerate(codes))
        output.extend(number.to_bytes(-(-len(codes) * bits // 8), "little"))
        codes.clear()

    def put(code):
        codes.append(code)
        if len(codes) == 8:
            flush()

    def end_group():
        if codes:
            codes.extend([0] * (8 - len(codes)))
            flush()

    table = {bytes([i]): i for i in range(256)}
    free, since_full, text = 257, 0, b""
    for value in content:
        longer = text + bytes([value])
        if longer in table:
            text = longer
            continue
        put(table[text])
        text = bytes([value])
        if free < 1 << last_bits:
            table[longer] = free
            free += 1
            # The reader is one entry behind.
            if free > 1 << bits and bits < last_bits:
                end_group()
                bits += 1
        else:
            since_full += 1
            if since_full == clear_at:
                put(256)
                end_group()
                table, free, bits, since_full = {bytes([i]): i for i in range(256)}, 257, 9, 0
    if text:
        put(table[text])
    flush()
    return bytes(output)


def _unpacked(packed: bytes) -> bytes:
    return io.BufferedReader(Lzw(io.BytesIO(packed[len(MAGIC) :]))).read()


@pytest.mark.parametrize("last_bits", [10, 12, 16])
@pytest.mark.parametrize("clear_at", [None, 1, 1000])
@pytest.mark.parametrize("content", [b"", b"a", b"aaaaaaaaaa", _RANDOM + _TEXT], ids=["empty", "a", "aaa", "long"])
def test_lzw_reads_what_gzip_reads(content, last_bits, clear_at):
    packed = lzw_compressed(content, last_bits, clear_at)
    assert subprocess.run(["gzip", "-dc"], input=packed, capture_output=True, check=True).stdout == content
    assert _unpacked(packed) == content


@settings(max_examples=100, deadline=None)
@example(content=b"", last_bits=9)
@given(content=st.binary(max_size=3000) | st.text("ab", max_size=5000).map(str.encode), last_bits=st.integers(10, 16))
def test_lzw_reads_any_content(content, last_bits):
    assert _unpacked(lzw_compressed(content, last_bits, 7)) == content


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=300))
def test_lzw_of_any_bytes_gives_text_or_an_error(content):
    with suppress(OSError):
        assert isinstance(_unpacked(MAGIC + content), bytes)


def test_lzw_limits_its_table():
    """A file of 0.1 MB that stands for 2 GB of zeros: each code is the next entry of the table."""
    codes = [0, *range(257, 1 << 16)]
    output, bits, position = bytearray(MAGIC + bytes([16 | 0x80])), 9, 0
    while position < len(codes):
        count = (1 << bits - 1) if bits > 9 else 256
        group = codes[position : position + count]
        for start in range(0, len(group), 8):
            eight = group[start : start + 8]
            output += sum(code << (bits * i) for i, code in enumerate(eight)).to_bytes(bits, "little")
        position, bits = position + count, bits + 1
    with pytest.raises(OSError, match="too often"):
        _unpacked(bytes(output))
    assert _unpacked(lzw_compressed(bytes(1 << 20))) == bytes(1 << 20)


@pytest.mark.parametrize("name", ["fr940104.Z", "FR940104.0Z", "ft911.1z", "x.2z"])
def test_open_stream_reads_files_of_compress(tmp_path, name):
    (tmp_path / name).write_bytes(lzw_compressed(_TEXT))
    assert compression(name) == "compress"
    assert "z" not in without_compression(name)
    with open_stream(str(tmp_path / name)) as file:
        assert file.read() == _TEXT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"plain text", r"cannot read .*a\.Z: it is not a file of `compress`: it begins with 706c, not 1f9d"),
        (MAGIC + b"\xff", r"cannot read .*a\.Z: it names codes of 31 bits.*fetch it again"),
        (MAGIC + b"\x90\xff\xff\xff", r"cannot read .*a\.Z: it holds a code without a text"),
        (b"", r"a\.Z is empty"),
    ],
)
def test_damaged_file_of_compress_is_an_error(tmp_path, content, message):
    (tmp_path / "a.Z").write_bytes(content)
    with pytest.raises(DataError, match=message), open_stream(str(tmp_path / "a.Z")) as file:
        file.read()
