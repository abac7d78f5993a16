"""TREC CAR's files: paragraphs, pages and outlines in CBOR (`car_cbor.py`); ids of sections, alone
or in qrels.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import unquote

from beamrank.errors import DataError
from beamrank.formats.files import Beginning, Look
from beamrank.formats.texts.lines import numbered_lines, read_lines
from beamrank.formats.texts.units import (
    CorpusUnit,
    DocBatch,
    TextFormat,
    parse_rows,
    parse_texts,
    whole_file,
)
from beamrank.formats.values import RowError
from beamrank.storage import files as storage
from beamrank.storage.streams import compression, open_stream
from contrib.papers.car_cbor import (
    OUTLINES,
    PAGES,
    PARAGRAPHS,
    Kind,
    find_ranges,
    page_paragraphs,
    parse_paragraph,
    read_items,
    section_paths,
)

_BATCH_ITEMS = 1024
_QRELS_COLUMNS = ("query_id", "iteration", "doc_id", "relevance")

_Rows = Iterator[tuple[int, Any]]


def _paragraph_ranges(url: str, unit_bytes: int) -> list[tuple[int, int]]:
    size = storage.size_bytes(url)
    if size <= unit_bytes or compression(url) is not None:
        return whole_file(url, unit_bytes)
    with open_stream(url) as file:
        return find_ranges(file, size, unit_bytes)


def _read(unit: CorpusUnit, kind: Kind, rows_of: Callable[[_Rows], _Rows]) -> Iterator[DocBatch]:
    with open_stream(unit.url) as file:
        rows = rows_of(read_items(file, unit.url, kind, unit.start, unit.end))
        while batch := list(islice(rows, _BATCH_ITEMS)):
            positions, paragraphs = zip(*batch, strict=True)
            yield parse_rows(unit, positions, paragraphs, _parse_paragraph)


def _read_paragraphs(unit: CorpusUnit) -> Iterator[DocBatch]:
    return _read(unit, PARAGRAPHS, iter if unit.end else _numbered)


def _read_pages(unit: CorpusUnit) -> Iterator[DocBatch]:
    return _read(unit, PAGES, _in_pages)


def _numbered(items: _Rows) -> _Rows:
    return ((number, item) for number, (_, item) in enumerate(items))


def _in_pages(pages: _Rows) -> _Rows:
    """The paragraphs of pages. An id is the hash of a text, so one that appears again is the same
    doc.
    """
    seen: set[bytes] = set()
    for number, page in _numbered(pages):
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
    return (
        f"{unit.url} at byte {position}"
        if unit.end
        else f"{unit.url} at paragraph {position} (from 0)"
    )


def _place_page(unit: CorpusUnit, position: int) -> str:
    return f"{unit.url} at page {position} (from 0)"


def _read_outlines(unit: CorpusUnit) -> Iterator[DocBatch]:
    """The sections of outlines, each with the number of its outline."""
    with open_stream(unit.url) as file:
        for number, outline in _numbered(read_items(file, unit.url, OUTLINES)):
            try:
                paths = list(section_paths(outline))
            except RowError as error:
                raise DataError(f"item {number + 1} of {unit.url} {error}") from error
            yield parse_texts(unit, ((number + 1, path) for path in paths), _section_parser(unit))


def _read_sections(unit: CorpusUnit) -> Iterator[DocBatch]:
    return read_lines(unit, _section_parser(unit))


def _read_judged(unit: CorpusUnit) -> Iterator[DocBatch]:
    """The sections of qrels, without comments and repetitions of the query_id of the line
    before.
    """
    found: list[tuple[int, bytes]] = []
    before: bytes | None = None
    for number, line in numbered_lines(unit.url):
        query_id = line.split(None, 1)[:1]
        if query_id and query_id[0] != before and not line.startswith(b"#"):
            before = query_id[0]
            found.append((number, line))
    parse = _section_parser(unit)
    yield parse_texts(unit, found, lambda line: parse(_query_id_of(line)))


def _section_parser(unit: CorpusUnit) -> Callable[[str], tuple[str, str]]:
    return _parse_section_as_2019 if unit.original else _parse_section


def _parse_section(line: str) -> tuple[str, str]:
    """The line as the id; its text without a leading `enwiki:`, percent-decoded, with each `/` a
    space.
    """
    try:
        text = unquote(line.removeprefix("enwiki:"), errors="strict")
    except UnicodeDecodeError as error:
        raise RowError(f"{line!r} is not UTF-8 when percent-decoded") from error
    return line, text.replace("/", " ")


def _parse_section_as_2019(line: str) -> tuple[str, str]:
    """The line as the id; its text as the code of 2019 makes it: `%20` is the only escape that is
    decoded.
    """
    return line, line.replace("enwiki:", "").replace("%20", " ").replace("/", " ")


def _query_id_of(line: str) -> str:
    columns = line.split()
    if len(columns) != len(_QRELS_COLUMNS):
        expected = " ".join(_QRELS_COLUMNS)
        raise RowError(
            f"has {len(columns)} columns where the four of TREC qrels are expected ({expected})"
        )
    return columns[0]


def _is_cbor(beginning: Beginning) -> bool:
    return beginning.content.startswith((b"\x83\x00", b"\x83\x63CAR"))


def _is_section(beginning: Beginning) -> bool:
    return _columns_of_section(beginning) == 1


def _is_judged_section(beginning: Beginning) -> bool:
    return (
        _columns_of_section(beginning) == len(_QRELS_COLUMNS)
        and beginning.line.split()[-1].isdigit()
    )


def _columns_of_section(beginning: Beginning) -> int:
    """How many columns the first line has, if its first is the id of a section; else 0."""
    columns = beginning.line.split()
    is_id = bool(columns) and not columns[0].startswith((b"{", b"<"))
    is_id = is_id and any(each in columns[0] for each in (b"enwiki:", b"%20"))
    return len(columns) if is_id else 0


PARAGRAPHS_CORPUS = TextFormat(
    "car",
    (".cbor", ".paragraphs"),
    _paragraph_ranges,
    _read_paragraphs,
    _place_paragraph,
    look=Look("TREC CAR's CBOR", _is_cbor),
    has_fields=False,
)
PAGES_CORPUS = TextFormat(
    "car-pages", (".cbor",), whole_file, _read_pages, _place_page, has_fields=False
)
SECTIONS = TextFormat(
    "car",
    (),
    whole_file,
    _read_sections,
    look=Look("ids of TREC CAR's sections", _is_section),
    has_original=True,
)
OUTLINE_SECTIONS = TextFormat(
    "car-outlines", (), whole_file, _read_outlines, noun="section", repeats=True, has_original=True
)
JUDGED_SECTIONS = TextFormat(
    "car-qrels",
    (),
    whole_file,
    _read_judged,
    look=Look("TREC CAR's qrels", _is_judged_section),
    repeats=True,
    has_original=True,
)
