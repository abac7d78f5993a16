"""The docs that a training needs from a corpus: one scan, which keeps the token ids of those that are asked for."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, CorpusUnit, DocBatch, duplicate_doc, list_units, place, read_unit
from beamrank.formats.notes import first_few
from beamrank.records import BadRow
from beamrank.storage.documents import hashes64
from models.training.data.arrays import Hashes, Indices, is_in

MISSING = -1
# A place is a number of a unit and a position in it.
_POSITION_BITS = 40


def read_texts(
    corpus: CorpusConfig,
    doc_ids: Collection[str],
    max_bad_rows: int,
) -> tuple[dict[str, str], list[str]]:
    """Reads the texts of a few docs.

    Returns:
        The texts by doc_id, and lines to report about the corpus.

    Raises:
        PreflightError: see `scan_docs`.
    """
    texts: list[str] = []
    distinct = sorted(set(doc_ids))
    hashes = hashes64(distinct)
    order = np.argsort(hashes)
    rows, lines = scan_docs(corpus, hashes[order], max_bad_rows, texts.extend, lambda: distinct)
    return {distinct[at]: texts[row] for at, row in zip(order.tolist(), rows.tolist(), strict=True)}, lines


def scan_docs(
    corpus: CorpusConfig,
    wanted: Hashes,
    max_bad_rows: int,
    keep: Callable[[Sequence[str]], None],
    names: Callable[[], Sequence[str]] | None,
) -> tuple[Indices, list[str]]:
    """Reads a corpus, and passes the texts of some docs on, in the order of the corpus.

    Args:
        corpus: the docs.
        wanted: uint64[n], the hashes of the doc_ids, sorted and distinct.
        max_bad_rows: more invalid rows are an error.
        keep: takes texts.
        names: the doc_ids, among others, for an error; None if docs may be missing.

    Returns:
        int64[n], how many texts were passed on before that of each doc, or MISSING; lines to report about the corpus.

    Raises:
        PreflightError: the corpus cannot be read, lacks a doc, has a doc twice, or has too many invalid rows.
    """
    scan = _Scan(wanted, list_units(corpus))
    bad_rows = 0
    first_bad: BadRow | None = None
    for unit in scan.units:
        for batch in read_unit(unit):
            bad_rows += len(batch.bad)
            first_bad = first_bad or next(iter(batch.bad), None)
            keep(scan.wanted_texts(batch))
    if bad_rows > max_bad_rows:
        assert first_bad is not None
        raise PreflightError(
            f"{bad_rows:,} rows of the corpus {corpus.path} are invalid, and data.max_bad_rows is {max_bad_rows}; "
            f"the first: {_shown(first_bad)}"
        )
    absent = wanted[scan.rows == MISSING]
    if len(absent) and names is not None:
        given = names()
        missing = sorted({given[at] for at in np.flatnonzero(is_in(hashes64(given), absent)).tolist()})
        raise PreflightError(
            f"{len(absent):,} of the {len(wanted):,} docs that run and qrels name are not in the corpus "
            f"{corpus.path}: {first_few(missing)}. Give the corpus that they were made for"
        )
    note = f"invalid rows of the corpus: {bad_rows:,}; the first: {_shown(first_bad)}" if first_bad else ""
    return scan.rows, [note] if note else []


class _Scan:
    """The docs that were found so far."""

    def __init__(self, wanted: Hashes, units: Sequence[CorpusUnit]) -> None:
        self.units = units
        self.rows: Indices = np.full(len(wanted), MISSING, np.int64)
        self._wanted = wanted
        self._places = np.zeros(len(wanted), np.int64)
        self._count = 0

    def wanted_texts(self, batch: DocBatch) -> list[str]:
        """The texts of a batch's wanted docs, which are noted."""
        hashes = hashes64(batch.doc_ids)
        found = np.flatnonzero(is_in(hashes, self._wanted))
        entries = np.searchsorted(self._wanted, hashes[found])
        for number, entry in zip(found.tolist(), entries.tolist(), strict=True):
            here = batch.unit << _POSITION_BITS | batch.positions[number]
            if self.rows[entry] != MISSING:
                first, second = self._place(int(self._places[entry])), self._place(here)
                raise PreflightError(duplicate_doc(batch.doc_ids[number], first, second))
            self.rows[entry], self._places[entry] = self._count, here
            self._count += 1
        return [batch.texts[number] for number in found]

    def _place(self, at: int) -> str:
        return place(self.units[at >> _POSITION_BITS], at & (1 << _POSITION_BITS) - 1)


def _shown(row: BadRow) -> str:
    return f"{row.place}: {row.reason}"
