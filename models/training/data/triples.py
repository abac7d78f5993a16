"""Triples of a query, a relevant passage and another one, or of their ids, such as MS MARCO's."""

import math
import re
import sys
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.files import InputFile, input_files, shown_paths
from beamrank.formats.reader import TableReader
from beamrank.formats.rejects import Rejects
from beamrank.formats.schemas import ID_TRIPLES, LABELLED_PAIRS, TRIPLES, Column, Schema, plain_name
from beamrank.formats.topics import read_topics
from beamrank.formats.values import Text
from beamrank.storage.documents import hashes64
from models.training.config import DataConfig
from models.training.data.groups import GroupArrays
from models.training.data.texts import (
    EMPTY,
    MISSING,
    Hashes,
    TextWriter,
    distinct,
    is_in,
    places_in,
    scan_docs,
)

BLOCK = 1000
"""Triples that are shuffled together, and rows among which few may be broken."""
# Added to the hashes of the three ids of a triple: a query and a doc may have the same id.
_QUERY = np.array([0x9E3779B97F4A7C15, 0, 0], np.uint64)
# It reads one more for so many that it needs, because some are left out.
_SPARE = 100
Triples: TypeAlias = NDArray[np.int32]
"""int32[n, 3], the rows of token ids of queries, relevant passages and other passages."""

_NUMBER = re.compile(r"_?\d+$")
# In a column of labels so large a share of the values are labels.
_SHARE = 0.9
_LABELS = (
    "((partially|somewhat|marginally|fairly|highly|perfectly) )?relevant"
    "|(ir|non[ _-]?|not[ _-]?)relevant|yes|no|true|false|pos(itive)?|neg(ative)?|(in)?correct"
    "|perfect|excellent|good|fair|bad|entailment|neutral|contradiction"
    "|label|relevance|rel|score|grade|judgment|n/?a|nan|null|none|unknown|unjudged|[-?]"
)
# Of ids, only grades are labels; of texts, each word with a digit.
_GRADE = rf"(?i)^({_LABELS}|-?[0-9]([.][0-9]+)?)$"
_LABEL_OR_ID = rf"(?i)^({_LABELS}|[!-~]*[0-9][!-~]*)$"
_WORD = "^[!-~]+$"


def open_triples(
    file: InputFile, schema: Schema = TRIPLES, rejects: Rejects | None = None
) -> TableReader:
    """Opens a file of triples; one with several negatives has a column for each."""
    rows = TableReader(file, schema, rejects=rejects)
    stem = _NUMBER.sub("", plain_name(rows.names.get("negative", "")))
    names = map(plain_name, rows.decoder.names)
    negatives = [name for name in names if _NUMBER.sub("", name) == stem]
    if len(negatives) < 2 or schema is ID_TRIPLES:
        return rows
    several = {name: Column(((name,),), Text(or_empty=True)) for name in negatives}
    columns = {name: schema.columns[name] for name in ("query", "positive")} | several
    schema = replace(schema, columns=columns, layouts=(tuple(columns),))
    return TableReader(file, schema, rejects=rejects)


def blocks_of(file: TableReader, start: int = 0, end: int = 0) -> Iterator[pa.Table]:
    """The triples in a range of a file: `query`, `positive`, `negative` and the `place` of the row.

    Raises:
        PreflightError: the file cannot be read, or holds labels where a triple has a text or an id.
    """
    last: list[pa.Table] = []
    for batch in file.batches(start, end):
        rows = _triples(batch)
        unchecked = pa.concat_tables([*last, rows])
        for at in range(0, len(unchecked) - BLOCK, BLOCK):
            _check_labels(file, unchecked[at : at + BLOCK])
        last = [unchecked[-BLOCK:]]
        yield rows
    for rows in filter(len, last):
        _check_labels(file, rows)


def _triples(batch: pa.RecordBatch) -> pa.Table:
    *columns, places = batch.columns
    query, positive, *others = (pc.utf8_trim_whitespace(column) for column in columns)
    rows = np.arange(len(batch)).repeat(len(others))
    order = np.arange(len(rows)).reshape(len(others), -1).T.ravel()
    texts = [query.take(rows), positive.take(rows), pa.concat_arrays(others).take(order)]
    return pa.table([*texts, places.take(rows)], ["query", "positive", "negative", "place"])


def _check_labels(file: TableReader, rows: pa.Table) -> None:
    """Triples of ids have no column of grades; in triples of texts no column has only labels, ids
    or numbers, and not each has only words.
    """
    *columns, places = rows.columns

    def like(pattern: str) -> list[int]:
        matches = [pc.match_substring_regex(column, pattern) for column in columns]
        return [at for at, one in enumerate(matches) if pc.mean(one).as_py() >= _SHARE]

    if file.schema is ID_TRIPLES:
        docs, others = (pc.count_distinct(column).as_py() for column in columns[1:])
        grades = like(_GRADE)
        odd = [2] if 2 in grades and (1 not in grades or 2 * others < docs) else []
    else:
        odd = words if len(words := like(_WORD)) == len(columns) else like(_LABEL_OR_ID)
    if odd:
        shown = ", ".join(sorted(set(columns[odd[-1]].to_pylist()))[:3])
        numbers = " and ".join(str(at + 1) for at in odd)
        raise PreflightError(
            f"{file.url}: column {numbers} holds labels, scores or ids ({shown}) in the "
            f"{len(rows):,} rows up to {file.decoder.noun} {places[-1]}, and is no part of a "
            f"triple {file.schema.needed}. Ids need `data.corpus` and `data.topics`. "
            f"{LABELLED_PAIRS}",
            kind="labels",
            file=file.url,
        )


class _Files:
    """The files of `data.triples`.

    Attributes:
        files: the files.
        url: of the one that is read.
        broken: how many rows are no triples.
    """

    def __init__(self, data: DataConfig, needed: int) -> None:
        schema = TRIPLES if data.corpus is None else ID_TRIPLES
        self.url, self._max_bad_rows, self.broken = data.triples or "", data.max_bad_rows, 0
        self._room = needed + needed // _SPARE + BLOCK
        self._bad = Rejects("triples")
        self.files = [
            open_triples(file, schema, self._bad) for file in input_files(self.url, schema.what)
        ]

    def blocks(self) -> Iterator[pa.Table]:
        """The triples up to the limit; PreflightError if too many rows of a block are broken."""
        for file in self.files:
            self.url = file.url
            for rows in blocks_of(file):
                self._check(file, len(rows))
                yield rows[: self._room]
                self._room -= len(rows)
                if self._room <= 0:
                    return
            self._check(file, 0)

    def _check(self, file: TableReader, triples: int) -> None:
        bad = self._bad
        bad.limit = self._max_bad_rows * math.ceil((triples + bad.count) / BLOCK)
        file.check()
        self.broken, bad.count = self.broken + bad.count, 0


def texts_of(rows: pa.Table) -> list[str]:
    """The three texts or ids of each triple, one triple after the other."""
    columns = (rows[name].to_pylist() for name in ("query", "positive", "negative"))
    return [text for row in zip(*columns, strict=True) for text in row]


def store_triples(
    data: DataConfig, writer: TextWriter, needed: int | None
) -> tuple[GroupArrays, list[str]]:
    """Reads the first triples of a file, as many as are needed, or all, and writes the token ids of
    their texts.

    Rows that are no triple, have an empty text or the same passage twice are ignored and counted:
    2,579 of triples.train.small.tsv. Returns a group for each triple, and lines to report.
    """
    files = _Files(data, needed or sys.maxsize)
    names = ", ".join(files.files[0].names.values())
    lines = [f"the columns of {data.triples} that are read: {names}"] if names else []
    rows = (
        _rows_of_texts(files, writer)
        if data.corpus is None
        else _rows_of_ids(data, files, writer, lines)
    )
    keys = writer.keys()
    triples = rows[are_usable(distinct(keys)[rows])]
    if unusable := files.broken + len(rows) - len(triples):
        lines.append(
            f"rows of {data.triples} that are no triple, have an empty text or one text twice: "
            f"{unusable:,}; ignored"
        )
    if not len(triples):
        raise PreflightError("; ".join([f"{data.triples} holds no triples", *lines]))
    triples = triples[:needed]
    marks = np.broadcast_to([True, False], (len(triples), 2))
    return GroupArrays(triples[:, 0], triples[:, 1:], marks, np.unique(keys[triples[:, 0]])), lines


def are_usable(texts: Hashes) -> NDArray[np.bool_]:
    """bool[n]: whether the texts of triples, uint64[n, 3], are full, and their passages differ."""
    return np.asarray((texts != EMPTY).all(axis=1) & (texts[:, 1] != texts[:, 2]))


def _rows_of_texts(files: _Files, writer: TextWriter) -> Triples:
    """Writes each distinct text once."""
    rows: dict[int, int] = {}
    triples = [np.zeros((0, 3), np.int32)]
    for texts in map(texts_of, files.blocks()):
        hashes = hashes64(texts).tolist()
        new = {
            text_hash: text
            for text_hash, text in zip(hashes, texts, strict=True)
            if text_hash not in rows
        }
        rows.update(zip(new, range(len(rows), len(rows) + len(new)), strict=True))
        writer.add(list(new.values()))
        triples.append(np.array([rows[text_hash] for text_hash in hashes], np.int32).reshape(-1, 3))
    return np.concatenate(triples)


def _rows_of_ids(data: DataConfig, files: _Files, writer: TextWriter, lines: list[str]) -> Triples:
    """Writes the texts of all topics, and of the docs that are named; triples with an id without a
    text are left out.

    Adds lines about the corpus and these triples; more of them than `data.max_bad_rows` are a
    PreflightError.
    """
    assert data.corpus
    assert data.topics
    topics = read_topics(data.topics)
    writer.add([topic.text for topic in topics])
    queries, first_doc = hashes64(topics.query_ids.to_pylist()) ^ _QUERY[0], writer.rows
    ids = array("Q")
    for texts in map(texts_of, files.blocks()):
        ids.frombytes(hashes64(texts).tobytes())
    hashes = np.frombuffer(ids, np.uint64).reshape(-1, 3) ^ _QUERY
    # Before the corpus is read, which takes longer.
    _without_text(data, is_in(hashes[:, :1], np.sort(queries)))
    docs = np.unique(hashes[:, 1:])
    places, corpus_lines = scan_docs(data.corpus, docs, data.max_bad_rows, writer.add, None)
    has_text = places != MISSING
    rows = np.concatenate([np.arange(first_doc), places[has_text] + first_doc])
    triples = places_in(hashes, np.concatenate([queries, docs[has_text]]))
    lines += corpus_lines + _without_text(data, triples != MISSING)
    return np.asarray(rows[triples[(triples != MISSING).all(axis=1)]], np.int32)


def _without_text(data: DataConfig, has_text: NDArray[np.bool_]) -> list[str]:
    """A line about triples with an id that has no text; `has_text` is bool[triples, columns]."""
    assert data.corpus
    assert data.topics
    missing = np.flatnonzero(~has_text.all(axis=1)).tolist()
    if not missing:
        return []
    again = _Files(data, sys.maxsize)
    triples = (row for rows in again.blocks() for row in rows.to_pylist())
    *ids, place = next(islice(triples, missing[0], None)).values()
    column = int(np.argmin(has_text[missing[0]]))
    files = f"corpus {data.corpus.path}" if column else f"topics {shown_paths(data.topics.path)}"
    kind = "doc_id" if column else "query_id"
    first = f"the first: {again.url}:{place}: {kind} {ids[column]!r} is not in the {files}"
    if len(missing) > data.max_bad_rows:
        raise PreflightError(
            f"{len(missing):,} triples have an id without a text, and data.max_bad_rows is "
            f"{data.max_bad_rows:,}; {first}. Give the corpus and the topics that the triples "
            "were made for"
        )
    return [f"triples that have an id without a text: {len(missing):,}; {first}; ignored"]
