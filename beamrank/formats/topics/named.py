"""Topics whose columns or fields have names: by the header line of a TSV or CSV, by the keys of JSON or Parquet."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.formats import guess
from beamrank.formats.columns import PLAIN, Columns, Names, find_header, split_tsv
from beamrank.formats.corpora.lines import parse_tsv
from beamrank.formats.row_checks import (
    SURROGATE_REASON,
    RowError,
    check_utf8,
    csv_rows,
    id_of,
    json_object,
    missing_field,
    text_of,
    whole_of,
)
from beamrank.formats.topics.registry import Topics, TopicsFile, TopicsFormat, decoded, parse_topics

_IDS, _TEXTS = ("query_id", "_id", "id", "qid", "topic_id"), ("text", "query")
_BEIR_IDS, _BEIR_TEXTS = ("_id", *(name for name in _IDS if name not in ("_id", "id"))), ("text",)


def _tsv(file: TopicsFile) -> Topics:
    rows = file.lines()
    first = next(rows, None)
    if first is None:
        return iter(())
    found = find_header(file.url, "tsv", split_tsv(first[1]), _names(file))
    if found is None:
        return parse_topics(chain([first], rows), parse_tsv)
    return parse_topics(rows, lambda line: found.parse(line.split("\t")))


def _csv(file: TopicsFile) -> Topics:
    rows = csv_rows(file.content.splitlines(keepends=True), file.url)
    first = next(rows, None)
    if first is None:
        return iter(())
    found = find_header(file.url, "csv", first[1], _names(file))
    header = found or PLAIN
    return parse_topics(rows if found else chain([first], rows), lambda row: check_utf8(*header.parse(row)))


def _names(file: TopicsFile) -> Names:
    return Names("query_id", file.columns, None, file.header)


def _json(file: TopicsFile) -> Topics:
    return _records(_json_rows(file), file.columns, _IDS, _TEXTS)


def _parquet(file: TopicsFile) -> Topics:
    return _records(_parquet_rows(file), file.columns, _IDS, _TEXTS)


def _beir(file: TopicsFile) -> Topics:
    rows = _parquet_rows(file) if file.content.startswith(b"PAR1") else _json_rows(file)
    return _records(rows, file.columns, _BEIR_IDS, _BEIR_TEXTS)


def _json_rows(file: TopicsFile) -> Iterator[tuple[int, Any]]:
    """The objects of lines, or why one cannot be read."""
    for number, line in file.lines():
        try:
            yield number, json_object(decoded(line))
        except RowError as error:
            yield number, error


def _parquet_rows(file: TopicsFile) -> Iterator[tuple[int, Any]]:
    """The rows of a Parquet file; of its columns, those that topics have."""
    usual = [*_IDS, *_TEXTS, *file.columns.values()]
    try:
        with pq.ParquetFile(pa.BufferReader(file.content)) as table:
            names = table.schema_arrow.names
            found = [name for name in dict.fromkeys(usual) if name in names]
            rows = table.read(columns=found).to_pylist()
    except pa.ArrowInvalid as error:
        raise RowError(f"is not Parquet: {error}") from error
    if rows and not found:
        raise missing_field("` or `".join(_IDS), names)
    for number, row in enumerate(rows, start=1):
        yield number, {name: whole_of(value) for name, value in row.items()}


def _records(rows: Iterator[tuple[int, Any]], columns: Columns, ids: tuple[str, ...], texts: tuple[str, ...]) -> Topics:
    """The topics of records, by `columns` or by usual names. A field that is null in all of them is none."""
    found = list(rows)
    present = {name for _, row in found if isinstance(row, dict) for name, value in row.items() if value is not None}

    def keys(meaning: str, usual: tuple[str, ...]) -> tuple[str, ...]:
        names = (columns[meaning],) if meaning in columns else usual
        return tuple(name for name in names if name in present) or names

    id_keys, text_keys = keys("query_id", ids), keys("text", texts)

    def parse(row: Any) -> tuple[str, str]:
        if isinstance(row, RowError):
            raise row
        text_key = _key(row, text_keys)
        query_id, text = id_of(row[_key(row, id_keys)]), text_of(text_key, row[text_key])
        return check_utf8(query_id, text, SURROGATE_REASON)

    return parse_topics(found, parse)


def _key(row: Mapping[str, object], keys: tuple[str, ...]) -> str:
    found = next((key for key in keys if key in row), None)
    if found is None:
        raise missing_field("` or `".join(keys), row)
    return found


TSV = TopicsFormat(_tsv, look=guess.TSV, has_columns=True, table="tsv")
CSV = TopicsFormat(_csv, look=guess.CSV, noun="row", has_columns=True, table="csv")
JSONL = TopicsFormat(_json, look=guess.JSONL, has_columns=True)
PARQUET = TopicsFormat(_parquet, look=guess.PARQUET, noun="row", has_columns=True)
BEIR = TopicsFormat(_beir, look=guess.BEIR, file_in_folder="queries.jsonl", has_columns=True)
