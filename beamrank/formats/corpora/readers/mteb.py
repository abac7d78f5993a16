"""MTEB's first re-ranking files as a corpus: {"query": text or texts, "positive": [texts], "negative": [texts]}.

Nothing in them has an id: a query has the number of its row, from 1, a doc the hash of its text.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from beamrank.errors import PreflightError
from beamrank.formats.corpora.readers.parquet import FORMAT as PARQUET
from beamrank.formats.corpora.readers.parquet import numbered_rows, open_parquet
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, Fields, WrongFormatError, whole_file
from beamrank.formats.ids import BYTE_ORDER_MARK
from beamrank.formats.row_checks import SURROGATE_REASON, RowError, json_object
from beamrank.storage.streams import open_stream

_RELEVANCE = {"positive": 1, "negative": 0}
COLUMNS = ("query", *_RELEVANCE)
_ID_DIGITS = 16
_BATCH_ROWS = 64


class Sample(NamedTuple):
    """A query, and the texts and the relevance of its docs by their ids.

    The docs are in the order of their ids: in that of the file, relevant ones are first.
    """

    line: int
    query: str
    docs: dict[str, tuple[str, int]]

    @property
    def query_id(self) -> str:
        """The number of the row."""
        return str(self.line)


def is_sample(names: Any) -> bool:
    """Whether the fields of a row, or the columns of a file, are those of the format."""
    return set(names) >= set(COLUMNS)


def is_mteb(url: str) -> bool:
    """Whether a Parquet file has the columns of the format."""
    with open_parquet(url) as file:
        return is_sample(file.schema_arrow.names)


def sample_of(line: int, row: Mapping[str, Any]) -> Sample:
    """The query and the docs of a row; a text that it has twice is one doc, and relevant if it is once.

    Raises:
        RowError: a field is missing, or is not text or a list of texts.
    """
    if not is_sample(row):
        raise RowError(f"lacks one of the fields {', '.join(COLUMNS)}; it has: {', '.join(row)}")
    docs: dict[str, tuple[str, int]] = {}
    for name, relevance in _RELEVANCE.items():
        for text in _texts(name, row[name]):
            docs.setdefault(hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS], (text, relevance))
    return Sample(line, " ".join(_texts("query", row["query"])), dict(sorted(docs.items())))


def _texts(name: str, value: object) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RowError(f"has a field `{name}` that is not text or a list of texts")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise RowError(SURROGATE_REASON) from error
    return texts


def samples(url: str) -> Iterator[Sample]:
    """The rows of a file.

    Raises:
        DataError: the file cannot be read.
        WrongFormatError: a row cannot be read.
    """
    is_parquet = url.endswith(PARQUET.endings)
    for line, row in numbered_rows(url, list(COLUMNS), _BATCH_ROWS) if is_parquet else _lines(url):
        try:
            yield sample_of(line, json_object(row.decode()) if isinstance(row, bytes) else row)
        except (RowError, UnicodeDecodeError) as error:
            raise WrongFormatError(f"{url}:{line}: the row {error}") from error


def _lines(url: str) -> Iterator[tuple[int, bytes]]:
    with open_stream(url) as file:
        for line, text in enumerate(file, 1):
            if text.strip():
                yield line, text.removeprefix(BYTE_ORDER_MARK)


def _check(url: str, fields: Fields) -> None:
    if fields is not None:
        raise PreflightError(f"the docs of {url} have no fields: leave `fields` out")
    next(samples(url), None)


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    for sample in samples(unit.url):
        texts = [text for text, _ in sample.docs.values()]
        count = len(texts)
        yield DocBatch(
            unit.index, list(sample.docs), texts, [sample.line - 1] * count, query_ids=[sample.query_id] * count
        )


FORMAT = CorpusFormat("mteb", (".jsonl", *PARQUET.endings), _check, whole_file, _read, lists_candidates=True)
