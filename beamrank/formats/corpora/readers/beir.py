"""BEIR's packaging: a folder with corpus.jsonl, one object a line, `_id`, `title` (which may be missing) and `text`."""

from collections.abc import Iterator

from beamrank.formats.corpora.readers.jsonl import line_parser
from beamrank.formats.corpora.readers.lines import ParseLine, byte_ranges, check_lines, read_lines
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, Fields


def _parser(fields: Fields) -> ParseLine:
    if fields is None:
        return line_parser("_id", ("title", "text"), optional=frozenset({"title"}))
    return line_parser("_id", fields)


def _check(url: str, fields: Fields) -> None:
    check_lines(url, FORMAT, _parser(fields))


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    return read_lines(unit, _parser(unit.fields))


FORMAT = CorpusFormat("beir", (".jsonl",), _check, byte_ranges, _read, file_in_folder="corpus.jsonl")
