"""TREC CAR's train.test200 from its tar.gz."""

import tempfile
from pathlib import Path
from urllib.parse import unquote

from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.records import Doc, Topic
from benchmarks.datasets.archives import reading, tar_files, tar_texts
from benchmarks.datasets.collection import Collection


def read_car(archive: str | Path) -> Collection:
    """The paragraphs of train.test200, and its headings as topics: page, section, subsection.

    Raises:
        PreflightError: the archive has no such files.
    """
    with reading(archive, "TREC CAR"):
        passages = _read_paragraphs(archive)
        qrels: dict[str, dict[str, int]] = {}
        (lines,) = tar_texts(archive, ".cbor.hierarchical.qrels").values()
        for line in lines.splitlines():
            query_id, _, doc_id, relevance = line.split()
            qrels.setdefault(query_id, {})[doc_id] = int(relevance)
    topics = tuple(Topic(query_id, " ".join(unquote(query_id).split("/"))) for query_id in qrels)
    return Collection(passages, topics, qrels)


def _read_paragraphs(archive: str | Path) -> tuple[Doc, ...]:
    (content,) = tar_files(archive, ".cbor.paragraphs").values()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "paragraphs")
        file.write_bytes(content)
        corpus = CorpusConfig(path=str(file), format="car")
        return tuple(
            Doc(doc_id, text)
            for unit in list_units(corpus)
            for batch in read_unit(unit)
            for doc_id, text in zip(batch.doc_ids, batch.texts, strict=True)
        )
