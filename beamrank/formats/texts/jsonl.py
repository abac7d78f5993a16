"""JSON: Anserini's objects with `id` and `contents`, a line each or a list of them in a file;
BEIR's packaging.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from beamrank.errors import DataError
from beamrank.formats import checks, files
from beamrank.formats.columns import TITLE
from beamrank.formats.decode.base import BYTE_ORDER_MARK
from beamrank.formats.decode.lines import byte_ranges
from beamrank.formats.texts import parquet
from beamrank.formats.texts.lines import numbered_lines, read_lines
from beamrank.formats.texts.units import (
    CorpusUnit,
    DocBatch,
    TextFormat,
    check_batches,
    line_place,
    parse_rows,
)
from beamrank.formats.values import RowError
from beamrank.storage import files as storage
from beamrank.storage.streams import compression, open_stream

# A list of objects, or an object that continues on the next line.
_DOCUMENT = re.compile(rb"(\xef\xbb\xbf)?\s*(\[\s*\{|\{\s*\n)")
_LOOKED_BYTES = 1 << 10
_CHECKED_BYTES = 1 << 18
_MOST_BYTES = 1 << 28
# The end of a unit that is such a document.
_WHOLE = -1


def _parser(unit: CorpusUnit) -> Callable[[dict[str, Any]], tuple[str, str]]:
    """A function that reads the id and the text of an object."""
    if unit.of_topics:
        return parquet.topic_parser(unit, lambda: _objects(unit.url))
    id_name = unit.id_name or unit.format.id_field or "id"
    fields = unit.fields or ((TITLE, "text") if unit.format.has_title else ("contents",))

    def field_text(row: dict[str, Any], name: str) -> str:
        value = row.get(name)
        if value is None and name == TITLE and unit.may_lack_title:
            return ""
        if value is None and name not in row:
            raise checks.missing_field(name, row)
        return checks.text_of(name, value)

    def parse(row: dict[str, Any]) -> tuple[str, str]:
        if id_name not in row:
            raise checks.missing_field(id_name, row)
        return checks.id_of(row[id_name]), checks.joined(
            [field_text(row, name) for name in fields], unit.template
        )

    return parse


def _objects(url: str) -> Iterator[dict[str, Any]]:
    for _, line in numbered_lines(url):
        with suppress(RowError):
            yield checks.json_object(checks.decoded(line))


def _read_lines(unit: CorpusUnit) -> Iterator[DocBatch]:
    parse = _parser(unit)

    def parse_line(line: str) -> tuple[str, str]:
        doc_id, text = parse(checks.json_object(line))
        # Only an escape can make a surrogate, and few lines have one.
        has_escape = "\\ud" in line or "\\uD" in line
        return (
            checks.check_utf8(doc_id, text, checks.SURROGATE_REASON)
            if has_escape
            else (doc_id, text)
        )

    return read_lines(unit, parse_line)


def _docs(unit: CorpusUnit, values: list[Any]) -> DocBatch:
    parse = _parser(unit)

    def parse_value(value: Any) -> tuple[str, str]:
        return checks.check_utf8(*parse(checks.object_of(value)), checks.SURROGATE_REASON)

    return parse_rows(unit, range(len(values)), values, parse_value)


def _is_document(url: str) -> bool:
    with open_stream(url) as file:
        return _DOCUMENT.match(file.read(_LOOKED_BYTES)) is not None


def _elements(url: str, content: bytes) -> list[Any]:
    """The objects of a file that is one JSON value; raises DataError if it is too large or not
    JSON.
    """
    _check_size(url, len(content))
    try:
        value: Any = json.loads(content.removeprefix(BYTE_ORDER_MARK))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{url}:{error.lineno}: not JSON: {error.msg}. The file may be truncated"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{url} is not JSON that can be read: {error}") from error
    return value if isinstance(value, list) else [value]


def _check_size(url: str, size_bytes: int) -> None:
    if size_bytes > _MOST_BYTES:
        raise DataError(
            f"{url} is one JSON value of more than {_MOST_BYTES >> 20} MiB, which would be in "
            "memory at once: write a line for each doc, with `jq -c '.[]' LIST.json > DOCS.jsonl`"
        )


def _first_elements(beginning: bytes) -> list[Any]:
    """The elements before the last one in the beginning of a list; none if the whole file has to be
    read.
    """
    try:
        # A character may be cut.
        text = beginning.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "ignore")
        rows = from_json(text, allow_partial=True) if len(beginning) == _CHECKED_BYTES else None
    except ValueError:
        return []
    return rows[:-1] if isinstance(rows, list) else []


def _check(unit: CorpusUnit) -> None:
    if parquet.is_parquet(unit.url):
        parquet.check(unit)
        return
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
    if parquet.is_parquet(url):
        return parquet.row_groups(url, unit_bytes)
    return [(0, _WHOLE)] if _is_document(url) else byte_ranges(url, unit_bytes)


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    if parquet.is_parquet(unit.url):
        yield from parquet.read(unit)
    elif unit.end != _WHOLE:
        yield from _read_lines(unit)
    else:
        with open_stream(unit.url) as file:
            rows = _elements(unit.url, file.read(_MOST_BYTES + 1))
        yield _docs(unit, rows)


def _place(unit: CorpusUnit, position: int) -> str:
    if parquet.is_parquet(unit.url):
        return parquet.place(unit, position)
    return (
        f"{unit.url} at element {position} (from 0)"
        if unit.end == _WHOLE
        else line_place(unit, position)
    )


JSONL = TextFormat(
    "jsonl",
    (".jsonl", ".ndjson", ".json"),
    _ranges,
    _read,
    _place,
    _check,
    look=files.JSONL_WITHOUT_BEIR_ID,
    id_field="id",
    has_columns=True,
)
BEIR = replace(
    JSONL,
    name="beir",
    endings=(".jsonl", *parquet.ENDINGS),
    look=files.BEIR,
    file_in_folder="corpus.jsonl",
    id_field="_id",
    has_title=True,
)
TOPICS = replace(JSONL, look=files.JSONL)
BEIR_TOPICS = replace(BEIR, file_in_folder="queries.jsonl")
