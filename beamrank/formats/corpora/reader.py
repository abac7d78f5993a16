"""Any corpus as units, and a unit as docs."""

from collections.abc import Iterator

from beamrank.errors import PreflightError
from beamrank.formats.config import CorpusConfig
from beamrank.formats.corpora import beir, car, jsonl, parquet, tsv
from beamrank.formats.corpora.units import CorpusUnit, DocBatch, split_batch
from beamrank.storage.streams import errors_as

_FORMATS = {
    "beir": beir.FORMAT,
    "car": car.FORMAT,
    "jsonl": jsonl.FORMAT,
    "parquet": parquet.FORMAT,
    "tsv": tsv.FORMAT,
}


def corpus_files(corpus: CorpusConfig) -> list[str]:
    """The files of a corpus, sorted.

    Raises:
        PreflightError: there are none.
    """
    return _FORMATS[corpus.format].files(corpus.path)


def list_units(corpus: CorpusConfig, unit_bytes: int = 64 << 20) -> list[CorpusUnit]:
    """Cuts a corpus into units, in the order of its files, and checks the beginning of each file.

    Args:
        corpus: where the docs are.
        unit_bytes: the size of a unit of TSV or JSONL; other formats are cut at row groups or files.

    Raises:
        PreflightError: there are no files, they are empty or of another format, or lack what `fields` names.
    """
    corpus_format = _FORMATS[corpus.format]
    units: list[CorpusUnit] = []
    for url in corpus_files(corpus):
        with errors_as(PreflightError, url):
            corpus_format.check(url, corpus.fields)
            ranges = corpus_format.ranges(url, unit_bytes)
        for start, end in ranges:
            units.append(CorpusUnit(len(units), url, corpus.format, corpus.fields, start, end))
    if not units:
        raise PreflightError(f"the corpus {corpus.path} holds no docs: its files are empty")
    return units


def read_unit(unit: CorpusUnit, batch_docs: int = 1024) -> Iterator[DocBatch]:
    """The docs of a unit, in order.

    Rows that cannot be used are not docs: they are in `bad`, each with its place and reason. How many of them are too
    many is for the caller to say.

    Args:
        unit: one of `list_units`.
        batch_docs: the most docs in a batch.

    Raises:
        DataError: the file cannot be read, or ends in the middle.
    """
    for batch in _FORMATS[unit.format].read(unit):
        yield from split_batch(batch, batch_docs)
