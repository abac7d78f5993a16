"""TREC CAR's files: paragraphs, pages and outlines in CBOR (`car_cbor.py`); ids of sections, alone
or in qrels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from beamrank.errors import DataError
from beamrank.formats.decode.base import (
    Bad,
    RecordsDecoder,
    Rows,
    collected,
    numbered_lines,
    parsed,
)
from beamrank.formats.files import Beginning, Format, InputFile, Look
from beamrank.formats.schemas import Hints
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

_QRELS_COLUMNS = ("query_id", "iteration", "doc_id", "relevance")
_TOPIC = ("query_id", "text")

_Records = Iterator[tuple[int, tuple[str, str]]]


class _Paragraphs(RecordsDecoder):
    """Paragraphs, whose places are bytes; see `Decoder`."""

    def __init__(self, file: InputFile, _hints: Hints) -> None:
        self._url = file.url
        super().__init__(("doc_id", "text"), lambda bad: self._read(0, 0, bad), "byte")

    def ranges(self, unit_bytes: int) -> list[tuple[int, int]]:
        size = storage.size_bytes(self._url)
        if size <= unit_bytes or compression(self._url) is not None:
            return [(0, 0)]
        with open_stream(self._url) as file:
            return find_ranges(file, size, unit_bytes)

    def rows(
        self, start: int, end: int, wanted: Mapping[int, pa.DataType], bad: Bad
    ) -> Iterator[Rows]:
        return collected(self._read(start, end, bad), wanted)

    def _read(self, start: int, end: int, bad: Bad) -> _Records:
        with open_stream(self._url) as file:
            for place, item in read_items(file, self._url, PARAGRAPHS, start, end):
                try:
                    yield place, parse_paragraph(item)
                except RowError as error:
                    bad(place, error, item)


def _open_pages(file: InputFile, _hints: Hints) -> RecordsDecoder:
    """The paragraphs of pages. An id is the hash of a text, so one that appears again is the same
    doc.
    """

    def records(bad: Bad) -> _Records:
        seen: set[str] = set()
        for number, page in _items(file.url, PAGES):
            try:
                for paragraph in page_paragraphs(page):
                    try:
                        doc_id, text = parse_paragraph(paragraph)
                    except RowError as error:
                        bad(number, error, paragraph)
                        continue
                    if doc_id not in seen:
                        seen.add(doc_id)
                        yield number, (doc_id, text)
            except RowError as error:
                bad(number, error, page)

    return RecordsDecoder(("doc_id", "text"), records, "page")


def _items(url: str, kind: Kind) -> Iterator[tuple[int, Any]]:
    """The items of a file, each with its number from 1."""
    with open_stream(url) as file:
        yield from enumerate((item for _, item in read_items(file, url, kind)), 1)


def _open_outlines(file: InputFile, hints: Hints) -> RecordsDecoder:
    """The sections of outlines, each with the number of its outline."""

    def sections() -> Iterator[tuple[int, bytes]]:
        for number, outline in _items(file.url, OUTLINES):
            try:
                for path in section_paths(outline):
                    yield number, path
            except RowError as error:
                raise DataError(
                    f"item {number} of {file.url} {error}", kind="item", place=number
                ) from error

    return RecordsDecoder(_TOPIC, lambda bad: parsed(sections(), _section_parser(hints), bad))


def _open_sections(file: InputFile, hints: Hints) -> RecordsDecoder:
    def records(bad: Bad) -> Iterator[tuple[int, Sequence[Any]]]:
        return parsed(numbered_lines(file.source), _section_parser(hints), bad)

    return RecordsDecoder(_TOPIC, records)


def _open_judged(file: InputFile, hints: Hints) -> RecordsDecoder:
    """The sections of qrels, without comments and repetitions of the query_id of the line
    before.
    """
    parse = _section_parser(hints)

    def lines() -> Iterator[tuple[int, bytes]]:
        before: bytes | None = None
        for number, line in numbered_lines(file.source):
            query_id = line.split(None, 1)[:1]
            if query_id and query_id[0] != before and not line.startswith(b"#"):
                before = query_id[0]
                yield number, line

    return RecordsDecoder(
        _TOPIC, lambda bad: parsed(lines(), lambda line: parse(_query_id_of(line)), bad)
    )


def _section_parser(hints: Hints) -> Callable[[str], tuple[str, str]]:
    return _parse_section_as_2019 if hints.original else _parse_section


def _parse_section(line: str) -> tuple[str, str]:
    """The line as the id; its text without a leading `enwiki:`, percent-decoded, with each `/` a
    space.
    """
    try:
        text = unquote(line.removeprefix("enwiki:"), errors="strict")
    except UnicodeDecodeError as error:
        raise RowError(f"{line!r} is not UTF-8 when percent-decoded", "not-utf8") from error
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
            f"has {len(columns)} columns where the four of TREC qrels are expected ({expected})",
            "columns",
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
    is_id = is_id and any(mark in columns[0] for mark in (b"enwiki:", b"%20"))
    return len(columns) if is_id else 0


PARAGRAPHS_CORPUS = Format(
    Look("TREC CAR's CBOR", _is_cbor), _Paragraphs, keys=(), endings=(".cbor", ".paragraphs")
)
PAGES_CORPUS = Format(open=_open_pages, keys=(), endings=(".cbor",))
SECTIONS = Format(
    Look("ids of TREC CAR's sections", _is_section), _open_sections, keys=("decoding",)
)
OUTLINE_SECTIONS = Format(open=_open_outlines, keys=("decoding",), repeats=True)
JUDGED_SECTIONS = Format(
    Look("TREC CAR's qrels", _is_judged_section), _open_judged, keys=("decoding",), repeats=True
)
