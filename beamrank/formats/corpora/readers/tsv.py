"""TSV: one doc a line, id<TAB>text as in MS MARCO's, or the columns that a header line names."""

from collections.abc import Iterator

from beamrank.formats.corpora.readers.lines import ParseLine, byte_ranges, check_lines, read_lines
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch
from beamrank.formats.header import Names, find_header, first_line
from beamrank.formats.row_checks import RowError


def parse(line: str) -> tuple[str, str]:
    """The id and the text of a line.

    Raises:
        RowError: it does not have exactly two columns.
    """
    columns = line.split("\t")
    if len(columns) != 2:
        if not line:
            raise RowError("is empty")
        count = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
        raise RowError(f"has {count} where id<TAB>text, exactly 2, are expected")
    return columns[0], columns[1]


def _has_header(url: str, names: Names) -> bool:
    return find_header(url, first_line(url, is_csv=False), names) is not None


def _parser(unit: CorpusUnit) -> ParseLine:
    if not unit.header:
        return parse
    header = find_header(unit.url, first_line(unit.url, is_csv=False), names_of(unit))
    assert header is not None
    return lambda line: header.parse(line.split("\t"))


def names_of(unit: CorpusUnit) -> Names:
    """The names of the columns of a unit."""
    return Names("doc_id", {} if unit.doc_id is None else {"doc_id": unit.doc_id}, unit.fields, unit.header)


def _check(unit: CorpusUnit) -> None:
    check_lines(unit.url, FORMAT, _parser(unit), unit.header)


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    return read_lines(unit, _parser(unit))


FORMAT = CorpusFormat("tsv", (".tsv", ".txt"), None, byte_ranges, _read, check_named=_check, has_header=_has_header)
