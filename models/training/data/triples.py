"""MS MARCO's training triples: query<TAB>relevant passage<TAB>other passage, one a line; or their
ids.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.decode.base import BYTE_ORDER_MARK
from beamrank.formats.decode.packing import check_text
from beamrank.formats.decode.parquet import batches_of, open_parquet
from beamrank.formats.files import Beginning, shown_paths
from beamrank.formats.topics import read_topics
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64
from beamrank.storage.globs import find
from beamrank.storage.streams import errors_as, open_stream
from models.training.config import DataConfig
from models.training.data.groups import GroupArrays
from models.training.data.texts import EMPTY, MISSING, TextWriter, is_in, normal_text, scan_docs

BLOCK = 1000
"""Triples that are shuffled together, and lines among which few may be broken."""
_READ_TOGETHER = 100 * BLOCK
# Added to the hashes of the three ids of a triple: a query and a doc may have the same id.
_QUERY = np.array([0x9E3779B97F4A7C15, 0, 0], np.uint64)
# One of so many is read beyond those that are needed, because some are left out.
_SPARE = 100
_ORDER, _TEXTS = "query<TAB>relevant passage<TAB>other passage", ("string", "large_string")
Columns: TypeAlias = tuple[str, str, str]
Triples: TypeAlias = NDArray[np.int32]
"""int32[n, 3], the rows of token ids of queries, relevant passages and other passages."""

_NAME = re.compile(
    r"(?:(?:quer(?:y|ies)|questions?|anchors?|topics?|sentences?|q|qid|pid|did|documents?|docids?|docnos?|docs?|passages?"
    r"|texts?|contents?|positives?|negatives?|pos|neg|(?:non[ "
    r"_.-]*|ir)?relevant|others?|hard|labels?|relevance|scores?"
    r"|ids?|titles?|answers?|responses?|contexts?|premise|hypothesis|entailment|contradiction|good|bad|(?:in)?correct"
    r"|wrong|\d)[ _.-]*)++"
)
# One word of ASCII; with a digit in it, or a truth value.
_WORD, _NUMBER_OR_ID = (
    re.compile(r"[!-~]+"),
    re.compile(r"(?=.*\d)[!-~]+|true|false", re.IGNORECASE),
)
# What the name of a column says that it holds, the first that fits; "relevance" holds "relevant".
_MEANINGS = {
    "label": re.compile("label|relevance|score"),
    "other": re.compile("neg|non|irrel|hard|other|bad|incorrect|wrong|contradict"),
    "relevant": re.compile("pos|rel|good|correct|entail"),
    "query": re.compile("quer|question|anchor|premise|topic|^q"),
}


def store_triples(
    data: DataConfig, writer: TextWriter, needed: int | None
) -> tuple[GroupArrays, list[str]]:
    """Reads the first triples of a file, as many as are needed, or all, and writes the token ids of
    their texts.

    Lines without exactly three columns, with invalid UTF-8, an empty text or the same passage twice
    are ignored and counted: 2,579 of triples.train.small.tsv. Returns a group for each triple, and
    lines to report.
    """
    file = _File(data, needed)
    lines = [f"the first line of {file.url} is a header, and is left out"] if file.header else []
    found = (
        _rows_of_texts(file, writer)
        if data.corpus is None
        else _rows_of_ids(data, file, writer, lines)
    )
    texts = writer.hashes()
    query, relevant, other = texts[found].T
    triples = found[(query != EMPTY) & (relevant != EMPTY) & (other != EMPTY) & (relevant != other)]
    unusable = file.broken + len(found) - len(triples)
    if not len(triples):
        problem = (
            f"{file.url} holds no triples: none of its {file.read:,} lines is "
            f"{file.expected} of two texts"
        )
        raise PreflightError("; ".join([problem, *lines]))
    if unusable:
        lines.append(
            f"lines of {file.url} that are no triple, have an empty text or one text twice: "
            f"{unusable:,}; ignored"
        )
    triples = triples[:needed]
    marks = np.broadcast_to([True, False], (len(triples), 2))
    return GroupArrays(triples[:, 0], triples[:, 1:], marks, np.unique(texts[triples[:, 0]])), lines


class _File:
    """A file of triples: how many of its lines were read, and how many of these are broken."""

    def __init__(self, data: DataConfig, needed: int | None) -> None:
        self.url, self._max_bad_rows, ids = (
            data.triples or "",
            data.max_bad_rows,
            data.corpus is not None,
        )
        if not storage.exists(self.url):
            raise PreflightError(f"data.triples: {self.url} does not exist")
        self.expected = "query_id<TAB>relevant doc_id<TAB>other doc_id" if ids else _ORDER
        self.header = has_header(self.url, ids=ids)
        self._limit = None if needed is None else needed + needed // _SPARE + BLOCK
        self.read = self.broken = 0

    def blocks(self) -> Iterator[list[Columns]]:
        """The valid lines up to the limit."""
        lines = islice(self.lines(), self._limit)
        while block := [columns for _, columns in islice(lines, _READ_TOGETHER)]:
            yield block

    def lines(self) -> Iterator[tuple[int, Columns]]:
        """The valid lines, each with its number; PreflightError if too many of a thousand are
        broken.
        """
        lines = islice(enumerate(_read_lines(self.url), 1), int(self.header), None)
        while block := list(islice(lines, BLOCK)):
            parsed = [(number, parse_columns(line)) for number, line in block]
            broken = [(number, problem) for number, problem in parsed if isinstance(problem, str)]
            if len(broken) > self._max_bad_rows:
                raise PreflightError(
                    f"{self.url}: {len(broken):,} of {len(block):,} lines are not "
                    f"{self.expected}, and data.max_bad_rows is {self._max_bad_rows:,}; the first "
                    f"is line {broken[0][0]:,}: {broken[0][1]}. Fix the file, or raise "
                    "data.max_bad_rows"
                )
            self.read, self.broken = self.read + len(block), self.broken + len(broken)
            yield from (
                (number, columns) for number, columns in parsed if not isinstance(columns, str)
            )


def _read_lines(url: str) -> Iterator[bytes]:
    """The lines of a file; of Parquet, or a folder of it, the columns' names, then one for each
    negative of a row.
    """
    for number, each in enumerate(find(url)):
        beginning = Beginning(each)
        if not beginning.is_parquet:
            check_text(each, beginning.content)
            with errors_as(PreflightError, each), open_stream(each) as file:
                yield from file
            continue
        with errors_as(PreflightError, each), open_parquet(each) as table:
            names = [
                one.name
                for one in table.schema_arrow
                if str(one.type) in _TEXTS and one.name != "query_id"
            ]
            if len(names) < 3 or not is_header(names[:3]):
                raise PreflightError(
                    f"{each}: its texts ({', '.join(names)}) are not anchor, positive, negative"
                )
            yield from ["\t".join(names[:3]).encode()][number:]
            for row in (
                row for some in batches_of(table, names) for row in zip(*some.columns, strict=True)
            ):
                query, positive, *others = (" ".join((text.as_py() or "").split()) for text in row)
                yield from (f"{query}\t{positive}\t{other}".encode() for other in others)


def parse_columns(line: bytes) -> Columns | str:
    """The three columns of a line, or why it is no triple."""
    try:
        columns = tuple(
            column.strip()
            for column in line.removeprefix(BYTE_ORDER_MARK).decode("utf-8").split("\t")
        )
    except UnicodeDecodeError:
        return "it is not UTF-8"
    found = sum(map(bool, columns))
    return (
        columns
        if len(columns) == found == 3
        else f"it has {found} columns with a text, of {len(columns)}"
    )


def _rows_of_texts(file: _File, writer: TextWriter) -> Triples:
    """Writes each distinct text once."""
    rows: dict[int, int] = {}
    found = [np.zeros((0, 3), np.int32)]
    for block in file.blocks():
        texts = [text for columns in block for text in columns]
        hashes = hashes64(texts).tolist()
        new = {each: text for each, text in zip(hashes, texts, strict=True) if each not in rows}
        rows.update(zip(new, range(len(rows), len(rows) + len(new)), strict=True))
        writer.add(list(new.values()))
        found.append(np.array([rows[each] for each in hashes], np.int32).reshape(-1, 3))
    return np.concatenate(found)


def _rows_of_ids(data: DataConfig, file: _File, writer: TextWriter, lines: list[str]) -> Triples:
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
    for block in file.blocks():
        ids.frombytes(hashes64(text_id for columns in block for text_id in columns).tobytes())
    hashes = np.frombuffer(ids, np.uint64).reshape(-1, 3) ^ _QUERY
    # Before the corpus is read, which takes longer.
    _without_text(data, file, is_in(hashes[:, :1], np.sort(queries)))
    docs = np.unique(hashes[:, 1:])
    rows, corpus_lines = scan_docs(data.corpus, docs, data.max_bad_rows, writer.add, None)
    found = np.concatenate([queries, docs[rows != MISSING]])
    order = np.argsort(found)
    has_text = is_in(hashes, found[order])
    lines += corpus_lines + _without_text(data, file, has_text)
    all_rows = np.concatenate([np.arange(first_doc), rows[rows != MISSING] + first_doc]).astype(
        np.int32
    )[order]
    return np.asarray(all_rows[np.searchsorted(found[order], hashes[has_text.all(axis=1)])])


def _without_text(data: DataConfig, file: _File, has_text: NDArray[np.bool_]) -> list[str]:
    """A line about triples with an id that has no text; `has_text` is bool[triples, columns]."""
    assert data.corpus
    assert data.topics
    missing = np.flatnonzero(~has_text.all(axis=1)).tolist()
    if not missing:
        return []
    line, columns = next(islice(_File(data, None).lines(), missing[0], None))
    column = int(np.argmin(has_text[missing[0]]))
    files = f"corpus {data.corpus.path}" if column else f"topics {shown_paths(data.topics.path)}"
    kind = "doc_id" if column else "query_id"
    first = f"the first: {file.url}:{line}: {kind} {columns[column]!r} is not in the {files}"
    if len(missing) > data.max_bad_rows:
        raise PreflightError(
            f"{len(missing):,} triples have an id without a text, and data.max_bad_rows is "
            f"{data.max_bad_rows:,}; {first}. Give the corpus and the topics that the triples "
            "were made for"
        )
    return [f"triples that have an id without a text: {len(missing):,}; {first}; ignored"]


def has_header(url: str, *, ids: bool) -> bool:
    """Checks the columns of a file, of ids or of texts, and their order; returns whether its first
    line is a header.
    """
    lines = list(islice(_read_lines(url), BLOCK))
    rows = [columns for columns in map(parse_columns, lines) if not isinstance(columns, str)]
    header = (
        len(rows) > 1
        and parse_columns(lines[0]) == rows[0]
        and is_header(rows[0])
        and not is_header(rows[1])
    )
    # Ids such as q1 and doc12 look like names of columns.
    header = header and not (ids and any(map(str.isdigit, "".join(rows[0]))))
    if rows:
        _check_columns(url, list(zip(*(rows[1:] if header else rows), strict=True)), ids)
    named = zip((1, 2, 3), rows[0], ("query", "relevant", "other"), strict=True) if header else ()
    for number, name, expected in named:
        meaning = next(
            (each for each, words in _MEANINGS.items() if words.search(normal_text(name))), expected
        )
        if meaning != expected:
            raise PreflightError(
                f"{url}: column {number} is {name!r} by the header, and is read as the {expected} "
                f"text of a triple: {_ORDER}. The model would learn something else: bring the "
                "columns into this order"
            )
    return header


def is_header(columns: Sequence[str]) -> bool:
    """Whether each column is a name, such as `query`, `pos_id` or `negative passage`."""
    return all(
        _NAME.fullmatch(normal_text(column)) and not column.isdecimal() for column in columns
    )


def _check_columns(url: str, columns: Sequence[Sequence[str]], ids: bool) -> None:
    """Triples of ids have no column of labels; in triples of texts no column has only numbers or
    words with digits.
    """
    odd = [
        place
        for place, values in enumerate(columns)
        if all(_NUMBER_OR_ID.fullmatch(text) for text in values)
    ]
    if ids:
        odd = [2] if set(columns[2]) <= {"0", "1"} else []
    elif all(_WORD.fullmatch(text) for values in columns for text in values):
        odd = [0, 1, 2]
    if odd:
        shown = ", ".join(sorted(set(columns[odd[-1]]))[:3])
        numbers = " and ".join(str(place + 1) for place in odd)
        raise PreflightError(
            f"{url}: column {numbers} holds labels, scores or ids ({shown}) in the first "
            f"{len(columns[0]):,} lines, and a triple has {'ids' if ids else 'texts'}: {_ORDER}. "
            "Ids need data.corpus and data.topics; labelled pairs are given as data.qrels, with "
            "data.corpus, data.topics and a data.run of candidates"
        )
