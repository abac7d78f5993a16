"""Small files that unpack to much are read in bounded memory, or refused; so are headers that claim much."""

import bz2
import gzip
import json
import lzma
import tarfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest

from beamrank.errors import BeamrankError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from benchmarks.fuzz.inputs import to_parquet
from benchmarks.fuzz.targets import named
from benchmarks.fuzz.watch import memory_of, prepare
from contrib.tensorflow2019.tensor_bundle import masked_crc

_MB = 1 << 20
_WHOLE = 32 * _MB


def _tar(content: bytes) -> bytes:
    sink = BytesIO()
    with tarfile.open(fileobj=sink, mode="w:xz") as tar:
        header = tarfile.TarInfo("docs.jsonl")
        header.size = len(content)
        tar.addfile(header, BytesIO(content))
    return sink.getvalue()


_PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lambda content: lzma.compress(content, preset=0),
    "zst": lambda content: bytes(pa.compress(content, "zstd", asbytes=True)),
    "tar.xz": _tar,
}
_DOC = json.dumps({"id": "d", "contents": "amber " * 200}).encode() + b"\n"


def _count_docs(path: Path) -> int:
    units = list_units(CorpusConfig(path=str(path), format="jsonl"))
    return sum(len(batch.doc_ids) for unit in units for batch in read_unit(unit))


def _memory(name: str, content: bytes, file: str, folder: Path) -> int:
    """The bytes that a target takes for a content, in a file of another name."""
    prepared = prepare(named(name), folder / "files")._replace(path=str(folder / "files" / file))
    Path(prepared.path).write_bytes(content)
    return memory_of(lambda: prepared.target.read(prepared.path))


@pytest.mark.parametrize("ending", _PACK)
def test_corpus_that_unpacks_to_much_is_streamed(tmp_path, ending):
    packed = _PACK[ending](_DOC * (_WHOLE // len(_DOC)))
    assert len(packed) < _WHOLE // 100
    path = tmp_path / f"docs.jsonl.{ending}"
    path.write_bytes(packed)
    assert memory_of(lambda: _count_docs(path)) < _WHOLE


@pytest.mark.parametrize(
    ("name", "file", "row"),
    [("topics tsv", "t.tsv", b"q%d\tamber " + b"basil " * 200), ("run", "r.trec", b"q%d Q0 d 1 2 " + b"t" * 900)],
)
@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_topics_and_runs_that_unpack_to_much_take_a_few_times_that(tmp_path, name, file, row, ending):
    packed = _PACK[ending](b"".join(row.replace(b"%d", b"%d" % n) + b"\n" for n in range(_WHOLE // len(row))))
    assert _memory(name, packed, f"{file}.{ending}", tmp_path) < 64 * _MB + 6 * _WHOLE


@pytest.mark.parametrize("ending", ["gz", "xz", "tar.xz"])
def test_line_that_never_ends_takes_a_few_times_its_size(tmp_path, ending):
    packed = _PACK[ending](b"x" * _WHOLE)
    assert _memory("corpus jsonl", packed, f"docs.jsonl.{ending}", tmp_path) < 64 * _MB + 6 * _WHOLE


def test_column_that_repeats_a_value_is_read_in_batches(tmp_path):
    rows = _WHOLE // 1000
    content = to_parquet({"id": pa.repeat("d", rows), "contents": pa.repeat("x" * 1000, rows)}, row_group_size=rows)
    assert len(content) < _WHOLE // 100
    assert _memory("corpus parquet", content, "docs.parquet", tmp_path) < 128 * _MB


def _xz_of_a_large_dictionary() -> bytes:
    """A header that claims a dictionary of 4 GiB, with its checksum."""
    content = bytearray(lzma.compress(b"amber\n" * 1000))
    at = content.index(b"\x21\x01") - 2
    size = (content[at] + 1) * 4
    content[at + 4] = 40
    content[at + size - 4 : at + size] = zlib.crc32(content[at : at + size - 4]).to_bytes(4, "little")
    return bytes(content)


_LENGTH = (1 << 29).to_bytes(8, "little")
_ENTITIES = (
    "<!DOCTYPE x [<!ENTITY a '"
    + "x" * 1000
    + "'>"
    + "".join(f"<!ENTITY {b} '{f'&{a};' * 20}'>" for a, b in zip("abcde", "bcdef", strict=True))
    + "]><ROOT><DOC><DOCNO>&f;</DOCNO></DOC></ROOT>"
)


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("stream xz", "s.xz", _xz_of_a_large_dictionary()),
        ("corpus car", "docs.cbor", b"\x83\x00\x5b\x00\x00\x00\x40\x00\x00\x00\x00" + b"x" * 99),
        ("corpus car", "docs.cbor", b"\x83\x00\x41a\x9b\x00\x00\x00\x40\x00\x00\x00\x00" + b"\x82\x00" * 99),
        ("safetensors", "model.safetensors", (1 << 40).to_bytes(8, "little") + b"{" * 99),
        ("TFRecord", "x.tfrecord", _LENGTH + masked_crc(_LENGTH).to_bytes(4, "little") + b"x" * 99),
        ("WebAP", "g.xml", _ENTITIES.encode()),
        (
            "configuration",
            "c.yaml",
            b"a: &a ["
            + b"x," * 99
            + b"]\n"
            + b"".join(b"%c: &%c [%b]\n" % (n, n, b"*%c," % (n - 1) * 99) for n in range(ord("b"), ord("h"))),
        ),
        ("configuration", "c.yaml", gzip.compress(bytes(_WHOLE))),
    ],
)
def test_header_that_claims_much_takes_nothing(tmp_path, name, file, content):
    assert _memory(name, content, file, tmp_path) < 64 * _MB
    if name != "stream xz":
        with pytest.raises(BeamrankError):
            named(name).read(str(tmp_path / "files" / file))
