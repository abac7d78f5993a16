"""WebAP: answers marked in documents of GOV2 (https://ciir.cs.umass.edu/downloads/WebAP).

gradedText/gov2.query.json is `{"queries": [{"number": "701", "text": "..."}]}`. gradedText/grade.trectext_patched is
XML: a ROOT of DOC with DOCNO, TARGET_QID, ORIGINAL_DOCNO and a TEXT of spans. A span is an element that is named by its
grade and holds SENTENCE elements. A document that was judged for two queries appears twice, with different DOCNOs.
"""

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

import numpy as np

from beamrank.errors import DataError, PreflightError
from beamrank.formats.checks import RowError, check_doc_id
from beamrank.formats.rows import unreadable
from beamrank.records import Doc, Topic
from beamrank.storage import files as storage
from beamrank.storage.streams import open_stream
from contrib.papers.collection import Collection, Part
from contrib.papers.configs import bm25_configs
from contrib.papers.source import Source, plain

_GRADES = {"NONE": 0, "FAIR": 1, "GOOD": 2, "EXCEL": 3, "PERFECT": 4}
_FOLDER = "gradedText"
# ROOT, DOC, TEXT, a grade.
_SPAN_DEPTH = 4
_CHUNK_BYTES = 1 << 20


@dataclass
class Graded:
    """A document with its spans: grade and words of each."""

    docno: str = ""
    query_id: str = ""
    spans: list[tuple[int, list[str]]] = field(default_factory=list)


def read_webap(folder: str, seed: int = 0) -> Collection:
    """The queries that have a relevant span. Relevant spans are docs; other text is divided into docs of drawn lengths.

    The lengths are drawn from the normal distribution with the mean and the standard deviation of the relevant spans'
    numbers of words, rounded, and drawn again where they are below 1.

    Args:
        folder: WebAP, or the folder gradedText in it.
        seed: decides the lengths.

    Raises:
        PreflightError: a file is missing, truncated or not of this format, or an id appears twice; it names the line.
    """
    if storage.is_folder(storage.join(folder, _FOLDER)):
        folder = storage.join(folder, _FOLDER)
    queries = _read_queries(Source(storage.join(folder, "gov2.query.json")))
    text = storage.join(folder, "grade.trectext_patched")
    lengths: list[int] = []
    relevance: dict[str, dict[str, int]] = {}
    for doc in read_graded(text):
        lengths += [len(words) for grade, words in doc.spans if grade and words]
        if doc.query_id in queries:
            judged = {f"{doc.docno}-{n}": grade for n, (grade, words) in enumerate(doc.spans) if grade and words}
            relevance.setdefault(doc.query_id, {}).update(judged)
    topics = [Topic(query_id, text) for query_id, text in queries.items() if relevance.get(query_id)]
    if not topics:
        raise PreflightError(f"{text}: no document has a relevant span for a query of gov2.query.json")
    left_out = Counter({"queries without a relevant span": len(queries) - len(topics)})
    drawn = _lengths(float(np.mean(lengths)), float(np.std(lengths)), seed)
    docs = _docs(text, queries.keys(), drawn, left_out)
    part = Part(topics, {topic.query_id: relevance[topic.query_id] for topic in topics})
    return Collection(docs, [part], bm25_configs("webap", 100), left_out)


def read_graded(url: str) -> Iterator[Graded]:
    """The documents of a file, one after the other.

    Raises:
        PreflightError: it is missing, damaged, truncated, or not of this format; it names the line.
    """
    reader = _Reader(url)
    try:
        with open_stream(url) as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield from reader.read(chunk)
    except DataError as error:
        raise PreflightError(unreadable(url, error)) from error
    yield from reader.read(b"", last=True)


class _Reader:
    """Collects documents from the events of an XML parser, which knows the line."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.buffer_text = True
        self._lines: dict[str, int] = {}
        self._done: list[Graded] = []
        self._doc = Graded()
        self._path: list[str] = []
        self._text: list[str] = []

    def read(self, chunk: bytes, *, last: bool = False) -> list[Graded]:
        """The documents that a piece of the file completes."""
        self._done = []
        try:
            self._parser.Parse(chunk, last)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise PreflightError(
                f"{self._url}, line {error.lineno}: not valid XML ({reason}): the file may be truncated, fetch it again"
            ) from None
        return self._done

    def _refuse(self, reason: str) -> NoReturn:
        raise PreflightError(f"{self._url}, line {self._parser.CurrentLineNumber}: {reason}")

    def _refuse_entity(self, name: str, *_: object) -> None:
        self._refuse(f"it defines the entity {name!r}, which WebAP does not")

    def _start(self, name: str, _attributes: object) -> None:
        if self._path[1:] == ["DOC", "TEXT"] and name not in _GRADES:
            self._refuse(f"the span {name!r} is not a grade: {', '.join(_GRADES)}")
        self._path.append(name)
        if name == "DOC":
            self._doc = Graded()
        if len(self._path) <= _SPAN_DEPTH:
            self._text = []

    def _characters(self, text: str) -> None:
        self._text.append(text)

    def _end(self, name: str) -> None:
        depth = len(self._path)
        self._path.pop()
        if depth > _SPAN_DEPTH:
            # The words of two sentences are separate, however the file is laid out.
            self._text.append(" ")
            return
        words = "".join(self._text).split()
        if depth == _SPAN_DEPTH and self._path[-1] == "TEXT":
            self._doc.spans.append((_GRADES[name], words))
        elif name == "DOCNO":
            self._doc.docno = " ".join(words)
        elif name == "TARGET_QID":
            self._doc.query_id = " ".join(words)
        elif name == "DOC":
            self._finish()

    def _finish(self) -> None:
        doc, line = self._doc, self._parser.CurrentLineNumber
        if not doc.query_id:
            self._refuse(f"the document {doc.docno!r}, which ends here, has no TARGET_QID")
        try:
            check_doc_id(doc.docno)
        except RowError as error:
            self._refuse(f"the document that ends here {error}")
        if doc.docno in self._lines:
            self._refuse(f"the DOCNO {doc.docno!r} appears twice: the first ends on line {self._lines[doc.docno]}")
        self._lines[doc.docno] = line
        self._done.append(doc)


def _lengths(mean: float, deviation: float, seed: int) -> Iterator[int]:
    """Drawn lengths of passages, of at least one word."""
    rng = np.random.default_rng(seed)
    while True:
        length = round(rng.normal(mean, deviation))
        if length >= 1:
            yield length


def _docs(url: str, queries: Container[str], lengths: Iterator[int], left_out: Counter[str]) -> Iterator[Doc]:
    for doc in read_graded(url):
        if doc.query_id not in queries:
            left_out["documents of queries that are not in gov2.query.json"] += 1
            continue
        for number, (grade, words) in enumerate(doc.spans):
            doc_id = f"{doc.docno}-{number}"
            if not words:
                left_out["spans without words"] += 1
            elif grade:
                yield Doc(doc_id, " ".join(words))
            else:
                yield from _divided(doc_id, words, lengths)


def _divided(span_id: str, words: Sequence[str], lengths: Iterator[int]) -> Iterator[Doc]:
    """A span in passages of drawn lengths; the last one is what remains."""
    start = number = 0
    while start < len(words):
        end = start + next(lengths)
        yield Doc(f"{span_id}.{number}", " ".join(words[start:end]))
        start, number = end, number + 1


def _read_queries(source: Source) -> dict[str, str]:
    found = source.json()
    rows = found.get("queries") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not rows:
        source.refuse(1, 'a JSON object {"queries": [...]} is expected')
    queries: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("number", "text")):
            source.refuse(1, f"query {number} is not an object with the texts `number` and `text`")
        query_id = row["number"]
        line = source.line(max(0, source.text.find(f'"{query_id}"')))
        source.check_id(line, query_id, query=True)
        if query_id in queries:
            source.refuse(line, f"the query number {query_id!r} appears twice")
        queries[query_id] = plain(row["text"])
    return queries
