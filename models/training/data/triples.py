"""MS MARCO's training triples: query<TAB>relevant passage<TAB>other passage, one a line; or their ids."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.files import shown_paths
from beamrank.formats.topics import read_topics
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64
from beamrank.storage.local_files import map_array
from beamrank.storage.streams import errors_as, open_stream
from models.training.config import DataConfig
from models.training.data.groups import Group, Position, shuffled
from models.training.data.texts import EMPTY, MISSING, Hashes, TextWriter, is_in, scan_docs
from models.training.data.triple_columns import Columns, has_header, parse_columns

BLOCK = 1000
"""Triples that are shuffled together."""
_READ_TOGETHER = 100 * BLOCK
# Added to the hashes of the three ids of a triple: a query and a doc may have the same id.
_QUERY = np.array([0x9E3779B97F4A7C15, 0, 0], np.uint64)
# One of so many is read beyond those that are needed, because some are left out.
_SPARE = 100
_TRIPLES, _QUERIES = "triples.npy", "triples-queries.npy"
_TEXTS = "query<TAB>relevant passage<TAB>other passage"
_IDS = "query_id<TAB>relevant doc_id<TAB>other doc_id"

Triples = NDArray[np.int32]
"""int32[n, 3], the rows of token ids of queries, relevant passages and other passages."""


class TriplesSource:
    """Triples in the order of the file, shuffled within blocks of 1000 as in the code of 2019."""

    docs_per_group = 2

    def __init__(self, folder: Path, seed: int, lines: Sequence[str], needed: int | None) -> None:
        """Maps the triples in a folder into memory, which were written by `store_triples`."""
        self._triples: Triples = map_array(folder / _TRIPLES)
        self._seed, self.lines, self.queries = seed, list(lines), map_array(folder / _QUERIES)
        self.groups_per_epoch = None if needed == len(self._triples) else len(self._triples)

    def stream(self, position: Position) -> Iterator[tuple[Group[int], Position]]:
        """See `Source`."""
        for epoch, place, number in shuffled(len(self._triples), self._seed, position, BLOCK):
            query, *docs = self._triples[number].tolist()
            yield Group(query, tuple(docs), (True, False)), {"epoch": epoch, "index": place + 1}


def store_triples(data: DataConfig, writer: TextWriter, folder: Path, needed: int | None) -> list[str]:
    """Writes the first triples of a file, as many as are needed, or all, and the token ids of their texts to a folder.

    Lines without exactly three columns, with invalid UTF-8, an empty text or the same passage twice are ignored and
    counted. (2,579 such lines were reported of triples.train.small.tsv.)

    Returns:
        Lines to report.

    Raises:
        PreflightError: the file cannot be read, has no triple, too many broken lines or other columns, or ids without
            texts.
    """
    url, has_ids = data.triples or "", data.corpus is not None
    if not storage.exists(url):
        raise PreflightError(f"data.triples: {url} does not exist")
    header = has_header(url, ids=has_ids)
    file = _File(url, data.max_bad_rows, _IDS if has_ids else _TEXTS, int(header))
    lines = [f"the first line of {url} is a header, and is left out"] if header else []
    limit = None if needed is None else needed + needed // _SPARE + BLOCK
    found = _rows_of_ids(data, file, limit, writer, lines) if has_ids else _rows_of_texts(file, limit, writer)
    writer.close()
    texts = writer.hashes()
    query, relevant, other = texts[found].T
    triples = found[(query != EMPTY) & (relevant != EMPTY) & (other != EMPTY) & (relevant != other)]
    unusable = file.broken + len(found) - len(triples)
    if not len(triples):
        problem = f"{url} holds no triples: none of its {file.read:,} lines is {file.expected} of two different texts"
        raise PreflightError("; ".join([problem, *lines]))
    lines += _contradictions(texts[triples[:BLOCK]])
    if unusable:
        lines.append(f"lines of {url} that are no triple, have an empty text or one text twice: {unusable:,}; ignored")
    np.save(folder / _TRIPLES, triples[:needed])
    np.save(folder / _QUERIES, np.unique(texts[triples[:needed, 0]]))
    return lines


@dataclass
class _File:
    """A file of triples: how many of its lines were read, and how many of these have other columns."""

    url: str
    max_bad_rows: int
    expected: str
    header: int
    read: int = 0
    broken: int = 0

    def blocks(self, limit: int | None) -> Iterator[list[tuple[int, Columns]]]:
        """Yields up to `limit` valid lines in blocks, each with its number.

        Raises:
            PreflightError: too many of a thousand lines are broken.
        """
        lines = islice(self._lines(), limit)
        while block := list(islice(lines, _READ_TOGETHER)):
            yield block

    def _lines(self) -> Iterator[tuple[int, Columns]]:
        with errors_as(PreflightError, self.url), open_stream(self.url) as file:
            lines = islice(enumerate(file, 1), self.header, None)
            while block := list(islice(lines, BLOCK)):
                parsed = [(number, parse_columns(line)) for number, line in block]
                broken = [at for at, (_, columns) in enumerate(parsed) if columns is None]
                if len(broken) > self.max_bad_rows:
                    number, line = block[broken[0]]
                    raise PreflightError(
                        f"{self.url}: {len(broken):,} of {len(block):,} lines are not {self.expected}, and "
                        f"data.max_bad_rows is {self.max_bad_rows:,}; the first is line {number:,}: {_problem(line)}. "
                        "Fix the file, or raise data.max_bad_rows"
                    )
                self.read, self.broken = self.read + len(block), self.broken + len(broken)
                yield from ((number, columns) for number, columns in parsed if columns is not None)


def _problem(line: bytes) -> str:
    """Why a line is no triple."""
    try:
        columns = line.decode("utf-8").split("\t")
    except UnicodeDecodeError:
        return "it is not UTF-8"
    return "a column is empty" if len(columns) == 3 else f"it has {len(columns)} columns"


def _rows_of_texts(file: _File, limit: int | None, writer: TextWriter) -> Triples:
    """Writes each distinct text once."""
    rows: dict[int, int] = {}
    found = [np.zeros((0, 3), np.int32)]
    for block in file.blocks(limit):
        texts = [text for _, columns in block for text in columns]
        hashes = hashes64(texts).tolist()
        new = {each: text for each, text in zip(hashes, texts, strict=True) if each not in rows}
        rows.update(zip(new, range(len(rows), len(rows) + len(new)), strict=True))
        writer.add(list(new.values()))
        found.append(np.array([rows[each] for each in hashes], np.int32).reshape(-1, 3))
    return np.concatenate(found)


def _rows_of_ids(data: DataConfig, file: _File, limit: int | None, writer: TextWriter, lines: list[str]) -> Triples:
    """Writes the texts of all topics, and of the docs that are named; triples with an id without a text are left out.

    Adds lines about the corpus and these triples; more of them than `data.max_bad_rows` are a PreflightError.
    """
    assert data.corpus
    assert data.topics
    topics = read_topics(data.topics)
    writer.add([topic.text for topic in topics])
    queries, first_doc = hashes64(topic.query_id for topic in topics) ^ _QUERY[0], writer.rows
    ids = array("Q")
    for block in file.blocks(limit):
        ids.frombytes(hashes64(text_id for _, columns in block for text_id in columns).tobytes())
    hashes = np.frombuffer(ids, np.uint64).reshape(-1, 3) ^ _QUERY
    # Before the corpus is read, which takes longer.
    _without_text(data, file, is_in(hashes[:, :1], np.sort(queries)))
    docs = np.unique(hashes[:, 1:])
    rows, corpus_lines = scan_docs(data.corpus, docs, data.max_bad_rows, writer.add, None)
    found = np.concatenate([queries, docs[rows != MISSING]])
    order = np.argsort(found)
    has_text = is_in(hashes, found[order])
    lines += corpus_lines + _without_text(data, file, has_text)
    all_rows = np.concatenate([np.arange(first_doc), rows[rows != MISSING] + first_doc]).astype(np.int32)[order]
    return np.asarray(all_rows[np.searchsorted(found[order], hashes[has_text.all(axis=1)])])


def _without_text(data: DataConfig, file: _File, has_text: NDArray[np.bool_]) -> list[str]:
    """A line about triples with an id that has no text; `has_text` is bool[triples, columns]."""
    assert data.corpus
    assert data.topics
    missing = np.flatnonzero(~has_text.all(axis=1)).tolist()
    if not missing:
        return []
    line, columns = next(islice(replace(file)._lines(), missing[0], None))
    column = int(np.argmin(has_text[missing[0]]))
    files = f"corpus {data.corpus.path}" if column else f"topics {shown_paths(data.topics.path)}"
    kind = "doc_id" if column else "query_id"
    first = f"the first: {data.triples}:{line}: {kind} {columns[column]!r} is not in the {files}"
    if len(missing) > data.max_bad_rows:
        raise PreflightError(
            f"{len(missing):,} triples have an id without a text, and data.max_bad_rows is {data.max_bad_rows:,}; "
            f"{first}. Give the corpus and the topics that the triples were made for"
        )
    return [f"triples that have an id without a text: {len(missing):,}; {first}; ignored"]


def _contradictions(texts: Hashes) -> list[str]:
    """A line about triples whose other passage is relevant to the same query in another triple."""
    relevant = {(query, doc) for query, doc, _ in texts.tolist()}
    count = sum((query, other) in relevant for query, _, other in texts.tolist())
    if not count:
        return []
    return [
        f"triples whose other passage is relevant to the same query in another triple: {count:,} of the first "
        f"{len(texts):,}; the model learns both"
    ]
