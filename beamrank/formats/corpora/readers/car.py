"""TREC CAR's paragraphs in CBOR: a file of paragraphs, or those inside a file of pages (`car_cbor.py`)."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from beamrank.errors import PreflightError
from beamrank.formats.corpora.readers.car_cbor import (
    PAGES,
    PARAGRAPHS,
    Kind,
    page_paragraphs,
    parse_paragraph,
    read_header,
    read_items,
)
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, Fields, parse_rows, whole_file
from beamrank.formats.row_checks import RowError
from beamrank.storage.streams import open_stream

_BATCH_ITEMS = 1024

# A paragraph, or why its page has none, with the number of the item of the file.
_Rows = Iterator[tuple[int, Any]]


def _check(url: str, fields: Fields, kind: Kind) -> None:
    if fields is not None:
        raise PreflightError(f"the paragraphs of TREC CAR have no named fields: leave `fields` out for {url}")
    with open_stream(url) as file:
        read_header(file, url, kind)


def _check_paragraphs(url: str, fields: Fields) -> None:
    _check(url, fields, PARAGRAPHS)


def _check_pages(url: str, fields: Fields) -> None:
    _check(url, fields, PAGES)


def _read(unit: CorpusUnit, kind: Kind, rows_of: Callable[[Iterator[Any]], _Rows]) -> Iterator[DocBatch]:
    with open_stream(unit.url) as file:
        rows = rows_of(read_items(file, unit.url, kind))
        while batch := list(islice(rows, _BATCH_ITEMS)):
            positions, paragraphs = zip(*batch, strict=True)
            yield parse_rows(unit, positions, paragraphs, _parse)


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


def _parse(paragraph: Any) -> tuple[str, str]:
    if isinstance(paragraph, RowError):
        raise paragraph
    return parse_paragraph(paragraph)


def _place_paragraph(unit: CorpusUnit, position: int) -> str:
    return f"{unit.url} at paragraph {position} (from 0)"


def _place_page(unit: CorpusUnit, position: int) -> str:
    return f"{unit.url} at page {position} (from 0)"


PARAGRAPHS_FORMAT = CorpusFormat(
    "car", (".cbor", ".paragraphs"), _check_paragraphs, whole_file, _read_paragraphs, _place_paragraph
)
PAGES_FORMAT = CorpusFormat("car-pages", (".cbor",), _check_pages, whole_file, _read_pages, _place_page)
