"""WebAP: answers marked in documents of GOV2 (https://ciir.cs.umass.edu/downloads/WebAP).

gradedText/gov2.query.json is `{"queries": [{"number": "701", "text": "..."}]}`.
gradedText/grade.trectext_patched is XML: a ROOT of DOC with DOCNO, TARGET_QID, ORIGINAL_DOCNO and a
TEXT of spans. A span is an element that is named by its grade and holds SENTENCE elements. A
document that was judged for two queries appears twice, with different DOCNOs.
"""

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from beamrank.errors import DataError, PreflightError
from beamrank.formats.values import RowError, check_id
from beamrank.records import Doc, Topic
from beamrank.storage import files as storage
from beamrank.storage.streams import open_stream
from contrib.papers.collection import Collection, Part, Source, bm25_configs, plain

_GRADES = {"NONE": 0, "FAIR": 1, "GOOD": 2, "EXCEL": 3, "PERFECT": 4}
_FOLDER = "gradedText"


@dataclass(frozen=True)
class _Query:
    number: str
    text: str


@dataclass(frozen=True)
class _Queries:
    queries: tuple[_Query, ...]


class Graded(NamedTuple):
    """A document with its spans: grade and words of each."""

    docno: str
    query_id: str
    spans: list[tuple[int, list[str]]]


def read_webap(folder: str, seed: int = 0) -> Collection:
    """The queries that have a relevant span. Relevant spans are docs; other text is divided into
    docs of drawn lengths.

    The lengths are drawn from the normal distribution with the mean and the standard deviation of
    the relevant spans' numbers of words, rounded, and drawn again where they are below 1.

    Args:
        folder: WebAP, or the folder gradedText in it.
        seed: decides the lengths.

    Raises:
        PreflightError: a file is missing, truncated or not of this format, or an id appears twice;
            it names the place.
    """
    if storage.is_folder(storage.join(folder, _FOLDER)):
        folder = storage.join(folder, _FOLDER)
    source, queries = Source(storage.join(folder, "gov2.query.json")), dict[str, str]()
    for number, query in enumerate(source.read(_Queries).queries, 1):
        source.new_query(f"query {number}", query.number)
        queries[query.number] = plain(query.text)
    text = storage.join(folder, "grade.trectext_patched")
    lengths: list[int] = []
    relevance: dict[str, dict[str, int]] = {}
    for doc in read_graded(text):
        lengths += [len(words) for grade, words in doc.spans if grade and words]
        if doc.query_id in queries:
            judged = {
                f"{doc.docno}-{n}": grade
                for n, (grade, words) in enumerate(doc.spans)
                if grade and words
            }
            relevance.setdefault(doc.query_id, {}).update(judged)
    topics = [
        Topic(query_id, text) for query_id, text in queries.items() if relevance.get(query_id)
    ]
    if not topics:
        raise PreflightError(
            f"{text}: no document has a relevant span for a query of gov2.query.json"
        )
    left_out = Counter({"queries without a relevant span": len(queries) - len(topics)})
    drawn = _lengths(float(np.mean(lengths)), float(np.std(lengths)), seed)
    docs = _docs(text, queries.keys(), drawn, left_out)
    part = Part(topics, {topic.query_id: relevance[topic.query_id] for topic in topics})
    return Collection(docs, [part], bm25_configs("webap", 100), left_out)


def read_graded(url: str) -> Iterator[Graded]:
    """The documents of a file, one after the other.

    Raises:
        PreflightError: it is missing, damaged, truncated, or not of this format; it names the line
            or the document.
    """
    seen: set[str] = set()
    try:
        with open_stream(url) as file:
            for _, element in ElementTree.iterparse(file):
                if element.tag == "DOC":
                    doc = _graded(url, element)
                    if doc.docno in seen:
                        raise PreflightError(f"{url}: the DOCNO {doc.docno!r} appears twice")
                    seen.add(doc.docno)
                    element.clear()
                    yield doc
    except DataError as error:
        raise PreflightError(str(error), **error.of_input) from error
    except ElementTree.ParseError as error:
        raise PreflightError(
            f"{url}, line {error.position[0]}: not valid XML ({error}): the file may be "
            "truncated, fetch it again"
        ) from None


def _graded(url: str, element: ElementTree.Element) -> Graded:
    docno, query_id = (plain(element.findtext(name) or "") for name in ("DOCNO", "TARGET_QID"))
    try:
        check_id(docno)
    except RowError as error:
        raise PreflightError(f"{url}: the document of query {query_id!r} {error}") from None
    if not query_id:
        raise PreflightError(f"{url}: the document {docno!r} has no TARGET_QID")
    spans = element.findall("TEXT/*")
    for span in spans:
        if span.tag not in _GRADES:
            raise PreflightError(
                f"{url}: the span {span.tag!r} of document {docno!r} is not a grade: "
                f"{', '.join(_GRADES)}"
            )
    # The words of two sentences are separate, however the file is laid out.
    return Graded(
        docno, query_id, [(_GRADES[span.tag], " ".join(span.itertext()).split()) for span in spans]
    )


def _lengths(mean: float, deviation: float, seed: int) -> Iterator[int]:
    """Drawn lengths of passages, of at least one word."""
    rng = np.random.default_rng(seed)
    while True:
        length = round(rng.normal(mean, deviation))
        if length >= 1:
            yield length


def _docs(
    url: str, queries: Container[str], lengths: Iterator[int], left_out: Counter[str]
) -> Iterator[Doc]:
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
