"""Corpora: found, split into units that are read independently, digested."""

from beamrank.formats.corpora.digest import DigestedCorpus, corpus_digest, digest_corpus, unit_digest
from beamrank.formats.corpora.overlap import find_taken
from beamrank.formats.corpora.reader import corpus_files, list_units, notes, read_unit, resolved
from beamrank.formats.corpora.registry import FORMATS, CorpusConfig
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, doc_keys, duplicate_doc, place

__all__ = [
    "FORMATS",
    "CorpusConfig",
    "CorpusFormat",
    "CorpusUnit",
    "DigestedCorpus",
    "DocBatch",
    "corpus_digest",
    "corpus_files",
    "digest_corpus",
    "doc_keys",
    "duplicate_doc",
    "find_taken",
    "list_units",
    "notes",
    "place",
    "read_unit",
    "resolved",
    "unit_digest",
]
