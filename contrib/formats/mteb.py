"""MTEB's first re-ranking files: {"query": text or texts, "positive": [texts], "negative":
[texts]}.

One file is topics, corpus, candidates and qrels at once. Nothing in it has an id: a query has the
number of its row, from 1, a doc the hash of its text.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from beamrank.formats.decode.base import Bad, RecordsDecoder
from beamrank.formats.decode.tables import ENDINGS
from beamrank.formats.files import Beginning, Format, InputFile, Look, records, wrong_row
from beamrank.formats.schemas import Hints, listed
from beamrank.formats.values import RowError, check_utf8

_RELEVANCE = {"positive": 1, "negative": 0}
_COLUMNS = ("query", *_RELEVANCE)
_ID_DIGITS = 16
_ORDER = "the candidates of a query are in the order of their ids, which are hashes of the texts"


class Sample(NamedTuple):
    """A query, and the texts and relevance of its docs in the order of their ids (the file has
    relevant ones first).
    """

    line: int
    query: str
    docs: dict[str, tuple[str, int]]

    @property
    def query_id(self) -> str:
        return str(self.line)


def sample_of(line: int, row: Mapping[str, Any]) -> Sample:
    """The query and the docs of a row; a text that it has twice is one doc, and relevant if it is
    once.

    Raises:
        RowError: a field is missing, or is not text or a list of texts.
    """
    if not set(row) >= set(_COLUMNS):
        raise RowError(f"lacks one of the fields {', '.join(_COLUMNS)}; it has: {', '.join(row)}")
    docs: dict[str, tuple[str, int]] = {}
    for name, relevance in _RELEVANCE.items():
        for text in _texts(name, row[name]):
            docs.setdefault(
                hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS], (text, relevance)
            )
    return Sample(line, " ".join(_texts("query", row["query"])), dict(sorted(docs.items())))


def _texts(name: str, value: object) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RowError(f"has a field `{name}` that is not text or a list of texts")
    check_utf8("".join(texts))
    return texts


def samples(url: str) -> Iterator[Sample]:
    """The rows of a file; raises WrongFormatError for one that cannot be read."""
    for line, row in records(url, _COLUMNS):
        try:
            yield sample_of(line, row)
        except RowError as error:
            raise wrong_row(url, line, error) from error


def _is_mteb(beginning: Beginning) -> bool:
    record = beginning.record
    if beginning.is_parquet:
        return record.keys() >= set(_COLUMNS)
    is_sample = isinstance(record.get("query"), str | list) and any(
        isinstance(record.get(name), list) for name in _RELEVANCE
    )
    return is_sample and not beginning.is_list


def _open(file: InputFile, _hints: Hints) -> RecordsDecoder:
    """The docs of each query, judged."""

    def rows(_: Bad) -> Iterator[tuple[int, tuple[Any, ...]]]:
        for sample in samples(file.url):
            for doc_id, doc in sample.docs.items():
                yield sample.line, (sample.query_id, doc_id, *doc)

    return RecordsDecoder(("query_id", "doc_id", "text", "relevance"), rows)


def _open_topics(file: InputFile, _hints: Hints) -> RecordsDecoder:
    """The queries, in the order of the file; one of several texts is these, joined by spaces."""

    def rows(_: Bad) -> Iterator[tuple[int, tuple[str, str]]]:
        return ((sample.line, (sample.query_id, sample.query)) for sample in samples(file.url))

    return RecordsDecoder(("query_id", "text"), rows)


_LOOK = Look("MTEB's re-ranking rows (query, positive, negative)", _is_mteb)
CORPUS = Format(_LOOK, _open, listed, keys=(), endings=(".jsonl", *ENDINGS), candidate_order=_ORDER)
TOPICS = Format(_LOOK, _open_topics, keys=())
QRELS = Format(_LOOK, _open)
