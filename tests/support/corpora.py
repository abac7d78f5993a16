"""Corpora for tests: read whole, and compressed in every way; CACM."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.rejects import NO_LIMIT, Rejects
from beamrank.formats.texts.units import DocBatch
from beamrank.records import BadRow
from benchmarks.datasets.cacm import read_cacm as read_archive


def corpus_of(path: Path | str, name: str, fields: tuple[str, ...] | None = None) -> CorpusConfig:
    return CorpusConfig(path=str(path), format=name, fields=fields)


def save_corpus(folder: Path, docs: Mapping[str, str], extra: str = "") -> CorpusConfig:
    """Writes docs as JSONL, and what comes after them."""
    path = folder / "corpus.jsonl"
    path.write_text(
        "".join(json.dumps({"id": key, "contents": text}) + "\n" for key, text in docs.items())
        + extra
    )
    return corpus_of(path, "jsonl")


def read_batches(corpus: CorpusConfig, unit_bytes: int = 64 << 20) -> list[DocBatch]:
    return [batch for unit in list_units(corpus, unit_bytes) for batch in read_unit(unit)]


def bad_rows(corpus: CorpusConfig, unit_bytes: int = 64 << 20) -> list[BadRow]:
    """The rows of a corpus that cannot be used."""
    rejects = Rejects("docs", NO_LIMIT)
    for unit in list_units(corpus, unit_bytes):
        deque(read_unit(unit, rejects), maxlen=0)
    return [row for _, row in rejects.rows]


def docs_of(batches: list[DocBatch]) -> list[tuple[str, str]]:
    return [doc for batch in batches for doc in zip(batch.doc_ids, batch.texts, strict=True)]


def read_docs(
    path: Path | str, name: str, fields: tuple[str, ...] | None = None
) -> list[tuple[str, str]]:
    """The docs of a corpus without bad rows."""
    corpus = corpus_of(path, name, fields)
    assert bad_rows(corpus) == []
    return docs_of(read_batches(corpus))


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

each_compression = pytest.mark.parametrize(
    "ending", COMPRESSORS, ids=["gzip", "bzip2", "xz", "zstd"]
)


def save_tar(path: Path, files: Mapping[str, bytes | None]) -> Path:
    """A .tar.gz of files by their names; None is a link that leads elsewhere."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            else:
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content or b""))
    return path


def read_cacm(shared_data: Path) -> dict[str, str]:
    """CACM as the notes of the collection describe it."""
    docs = dict(read_archive(shared_data / "cacm/cacm.tar.gz"))
    assert len(docs) == 3204
    return docs
