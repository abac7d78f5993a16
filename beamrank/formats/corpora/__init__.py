"""Corpora: found, split into units that are read independently, digested."""

from beamrank.formats.corpora.files import corpus_files, find_taken, notes, resolved
from beamrank.formats.corpora.reader import (
    DigestedCorpus,
    digest_corpus,
    find_texts,
    list_units,
    read_unit,
    unit_digest,
)
from beamrank.formats.corpora.units import (
    FORMATS,
    CorpusConfig,
    CorpusFormat,
    CorpusUnit,
    DocBatch,
    doc_keys,
    duplicate_doc,
    place,
)

__all__ = [
    "FORMATS",
    "CorpusConfig",
    "CorpusFormat",
    "CorpusUnit",
    "DigestedCorpus",
    "DocBatch",
    "corpus_files",
    "digest_corpus",
    "doc_keys",
    "duplicate_doc",
    "find_taken",
    "find_texts",
    "list_units",
    "notes",
    "place",
    "read_unit",
    "resolved",
    "unit_digest",
]
