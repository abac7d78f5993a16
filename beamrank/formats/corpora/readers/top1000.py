"""MS MARCO's top1000 files as a corpus: query_id<TAB>doc_id<TAB>query<TAB>passage, a doc for each candidate."""

from collections.abc import Iterator

from beamrank.errors import PreflightError
from beamrank.formats.corpora.readers.lines import byte_ranges, check_lines, read_lines
from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, Fields
from beamrank.formats.notes import counted
from beamrank.formats.row_checks import RowError

COLUMNS = ("query_id", "doc_id", "query", "passage")


def columns_of(line: str) -> tuple[str, str, str, str]:
    """The columns of a line.

    Raises:
        RowError: it does not have exactly four.
    """
    columns = line.split("\t")
    if len(columns) != len(COLUMNS):
        raise RowError(f"has {counted(len(columns), 'column')} where {'<TAB>'.join(COLUMNS)}, exactly 4, are expected")
    return columns[0], columns[1], columns[2], columns[3]


def _parse(line: str) -> tuple[str, str]:
    query_id, doc_id, _, passage = columns_of(line)
    return doc_id, f"{query_id}\t{passage}"


def _check(url: str, fields: Fields) -> None:
    if fields is not None:
        raise PreflightError(f"the columns of a top1000 file have no names: leave `fields` out for {url}")
    check_lines(url, FORMAT, _parse)


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    for batch in read_lines(unit, _parse):
        split = [text.split("\t", 1) for text in batch.texts]
        batch.query_ids = [query_id for query_id, _ in split]
        batch.texts = [passage for _, passage in split]
        yield batch


FORMAT = CorpusFormat("top1000", (".tsv", ".txt"), _check, byte_ranges, _read, lists_candidates=True)
