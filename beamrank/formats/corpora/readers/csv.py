"""CSV as in RFC 4180, with a header line; a unit is a file, because a column in quotes may hold line ends."""

import itertools
from collections.abc import Iterator

from beamrank.formats.corpora.readers.tsv import names_of
from beamrank.formats.corpora.units import (
    CorpusFormat,
    CorpusUnit,
    DocBatch,
    WrongFormatError,
    line_place,
    parse_rows,
    whole_file,
)
from beamrank.formats.csv_rows import csv_rows
from beamrank.formats.header import PLAIN, Header, Names, find_header, first_line
from beamrank.formats.ids import BYTE_ORDER_MARK
from beamrank.formats.row_checks import RowError
from beamrank.storage.streams import open_stream

_BATCH_ROWS = 1024
_CHECKED_ROWS = 100


def _has_header(url: str, names: Names) -> bool:
    found = _header(url, names)
    return found is not None and names.header is not False


def _header(url: str, names: Names) -> Header | None:
    line = first_line(url, is_csv=True)
    found = find_header(url, line, names) if line else PLAIN
    if found is None and names.header is None:
        raise WrongFormatError(
            f"{url} has no header line that names the doc_id and the text; it has: {', '.join(line)[:200]}. Add one, "
            "name the columns in `corpus.columns` and `corpus.fields`, or set `corpus.header: false` where the first "
            "column is the id and the second the text"
        )
    return found


def _check(unit: CorpusUnit) -> None:
    for batch in itertools.islice(_read(unit, _CHECKED_ROWS), 1):
        if batch.bad and not batch.doc_ids:
            raise WrongFormatError(
                f"none of the first {len(batch.bad)} rows of {unit.url} can be read as `format: csv`. "
                f"{batch.bad[0].place}: {batch.bad[0].reason}"
            )


def _read(unit: CorpusUnit, batch_rows: int = _BATCH_ROWS) -> Iterator[DocBatch]:
    header = _header(unit.url, names_of(unit)) or PLAIN

    def parse(row: list[str]) -> tuple[str, str]:
        doc_id, text = header.parse(row)
        try:
            (doc_id + text).encode()
        except UnicodeEncodeError as error:
            raise RowError("is not valid UTF-8") from error
        return doc_id, text

    with open_stream(unit.url) as file:
        lines = iter(file)
        first = next(lines, b"").removeprefix(BYTE_ORDER_MARK)
        rows = csv_rows(itertools.chain([first], lines), unit.url)
        if unit.header:
            next(rows, None)
        while batch := list(itertools.islice(rows, batch_rows)):
            yield parse_rows(unit, [line - 1 for line, _ in batch], [row for _, row in batch], parse)


FORMAT = CorpusFormat("csv", (".csv",), None, whole_file, _read, line_place, check_named=_check, has_header=_has_header)
