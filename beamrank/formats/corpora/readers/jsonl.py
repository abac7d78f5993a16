"""Anserini's JSONL: one object a line, `id` and `contents`."""

from collections.abc import Iterator

from beamrank.formats.corpora.readers.lines import ParseLine, byte_ranges, check_lines, read_lines
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, Fields
from beamrank.formats.row_checks import check_surrogates, id_of, joined, json_object, missing_field, text_of


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


def _parser(fields: Fields) -> ParseLine:
    return line_parser("id", fields or ("contents",))


def _check(url: str, fields: Fields) -> None:
    check_lines(url, FORMAT, _parser(fields))


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    return read_lines(unit, _parser(unit.fields))


FORMAT = CorpusFormat("jsonl", (".jsonl", ".ndjson", ".json"), _check, byte_ranges, _read)
