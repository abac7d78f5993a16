"""Anserini's JSON, objects with `id` and `contents`: one a line, or a file that is a list of them or one alone."""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from beamrank.errors import DataError
from beamrank.formats.corpora.readers.lines import ParseLine, byte_ranges, check_lines, read_lines
from beamrank.formats.corpora.units import (
    CorpusFormat,
    CorpusUnit,
    DocBatch,
    WrongFormatError,
    line_place,
    parse_rows,
)
from beamrank.formats.ids import BYTE_ORDER_MARK
from beamrank.formats.row_checks import check_surrogates, id_of, joined, json_object, missing_field, text_of
from beamrank.storage import files as storage
from beamrank.storage.streams import compression, open_stream

# A list of objects, or an object that continues on the next line.
_DOCUMENT = re.compile(rb"\s*(\[\s*\{|\{\s*\n)")
_LOOKED_BYTES = 1 << 10
_LIST_BEGINS, _GOES_ON = re.compile(r"\s*\[\s*"), re.compile(r"\s*,\s*")
_CHECKED_BYTES = 1 << 18
_MOST_BYTES = 1 << 28
# The end of a unit that is such a document.
_WHOLE = -1


def first_row(url: str) -> dict[str, Any] | None:
    """The first object of a file; None if it cannot be read."""
    with open_stream(url) as file:
        text = file.read(_CHECKED_BYTES).removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace")
    try:
        row, _ = json.JSONDecoder().raw_decode(text.lstrip().removeprefix("[").lstrip())
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def line_parser(id_name: str, fields: tuple[str, ...], optional: frozenset[str] = frozenset()) -> ParseLine:
    """A function that reads the id and the text of a line.

    Args:
        id_name: the key of the id; an integer there becomes its decimal digits.
        fields: the keys whose values make the text.
        optional: those of them that may be missing or null.
    """

    def field_text(row: dict[str, object], name: str) -> str:
        value = row.get(name)
        if value is None and name in optional:
            return ""
        if value is None and name not in row:
            raise missing_field(name, row)
        return text_of(name, value)

    def parse(line: str) -> tuple[str, str]:
        row = json_object(line)
        if id_name not in row:
            raise missing_field(id_name, row)
        doc_id = id_of(row[id_name])
        text = joined([field_text(row, name) for name in fields])
        check_surrogates(line, doc_id, text)
        return doc_id, text

    return parse


def _parser(unit: CorpusUnit) -> ParseLine:
    return line_parser(unit.doc_id or "id", unit.fields or ("contents",))


def _is_document(url: str) -> bool:
    with open_stream(url) as file:
        return _DOCUMENT.match(file.read(_LOOKED_BYTES).removeprefix(BYTE_ORDER_MARK)) is not None


def _read_document(unit: CorpusUnit) -> DocBatch:
    """The docs of a file that is one JSON value.

    Raises:
        DataError: it is too large to be read at once, or is not JSON.
    """
    with open_stream(unit.url) as file:
        rows = _rows(unit.url, file.read(_MOST_BYTES + 1))
    return _docs(unit, rows)


def _rows(url: str, content: bytes) -> list[Any]:
    _check_size(url, len(content))
    try:
        value: Any = json.loads(content.removeprefix(BYTE_ORDER_MARK))
    except json.JSONDecodeError as error:
        raise DataError(f"{url}:{error.lineno}: not JSON: {error.msg}. The file may be truncated") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{url} is not JSON that can be read: {error}") from error
    return value if isinstance(value, list) else [value]


def _check_size(url: str, size_bytes: int) -> None:
    if size_bytes > _MOST_BYTES:
        raise DataError(
            f"{url} is one JSON value of more than {_MOST_BYTES >> 20} MiB, which would be in memory at once: "
            "write a line for each doc, with `jq -c '.[]' LIST.json > DOCS.jsonl`"
        )


def _docs(unit: CorpusUnit, rows: list[Any]) -> DocBatch:
    return parse_rows(unit, range(len(rows)), map(json.dumps, rows), _parser(unit))


def _first_rows(beginning: bytes) -> list[Any]:
    """The elements of a list that end in its beginning; none where only the whole file shows whether it can be read."""
    if len(beginning) < _CHECKED_BYTES:
        return []
    rows: list[Any] = []
    end = 0
    try:
        text = getincrementaldecoder("utf-8")().decode(beginning.removeprefix(BYTE_ORDER_MARK))
        element = _LIST_BEGINS.match(text)
        while element:
            row, end = json.JSONDecoder().raw_decode(text, element.end())
            rows.append(row)
            element = _GOES_ON.match(text, end)
    except json.JSONDecodeError:
        return rows  # The last element is cut.
    except (ValueError, RecursionError):
        return []
    return [] if text[end:].strip() else rows


def _check(unit: CorpusUnit) -> None:
    url = unit.url
    if not _is_document(url):
        check_lines(url, FORMAT, _parser(unit))
        return
    if compression(url) is None:
        _check_size(url, storage.size_bytes(url))
    with open_stream(url) as file:
        beginning = file.read(_CHECKED_BYTES)
        rows = _first_rows(beginning) or _rows(url, beginning + file.read(_MOST_BYTES))
    batch = _docs(replace(unit, end=_WHOLE), rows)
    if batch.bad and not batch.doc_ids:
        raise WrongFormatError(
            f"none of the first {len(rows)} elements of {url} can be read as `format: jsonl`. "
            f"{batch.bad[0].place}: {batch.bad[0].reason}"
        )


def _ranges(url: str, unit_bytes: int) -> list[tuple[int, int]]:
    return [(0, _WHOLE)] if _is_document(url) else byte_ranges(url, unit_bytes)


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    if unit.end == _WHOLE:
        yield _read_document(unit)
    else:
        yield from read_lines(unit, _parser(unit))


def _place(unit: CorpusUnit, position: int) -> str:
    return f"{unit.url} at element {position} (from 0)" if unit.end == _WHOLE else line_place(unit, position)


FORMAT = CorpusFormat("jsonl", (".jsonl", ".ndjson", ".json"), None, _ranges, _read, _place, check_named=_check)
