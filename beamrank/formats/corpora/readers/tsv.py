"""MS MARCO's TSV: one doc a line, id<TAB>text."""

from collections.abc import Iterator

from beamrank.errors import PreflightError
from beamrank.formats.corpora.readers.lines import byte_ranges, check_lines, read_lines
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, Fields
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


def _check(url: str, fields: Fields) -> None:
    if fields is not None:
        raise PreflightError(f"the columns of a TSV corpus have no names: leave `fields` out for {url}")
    check_lines(url, FORMAT, parse)


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    return read_lines(unit, parse)


FORMAT = CorpusFormat("tsv", (".tsv", ".txt"), _check, byte_ranges, _read)
