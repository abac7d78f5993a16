"""The texts of triples of ids: tokenized once, then read by their ids from files that are mapped into memory."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.folders import shown_paths
from beamrank.formats.topics import read_topics
from beamrank.storage.documents import hash64, hashes64
from beamrank.storage.local_files import map_array
from beamrank.storage.streams import errors_as, open_stream
from models.tokenizers.bert import BertTokenizer
from models.training.config import DataConfig
from models.training.data.arrays import Hashes, Indices, is_in
from models.training.data.collection import MISSING, scan_docs
from models.training.data.examples import Group, TokenIds
from models.training.data.tokens import DOCS, EMPTY, QUERIES, HashedTexts, TokenRows, TokenWriter
from models.training.data.triples import parse_triple
from models.training.data.triples_layout import header_bytes

_BLOCK_TRIPLES = 50_000
_PENDING_DOCS = 1 << 20
_PARTS = ("ids", "rows", "texts", "named")


class TextsById:
    """The token ids of queries and docs, by the ids of these."""

    def __init__(self, folder: Path, dtype: np.dtype[np.unsignedinteger]) -> None:
        self._queries, self._docs = _Texts(folder, QUERIES, dtype), _Texts(folder, DOCS, dtype)

    def __call__(self, triple: Group) -> Group[TokenIds] | None:
        """A triple with token ids; None if a text is missing or empty, or both docs have the same."""
        query = self._queries.find(triple.query)
        positive, negative = map(self._docs.find, triple.docs)
        if query is None or positive is None or negative is None or self._docs.same(positive, negative):
            return None
        docs = (self._docs.text(positive), self._docs.text(negative))
        return Group(self._queries.text(query), docs, triple.relevant)

    @property
    def trained_queries(self) -> Hashes:
        """The hashes of the texts of the queries that triples name."""
        return self._queries.named()


class _Texts:
    """Token ids, and for each id its row of these, and a hash of its text."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[np.unsignedinteger]) -> None:
        self._tokens = TokenRows(folder, name, dtype)
        self._ids, self._rows, self._texts, self._named = (map_array(folder / f"{name}-{part}.npy") for part in _PARTS)

    def find(self, text_id: str) -> int | None:
        """The place of an id that has a text."""
        wanted = np.uint64(hash64(text_id))
        at = int(np.searchsorted(self._ids, wanted))
        return at if at < len(self._ids) and self._ids[at] == wanted else None

    def same(self, one: int, other: int) -> bool:
        """Whether two places have the same text."""
        return bool(self._texts[one] == self._texts[other])

    def text(self, place: int) -> TokenIds:
        """The token ids of a place."""
        return self._tokens[int(self._rows[place])]

    def named(self) -> Hashes:
        """The hashes of the texts that triples name."""
        return np.asarray(self._texts[self._named])


def store_texts(data: DataConfig, tokenizer: BertTokenizer, max_tokens: int, folder: Path) -> list[str]:
    """Writes the token ids of the texts that triples of ids name to a folder, for `TextsById`.

    Returns:
        Lines to report about the corpus, and about triples with ids that have no text.

    Raises:
        PreflightError: a file is missing or invalid, or too many triples have such ids.
    """
    assert data.corpus
    assert data.topics
    topics = read_topics(data.topics)
    texts = HashedTexts(TokenWriter(folder, QUERIES, tokenizer, max_tokens))
    texts.add([topic.text for topic in topics])
    queries = hashes64(topic.query_id for topic in topics)
    order = np.argsort(queries)
    queries = queries[order]
    named = np.zeros(len(queries), np.bool_)
    lines: list[str] = []
    docs = _distinct(_doc_ids(data, queries, None, lines, named))
    _save(folder, QUERIES, queries, order, texts.close(), named)
    texts = HashedTexts(TokenWriter(folder, DOCS, tokenizer, max_tokens))
    rows, corpus_lines = scan_docs(data.corpus, docs, data.max_bad_rows, texts.add, None)
    known = rows != MISSING
    if not known.all():
        lines.clear()
        for _ in _doc_ids(data, queries, docs[known], lines, named):
            pass
    _save(folder, DOCS, docs[known], rows[known], texts.close(), np.ones(int(known.sum()), np.bool_))
    return corpus_lines + lines


def _save(folder: Path, name: str, ids: Hashes, rows: Indices, texts: Hashes, named: NDArray[np.bool_]) -> None:
    """Writes the row and the hash of each id's text, and whether triples name it; an empty text has none."""
    texts = texts[rows]
    for part, values in zip(_PARTS, (ids, rows, texts, named), strict=True):
        np.save(folder / f"{name}-{part}.npy", values[texts != EMPTY])


def _distinct(blocks: Iterable[Hashes]) -> Hashes:
    """All hashes, sorted; those that are new wait until there are many, since each merge copies all."""
    found = pending = np.zeros(0, np.uint64)
    for hashes in blocks:
        pending = np.union1d(pending, hashes[~is_in(hashes, found)])
        if len(pending) > _PENDING_DOCS:
            found, pending = np.union1d(found, pending), pending[:0]
    return np.union1d(found, pending)


def _doc_ids(
    data: DataConfig, queries: Hashes, docs: Hashes | None, lines: list[str], named: NDArray[np.bool_]
) -> Iterator[Hashes]:
    """Reads the triples: yields the hashes of their doc_ids, some at a time, and adds a line about those without texts.

    Args:
        data: names the files.
        queries: the hashes of the topics' ids, sorted.
        docs: those of the docs in the corpus, sorted; None if they are not known yet.
        lines: receives the line at the end.
        named: bool[topics], receives which of the topics are named.

    Raises:
        PreflightError: too many triples have an id without a text.
    """
    count, first = 0, ""
    for numbers, ids in _blocks(data.triples or ""):
        hashes = hashes64(each for three in ids for each in three).reshape(-1, 3)
        found = np.ones(hashes.shape, np.bool_)
        found[:, 0] = is_in(hashes[:, 0], queries)
        named[np.searchsorted(queries, hashes[found[:, 0], 0])] = True
        if docs is not None:
            found[:, 1:] = is_in(hashes[:, 1:], docs)
        missing = np.flatnonzero(~found.all(axis=1))
        if len(missing) and not count:
            column = int(np.argmin(found[missing[0]]))
            first = f"{data.triples}:{numbers[missing[0]]}: {_no_text(data, ids[missing[0]][column], column)}"
        count += len(missing)
        if count > data.max_bad_rows:
            raise PreflightError(
                f"more than data.max_bad_rows ({data.max_bad_rows:,}) triples have an id without a text; the first: "
                f"{first}. Give the corpus and the topics that the triples were made for"
            )
        yield hashes[:, 1:].ravel()
    if count:
        lines.append(f"triples that have an id without a text: {count:,}; the first: {first}; ignored")


def _no_text(data: DataConfig, text_id: str, column: int) -> str:
    assert data.corpus
    assert data.topics
    if column:
        return f"doc_id {text_id!r} is not in the corpus {data.corpus.path}"
    return f"query_id {text_id!r} is not in the topics {shown_paths(data.topics.path)}"


def _blocks(url: str) -> Iterator[tuple[list[int], list[tuple[str, ...]]]]:
    """The numbers of the lines and the ids on them, some at a time."""
    header = header_bytes(url, ids=True)
    with errors_as(PreflightError, url), open_stream(url) as file:
        lines = islice(enumerate(file, 1), int(header > 0), None)
        parsed = ((number, parse_triple(line)) for number, line in lines)
        valid = ((number, (triple.query, *triple.docs)) for number, triple in parsed if triple is not None)
        while block := list(islice(valid, _BLOCK_TRIPLES)):
            yield [number for number, _ in block], [ids for _, ids in block]
