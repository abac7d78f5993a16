"""Topics whose columns or fields have names: by the header line of a TSV or CSV, by the keys of JSON or Parquet."""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeAlias

from beamrank.formats.corpora.readers import tsv
from beamrank.formats.csv_rows import csv_rows
from beamrank.formats.header import PLAIN, Names, find_header, split_tsv
from beamrank.formats.names import Columns
from beamrank.formats.row_checks import RowError
from beamrank.formats.topics import lines

# The topics of a file, each with its line, and what reads one.
Rows: TypeAlias = tuple[Iterator[tuple[int, bytes]], Callable[[str], tuple[str, str]]]
# Of the content of a file, its URL, the names of columns, and whether there is a header.
NamedRows: TypeAlias = Callable[[bytes, str, Columns, bool | None], Rows]


def tsv_rows(content: bytes, url: str, columns: Columns, header: bool | None) -> Rows:
    """Lines of an id and a text, or of the columns that a header names."""
    rows = lines.split(content)
    first = next(rows, None)
    if first is None:
        return rows, tsv.parse
    found = find_header(url, split_tsv(first[1]), Names("query_id", columns, None, header))
    if found is None:
        return chain([first], rows), tsv.parse
    return rows, lambda line: found.parse(line.split("\t"))


def csv_topics(content: bytes, url: str, columns: Columns, header: bool | None) -> Rows:
    """The rows of a CSV as lists in JSON.

    Raises:
        RowError: it has no header line.
    """
    rows = csv_rows(content.splitlines(keepends=True), url)
    first = next(rows, None)
    if first is None:
        return iter(()), tsv.parse
    found = find_header(url, first[1], Names("query_id", columns, None, header))
    if found is None and header is None:
        raise RowError(
            f"has no header line that names the query_id and the text, but {', '.join(first[1])[:200]}: add one, name "
            "the columns in `topics.columns`, or set `topics.header: false`"
        )
    given = rows if found else chain([first], rows)
    encoded = ((line, json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogateescape")) for line, row in given)
    return encoded, lambda row: (found or PLAIN).parse(json.loads(row))


def json_rows(content: bytes, _url: str, columns: Columns, _header: bool | None) -> Rows:
    """Lines of JSON."""
    rows = list(lines.split(content))
    return iter(rows), lines.json_parser(rows, columns)


def beir_rows(content: bytes, _url: str, columns: Columns, _header: bool | None) -> Rows:
    """Lines of JSON, or the rows of Parquet."""
    rows = list(lines.split_beir(content, columns))
    return iter(rows), lines.json_parser(rows, columns, of_beir=True)


def parquet_rows(content: bytes, _url: str, columns: Columns, _header: bool | None) -> Rows:
    """The rows of Parquet."""
    rows = list(lines.split_parquet(content, columns))
    return iter(rows), lines.json_parser(rows, columns)
