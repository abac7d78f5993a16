"""The texts that a training needs from a corpus: one scan, which keeps only the docs that are asked for."""

from collections.abc import Collection

from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, CorpusUnit, duplicate_doc, list_units, place, read_unit
from beamrank.formats.problems import first_few
from beamrank.records import BadRow


def read_texts(corpus: CorpusConfig, doc_ids: Collection[str], max_bad_rows: int) -> tuple[dict[str, str], list[str]]:
    """Reads the texts of some docs; more than `max_bad_rows` invalid rows are an error.

    Returns:
        The texts by doc_id, and lines to report about the corpus.

    Raises:
        PreflightError: the corpus cannot be read, lacks a doc, has a doc twice, or has too many invalid rows.
    """
    wanted = frozenset(doc_ids)
    texts: dict[str, str] = {}
    places: dict[str, tuple[CorpusUnit, int]] = {}
    bad: list[BadRow] = []
    for unit in list_units(corpus):
        for batch in read_unit(unit):
            bad += batch.bad
            for doc_id, text, position in zip(batch.doc_ids, batch.texts, batch.positions, strict=True):
                if doc_id not in wanted:
                    continue
                if doc_id in places:
                    raise PreflightError(duplicate_doc(doc_id, place(*places[doc_id]), place(unit, position)))
                texts[doc_id], places[doc_id] = text, (unit, position)
    if len(bad) > max_bad_rows:
        raise PreflightError(
            f"{len(bad):,} rows of the corpus {corpus.path} are invalid, and data.max_bad_rows is {max_bad_rows}; "
            f"the first: {_shown(bad[0])}"
        )
    if missing := sorted(wanted - texts.keys()):
        raise PreflightError(
            f"{len(missing):,} of the {len(wanted):,} docs that run and qrels name are not in the corpus "
            f"{corpus.path}: {first_few(missing)}. Give the corpus that they were made for"
        )
    return texts, [f"invalid rows of the corpus: {len(bad):,}; the first: {_shown(bad[0])}"] if bad else []


def _shown(row: BadRow) -> str:
    return f"{row.place}: {row.reason}"
