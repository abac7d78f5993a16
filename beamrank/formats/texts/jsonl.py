"""JSON: Anserini's objects with `id` and `contents`, a line each or a list of them in a file; BEIR's packaging."""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from beamrank.errors import DataError
from beamrank.formats import checks, files
from beamrank.formats.columns import TITLE
from beamrank.formats.texts import parquet
from beamrank.formats.texts.lines import byte_ranges, read_lines
from beamrank.formats.texts.units import CorpusFormat, CorpusUnit, DocBatch, check_batches, line_place, parse_rows
from beamrank.storage import files as storage
from beamrank.storage.streams import compression, open_stream

# A list of objects, or an object that continues on the next line.
_DOCUMENT = re.compile(rb"\s*(\[\s*\{|\{\s*\n)")
_LOOKED_BYTES = 1 << 10
_CHECKED_BYTES = 1 << 18
_MOST_BYTES = 1 << 28
# The end of a unit that is such a document.
_WHOLE = -1
_ID, _BEIR_ID = "id", "_id"
# By the field of the id.
_FIELDS = {_ID: ("contents",), _BEIR_ID: (TITLE, "text")}


def _parser(unit: CorpusUnit) -> Callable[[dict[str, Any]], tuple[str, str]]:
    """A function that reads the id and the text of an object; BEIR's own title may be missing or null."""
    own = unit.format.id_field or _ID
    id_name, fields = unit.doc_id or own, unit.fields or _FIELDS[own]
    has_own_fields = unit.fields is None

    def field_text(row: dict[str, Any], name: str) -> str:
        value = row.get(name)
        if value is None and name == TITLE and has_own_fields:
            return ""
        if value is None and name not in row:
            raise checks.missing_field(name, row)
        return checks.text_of(name, value)

    def parse(row: dict[str, Any]) -> tuple[str, str]:
        if id_name not in row:
            raise checks.missing_field(id_name, row)
        return checks.id_of(row[id_name]), checks.joined([field_text(row, name) for name in fields])

    return parse


def _read_lines(unit: CorpusUnit) -> Iterator[DocBatch]:
    parse = _parser(unit)

    def parse_line(line: str) -> tuple[str, str]:
        doc_id, text = parse(checks.json_object(line))
        # Only an escape can make a surrogate, and few lines have one.
        has_escape = "\\ud" in line or "\\uD" in line
        return checks.check_utf8(doc_id, text, checks.SURROGATE_REASON) if has_escape else (doc_id, text)

    return read_lines(unit, parse_line)


def _docs(unit: CorpusUnit, values: list[Any]) -> DocBatch:
    parse = _parser(unit)

    def parse_value(value: Any) -> tuple[str, str]:
        return checks.check_utf8(*parse(checks.object_of(value)), checks.SURROGATE_REASON)

    return parse_rows(unit, range(len(values)), values, parse_value)


def _is_document(url: str) -> bool:
    with open_stream(url) as file:
        return _DOCUMENT.match(file.read(_LOOKED_BYTES).removeprefix(checks.BYTE_ORDER_MARK)) is not None


def _elements(url: str, content: bytes) -> list[Any]:
    """The objects of a file that is one JSON value; raises DataError if it is too large or not JSON."""
    _check_size(url, len(content))
    try:
        value: Any = json.loads(content.removeprefix(checks.BYTE_ORDER_MARK))
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
        text = getincrementaldecoder("utf-8")().decode(beginning.removeprefix(checks.BYTE_ORDER_MARK))
        rows = from_json(text, allow_partial=True)
    except ValueError:
        return []
    return rows[:-1] if isinstance(rows, list) else []


def _check(unit: CorpusUnit) -> None:
    if not _is_document(unit.url):
        check_batches(unit, _read(unit))
        return
    if compression(unit.url) is None:
        _check_size(unit.url, storage.size_bytes(unit.url))
    with open_stream(unit.url) as file:
        beginning = file.read(_CHECKED_BYTES)
        rows = _first_elements(beginning) or _elements(unit.url, beginning + file.read(_MOST_BYTES))
    check_batches(unit, [_docs(replace(unit, end=_WHOLE), rows)])


def _ranges(url: str, unit_bytes: int) -> list[tuple[int, int]]:
    return [(0, _WHOLE)] if _is_document(url) else byte_ranges(url, unit_bytes)


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    if unit.end != _WHOLE:
        yield from _read_lines(unit)
        return
    with open_stream(unit.url) as file:
        rows = _elements(unit.url, file.read(_MOST_BYTES + 1))
    yield _docs(unit, rows)


def _place(unit: CorpusUnit, position: int) -> str:
    return f"{unit.url} at element {position} (from 0)" if unit.end == _WHOLE else line_place(unit, position)


def _check_beir(unit: CorpusUnit) -> None:
    if parquet.is_parquet(unit.url):
        parquet.check(unit, title=True)
    else:
        check_batches(unit, _read_lines(unit))


def _beir_ranges(url: str, unit_bytes: int) -> list[tuple[int, int]]:
    return (parquet.row_groups if parquet.is_parquet(url) else byte_ranges)(url, unit_bytes)


def _read_beir(unit: CorpusUnit) -> Iterator[DocBatch]:
    return parquet.read(unit, title=True) if parquet.is_parquet(unit.url) else _read_lines(unit)


def _beir_place(unit: CorpusUnit, position: int) -> str:
    return (parquet.place if parquet.is_parquet(unit.url) else line_place)(unit, position)


JSONL = CorpusFormat(
    "jsonl",
    (".jsonl", ".ndjson", ".json"),
    _ranges,
    _read,
    _place,
    _check,
    look=files.JSONL_WITHOUT_BEIR_ID,
    id_field=_ID,
    has_columns=True,
)
BEIR = CorpusFormat(
    "beir",
    (".jsonl", *parquet.ENDINGS),
    _beir_ranges,
    _read_beir,
    _beir_place,
    _check_beir,
    look=files.BEIR,
    file_in_folder="corpus.jsonl",
    id_field=_BEIR_ID,
    has_columns=True,
)
