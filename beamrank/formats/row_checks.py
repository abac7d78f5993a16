"""One row of a corpus or a topics file: its id and its text, or why it cannot be used."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from numbers import Real
from typing import Any

from beamrank.errors import DataError, PreflightError

SURROGATE_REASON = "holds half of a UTF-16 surrogate pair (\\ud800 to \\udfff), which UTF-8 cannot carry"


class RowError(ValueError):
    """A row cannot be used; the message continues "the row ..."."""


class WrongFormatError(PreflightError):
    """A file is not of the format that it is read as; the reader adds the format that it looks like."""


def id_of(value: object) -> str:
    """An id as a string: an integer becomes its decimal digits.

    Raises:
        RowError: it is neither.
    """
    if type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise RowError(f"has an id that is {_kind(value)}, not a string")
    return value


def whole_of(value: Any) -> Any:
    """A whole number of any type as an integer; any other value as it is."""
    is_number = isinstance(value, (Real, Decimal)) and not isinstance(value, bool)
    try:
        return int(value) if is_number and value == int(value) else value
    except (ValueError, OverflowError):
        return value


def text_of(name: str, value: object) -> str:
    """The value of a text field.

    Raises:
        RowError: it is not a string.
    """
    if not isinstance(value, str):
        raise RowError(f"has a field `{name}` that is {_kind(value)}, not a string")
    return value


def joined(parts: list[str]) -> str:
    """The text of a doc: its fields with one space between them, empty ones left out."""
    return parts[0] if len(parts) == 1 else " ".join(part for part in parts if part)


def json_object(line: str) -> dict[str, Any]:
    """A line of JSONL.

    Raises:
        RowError: it is not a JSON object.
    """
    if not line:
        raise RowError("is empty")
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise RowError(f"is not JSON: {error.msg} (character {error.pos})") from error
    except (ValueError, RecursionError) as error:
        raise RowError(f"is JSON that cannot be read: {error}") from error
    if not isinstance(row, dict):
        raise RowError(f"is JSON, but {_kind(row)}, not an object")
    return row


def check_utf8(identifier: str, text: str, reason: str = "is not valid UTF-8") -> tuple[str, str]:
    """An id and a text that can be written as UTF-8.

    Raises:
        RowError: one holds a surrogate, which stands for a byte that is not UTF-8 or is half of a pair.
    """
    try:
        (identifier + text).encode()
    except UnicodeEncodeError as error:
        raise RowError(reason) from error
    return identifier, text


def missing_field(name: str, names: object) -> RowError:
    """The error of a row without a field that it must have."""
    there = ", ".join(str(one) for one in names) if isinstance(names, (dict, list)) else ""
    return RowError(f"has no field `{name}`; it has: {there or 'none'}")


def _kind(value: object) -> str:
    names = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
        str: "a string",
        bytes: "not valid UTF-8",
    }
    return names.get(type(value), f"of type {type(value).__name__}")


# Python's limit of 128 KiB is for a whole process.
csv.field_size_limit(sys.maxsize)


def csv_rows(lines: Iterable[bytes], url: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, each with the line on which it begins; bytes that are not UTF-8 become surrogates.

    Raises:
        DataError: a quote is not closed, or not doubled.
    """
    rows = csv.reader((line.decode("utf-8", "surrogateescape") for line in lines), strict=True)
    line = 0
    try:
        for row in rows:
            if row:
                yield line + 1, row
            line = rows.line_num
    except csv.Error as error:
        raise DataError(
            f"{url}:{line + 1}: the row is not CSV as in RFC 4180 ({error}): a column that holds a quote, a comma or a "
            "line end is in quotes, and a quote in it is written twice"
        ) from error


def csv_row(line: bytes) -> list[str]:
    """The columns of one line; none if it is not CSV, or has one column."""
    try:
        row = next(csv.reader([line.decode("utf-8", "replace")], strict=True), [])
    except csv.Error:
        return []
    return row if len(row) > 1 else []
