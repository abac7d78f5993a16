"""Comma-separated values as in RFC 4180: quoted columns may hold commas, quotes (doubled) and line ends."""

import csv
import sys
from collections.abc import Iterable, Iterator

from beamrank.errors import DataError

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
