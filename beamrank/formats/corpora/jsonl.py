"""JSON: Anserini's objects with `id` and `contents`, a line each or a list of them in a file; BEIR's packaging."""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from beamrank.errors import DataError
from beamrank.formats import guess
from beamrank.formats.corpora import parquet
from beamrank.formats.corpora.lines import ParseLine, byte_ranges, read_lines
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, check_batch, line_place, parse_rows
from beamrank.formats.ids import BYTE_ORDER_MARK
from beamrank.formats.row_checks import SURROGATE_REASON, check_utf8, id_of, joined, json_object, missing_field, text_of
from beamrank.storage import files as storage
from beamrank.storage.streams import compression, open_stream

# A list of objects, or an object that continues on the next line.
_DOCUMENT = re.compile(rb"\s*(\[\s*\{|\{\s*\n)")
_LOOKED_BYTES = 1 << 10
_CHECKED_BYTES = 1 << 18
_MOST_BYTES = 1 << 28
# The end of a unit that is such a document.
_WHOLE = -1
_TITLE, _TEXT = "title", "text"
_OPTIONAL = frozenset({_TITLE})


def _line_parser(id_name: str, fields: tuple[str, ...], optional: frozenset[str] = frozenset()) -> ParseLine:
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
        # Only an escape can make a surrogate, and few lines have one.
        has_escape = "\\ud" in line or "\\uD" in line
        return check_utf8(doc_id, text, SURROGATE_REASON) if has_escape else (doc_id, text)

    return parse


def _parser(unit: CorpusUnit) -> ParseLine:
    return _line_parser(unit.doc_id or "id", unit.fields or ("contents",))


def _is_document(url: str) -> bool:
    with open_stream(url) as file:
        return _DOCUMENT.match(file.read(_LOOKED_BYTES).removeprefix(BYTE_ORDER_MARK)) is not None


def _elements(url: str, content: bytes) -> list[Any]:
    """The objects of a file that is one JSON value.

    Raises:
        DataError: it is too large to be read at once, or is not JSON.
    """
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


def _first_elements(beginning: bytes) -> list[Any]:
    """The elements before the last one in the beginning of a list; none if the whole file has to be read."""
    if len(beginning) < _CHECKED_BYTES:
        return []
    try:
        # A character may be cut.
        text = getincrementaldecoder("utf-8")().decode(beginning.removeprefix(BYTE_ORDER_MARK))
        rows = from_json(text, allow_partial=True)
    except ValueError:
        return []
    return rows[:-1] if isinstance(rows, list) else []


def _docs(unit: CorpusUnit, rows: list[Any]) -> DocBatch:
    return parse_rows(unit, range(len(rows)), map(json.dumps, rows), _parser(unit))


def _check(unit: CorpusUnit) -> None:
    if not _is_document(unit.url):
        check_batch(unit, next(_read(unit), None))
        return
    if compression(unit.url) is None:
        _check_size(unit.url, storage.size_bytes(unit.url))
    with open_stream(unit.url) as file:
        beginning = file.read(_CHECKED_BYTES)
        rows = _first_elements(beginning) or _elements(unit.url, beginning + file.read(_MOST_BYTES))
    check_batch(unit, _docs(replace(unit, end=_WHOLE), rows))


def _ranges(url: str, unit_bytes: int) -> list[tuple[int, int]]:
    return [(0, _WHOLE)] if _is_document(url) else byte_ranges(url, unit_bytes)


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    if unit.end != _WHOLE:
        yield from read_lines(unit, _parser(unit))
        return
    with open_stream(unit.url) as file:
        rows = _elements(unit.url, file.read(_MOST_BYTES + 1))
    yield _docs(unit, rows)


def _place(unit: CorpusUnit, position: int) -> str:
    return f"{unit.url} at element {position} (from 0)" if unit.end == _WHOLE else line_place(unit, position)


def _beir_parser(unit: CorpusUnit) -> ParseLine:
    if unit.fields is None:
        return _line_parser(unit.doc_id or "_id", (_TITLE, _TEXT), optional=_OPTIONAL)
    return _line_parser(unit.doc_id or "_id", unit.fields)


def _with_text_columns(unit: CorpusUnit) -> CorpusUnit:
    """A unit of a Parquet file that names its text columns: a title column may be missing."""
    if unit.fields is not None:
        return unit
    with parquet.open_parquet(unit.url) as file:
        has_title = _TITLE in file.schema_arrow.names
    return replace(unit, fields=(_TITLE, _TEXT) if has_title else (_TEXT,))


def _check_beir(unit: CorpusUnit) -> None:
    if parquet.is_parquet(unit.url):
        parquet.check(_with_text_columns(unit))
    else:
        check_batch(unit, next(_read_beir(unit), None))


def _beir_ranges(url: str, unit_bytes: int) -> list[tuple[int, int]]:
    return (parquet.row_groups if parquet.is_parquet(url) else byte_ranges)(url, unit_bytes)


def _read_beir(unit: CorpusUnit) -> Iterator[DocBatch]:
    if not parquet.is_parquet(unit.url):
        return read_lines(unit, _beir_parser(unit))
    return parquet.read(_with_text_columns(unit), frozenset() if unit.fields else _OPTIONAL)


def _beir_place(unit: CorpusUnit, position: int) -> str:
    return (parquet.place if parquet.is_parquet(unit.url) else line_place)(unit, position)


JSONL = CorpusFormat(
    "jsonl",
    (".jsonl", ".ndjson", ".json"),
    _ranges,
    _read,
    _place,
    _check,
    look=guess.JSONL_WITHOUT_BEIR_ID,
    id_field="id",
    has_columns=True,
)
BEIR = CorpusFormat(
    "beir",
    (".jsonl", *parquet.ENDINGS),
    _beir_ranges,
    _read_beir,
    _beir_place,
    _check_beir,
    look=guess.BEIR,
    file_in_folder="corpus.jsonl",
    id_field="_id",
    has_columns=True,
)
