"""TREC CAR's files: paragraphs, pages and outlines in CBOR (`car_cbor.py`); ids of sections, alone or in qrels."""

import io
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import unquote

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, parse_rows, whole_file
from beamrank.formats.guess import Beginning, Look
from beamrank.formats.row_checks import RowError
from beamrank.formats.topics.registry import TopicsFormat, split_lines
from beamrank.storage.streams import open_stream
from contrib.papers.car_cbor import (
    OUTLINES,
    PAGES,
    PARAGRAPHS,
    Kind,
    page_paragraphs,
    parse_paragraph,
    read_header,
    read_items,
    section_paths,
)

_BATCH_ITEMS = 1024
_QRELS_COLUMNS = ("query_id", "iteration", "doc_id", "relevance")

# A paragraph, or why its page has none, with the number of the item of the file.
_Rows = Iterator[tuple[int, Any]]


def _check(unit: CorpusUnit, kind: Kind) -> None:
    if unit.fields is not None:
        raise PreflightError(f"the paragraphs of TREC CAR have no named fields: leave `fields` out for {unit.url}")
    with open_stream(unit.url) as file:
        read_header(file, unit.url, kind)


def _check_paragraphs(unit: CorpusUnit) -> None:
    _check(unit, PARAGRAPHS)


def _check_pages(unit: CorpusUnit) -> None:
    _check(unit, PAGES)


def _read(unit: CorpusUnit, kind: Kind, rows_of: Callable[[Iterator[Any]], _Rows]) -> Iterator[DocBatch]:
    with open_stream(unit.url) as file:
        rows = rows_of(read_items(file, unit.url, kind))
        while batch := list(islice(rows, _BATCH_ITEMS)):
            positions, paragraphs = zip(*batch, strict=True)
            yield parse_rows(unit, positions, paragraphs, _parse_paragraph)


def _read_paragraphs(unit: CorpusUnit) -> Iterator[DocBatch]:
    return _read(unit, PARAGRAPHS, enumerate)


def _read_pages(unit: CorpusUnit) -> Iterator[DocBatch]:
    return _read(unit, PAGES, _in_pages)


def _in_pages(pages: Iterator[Any]) -> _Rows:
    """The paragraphs of pages. An id is the hash of a text, so one that appears again is the same doc."""
    seen: set[bytes] = set()
    for number, page in enumerate(pages):
        try:
            for paragraph in page_paragraphs(page):
                match paragraph:
                    case [0, bytes(identifier), _] if identifier in seen:
                        continue
                    case [0, bytes(identifier), _]:
                        seen.add(identifier)
                yield number, paragraph
        except RowError as error:
            yield number, error


def _parse_paragraph(paragraph: Any) -> tuple[str, str]:
    if isinstance(paragraph, RowError):
        raise paragraph
    return parse_paragraph(paragraph)


def _place_paragraph(unit: CorpusUnit, position: int) -> str:
    return f"{unit.url} at paragraph {position} (from 0)"


def _place_page(unit: CorpusUnit, position: int) -> str:
    return f"{unit.url} at page {position} (from 0)"


def _outline_sections(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The id of each section, with the number of its outline."""
    for number, outline in enumerate(read_items(io.BytesIO(content), "the file", OUTLINES), 1):
        try:
            yield from ((number, path) for path in section_paths(outline))
        except RowError as error:
            raise DataError(f"item {number} of the file {error}") from error


def _parse_section(line: str) -> tuple[str, str]:
    """The line as the id; its text without a leading `enwiki:`, percent-decoded, with each `/` a space."""
    try:
        text = unquote(line.removeprefix("enwiki:"), errors="strict")
    except UnicodeDecodeError as error:
        raise RowError(f"{line!r} is not UTF-8 when percent-decoded") from error
    return line, text.replace("/", " ")


def _parse_section_as_2019(line: str) -> tuple[str, str]:
    """The line as the id; its text as the code of 2019 makes it: `%20` is the only escape that is decoded."""
    return line, line.replace("enwiki:", "").replace("%20", " ").replace("/", " ")


def _judged_topics(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of qrels, without comments and repetitions of the query_id of the line before."""
    before: bytes | None = None
    for number, line in split_lines(content):
        query_id = line.split(None, 1)[:1]
        if query_id and query_id[0] != before and not line.startswith(b"#"):
            before = query_id[0]
            yield number, line


def _query_id_of(line: str) -> str:
    columns = line.split()
    if len(columns) != len(_QRELS_COLUMNS):
        expected = " ".join(_QRELS_COLUMNS)
        raise RowError(f"has {len(columns)} columns where the four of TREC qrels are expected ({expected})")
    return columns[0]


def _parse_judged(line: str) -> tuple[str, str]:
    return _parse_section(_query_id_of(line))


def _parse_judged_as_2019(line: str) -> tuple[str, str]:
    return _parse_section_as_2019(_query_id_of(line))


def _is_cbor(beginning: Beginning) -> bool:
    return beginning.content.startswith((b"\x83\x00", b"\x83\x63CAR"))


def _is_section(beginning: Beginning) -> bool:
    return _columns_of_section(beginning) == 1


def _is_judged_section(beginning: Beginning) -> bool:
    return _columns_of_section(beginning) == len(_QRELS_COLUMNS) and beginning.line.split()[-1].isdigit()


def _columns_of_section(beginning: Beginning) -> int:
    """How many columns the first line has, if its first is the id of a section; else 0."""
    columns = beginning.line.split()
    is_id = bool(columns) and not columns[0].startswith((b"{", b"<"))
    is_id = is_id and any(each in columns[0] for each in (b"enwiki:", b"%20"))
    return len(columns) if is_id else 0


PARAGRAPHS_CORPUS = CorpusFormat(
    "car",
    (".cbor", ".paragraphs"),
    _check_paragraphs,
    whole_file,
    _read_paragraphs,
    _place_paragraph,
    look=Look("TREC CAR's CBOR", _is_cbor),
)
PAGES_CORPUS = CorpusFormat("car-pages", (".cbor",), _check_pages, whole_file, _read_pages, _place_page)
SECTIONS = TopicsFormat(
    _parse_section, parse_original=_parse_section_as_2019, look=Look("ids of TREC CAR's sections", _is_section)
)
OUTLINE_SECTIONS = TopicsFormat(
    _parse_section, _outline_sections, noun="section", repeats=True, parse_original=_parse_section_as_2019
)
JUDGED_SECTIONS = TopicsFormat(
    _parse_judged,
    _judged_topics,
    repeats=True,
    parse_original=_parse_judged_as_2019,
    look=Look("TREC CAR's qrels", _is_judged_section),
)
