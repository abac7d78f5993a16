"""Corpora: JSONL, BEIR, MS MARCO TSV, Parquet and TREC CAR, read in units that stand alone."""

from beamrank.formats.corpora.digest import DigestedCorpus, corpus_digest, digest_corpus
from beamrank.formats.corpora.overlap import find_taken
from beamrank.formats.corpora.reader import list_units, read_unit
from beamrank.formats.corpora.units import CorpusUnit, DocBatch, place

__all__ = [
    "CorpusUnit",
    "DigestedCorpus",
    "DocBatch",
    "corpus_digest",
    "digest_corpus",
    "find_taken",
    "list_units",
    "place",
    "read_unit",
]
