"""Corpora for tests: read whole, and compressed in every way; CACM."""

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.texts.units import DocBatch


def corpus_of(path: Path | str, name: str, fields: tuple[str, ...] | None = None) -> CorpusConfig:
    return CorpusConfig(path=str(path), format=name, fields=fields)


def read_batches(corpus: CorpusConfig, unit_bytes: int = 64 << 20) -> list[DocBatch]:
    return [batch for unit in list_units(corpus, unit_bytes) for batch in read_unit(unit)]


def docs_of(batches: list[DocBatch]) -> list[tuple[str, str]]:
    return [doc for batch in batches for doc in zip(batch.doc_ids, batch.texts, strict=True)]


def read_docs(path: Path | str, name: str, fields: tuple[str, ...] | None = None) -> list[tuple[str, str]]:
    """The docs of a corpus without bad rows."""
    batches = read_batches(corpus_of(path, name, fields))
    assert [bad for batch in batches for bad in batch.bad] == []
    return docs_of(batches)


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}

each_compression = pytest.mark.parametrize("ending", COMPRESSORS, ids=["gzip", "bzip2", "xz", "zstd"])


class _Data(HTMLParser):
    """The text between tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.feed(text)
        self.close()

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def read_cacm(shared_data: Path) -> dict[str, str]:
    """CACM as the notes of the collection describe it: the HTML parser's data, white space collapsed."""
    docs = {}
    with tarfile.open(shared_data / "cacm/cacm.tar.gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                text = " ".join(_Data(file.read().decode("utf-8", "replace")).parts)
                docs[Path(member.name).stem] = " ".join(text.split())
    assert len(docs) == 3204
    return docs
