"""BEIR's packaging: `_id`, `title`, which may be missing, and `text`, as JSONL or as Hugging Face's Parquet files."""

from collections.abc import Iterator
from dataclasses import replace

from beamrank.formats.corpora.readers import parquet
from beamrank.formats.corpora.readers.jsonl import line_parser
from beamrank.formats.corpora.readers.lines import ParseLine, byte_ranges, check_lines, read_lines
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, line_place

_TITLE, _TEXT = "title", "text"
_OPTIONAL = frozenset({_TITLE})


def _is_parquet(url: str) -> bool:
    return url.endswith(parquet.FORMAT.endings)


def is_beir(url: str) -> bool:
    """Whether a Parquet file has BEIR's columns."""
    with parquet.open_parquet(url) as file:
        return {"_id", _TEXT} <= set(file.schema_arrow.names)


def _parser(unit: CorpusUnit) -> ParseLine:
    if unit.fields is None:
        return line_parser(unit.doc_id or "_id", (_TITLE, _TEXT), optional=_OPTIONAL)
    return line_parser(unit.doc_id or "_id", unit.fields)


def _columns(url: str) -> tuple[str, ...]:
    """The text columns of a Parquet file: a title column may be missing."""
    with parquet.open_parquet(url) as file:
        return (_TITLE, _TEXT) if _TITLE in file.schema_arrow.names else (_TEXT,)


def _check(unit: CorpusUnit) -> None:
    if _is_parquet(unit.url):
        parquet.check(replace(unit, fields=unit.fields or _columns(unit.url)))
    else:
        check_lines(unit.url, FORMAT, _parser(unit))


def _ranges(url: str, unit_bytes: int) -> list[tuple[int, int]]:
    return parquet.row_groups(url, unit_bytes) if _is_parquet(url) else byte_ranges(url, unit_bytes)


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    if not _is_parquet(unit.url):
        return read_lines(unit, _parser(unit))
    if unit.fields is not None:
        return parquet.read(unit)
    return parquet.read(replace(unit, fields=_columns(unit.url)), _OPTIONAL)


def _place(unit: CorpusUnit, position: int) -> str:
    return parquet.place(unit, position) if _is_parquet(unit.url) else line_place(unit, position)


FORMAT = CorpusFormat(
    "beir",
    (".jsonl", *parquet.FORMAT.endings),
    None,
    _ranges,
    _read,
    _place,
    file_in_folder="corpus.jsonl",
    check_named=_check,
)
