"""The texts that a training needs of a corpus: one scan, and only the docs that are asked for are kept."""

from collections.abc import Collection

from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, CorpusUnit, duplicate_doc, list_units, place, read_unit
from beamrank.records import BadRow

_SHOWN = 3


def read_texts(corpus: CorpusConfig, doc_ids: Collection[str], max_bad_rows: int) -> tuple[dict[str, str], list[str]]:
    """The texts of some docs.

    Args:
        corpus: where they are.
        doc_ids: which ones.
        max_bad_rows: more rows of the corpus that cannot be used than this are an error.

    Returns:
        The texts by doc_id, and what is worth saying of the corpus.

    Raises:
        PreflightError: the corpus cannot be read, lacks one of the docs, has one of them twice or too many bad rows.
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
    _check(corpus, wanted, texts, bad, max_bad_rows)
    return texts, [f"rows of the corpus that cannot be used: {len(bad):,}; the first: {_shown(bad[0])}"] if bad else []


def _check(
    corpus: CorpusConfig, wanted: frozenset[str], texts: dict[str, str], bad: list[BadRow], max_bad_rows: int
) -> None:
    if len(bad) > max_bad_rows:
        raise PreflightError(
            f"{len(bad):,} rows of the corpus {corpus.path} cannot be used, and data.max_bad_rows is {max_bad_rows}; "
            f"the first: {_shown(bad[0])}"
        )
    missing = sorted(wanted - texts.keys())
    if missing:
        named = ", ".join(map(repr, missing[:_SHOWN]))
        raise PreflightError(
            f"{len(missing):,} of the {len(wanted):,} docs that run and qrels name are not in the corpus "
            f"{corpus.path}: {named}{', ...' if len(missing) > _SHOWN else ''}. Give the corpus that they were made for"
        )


def _shown(row: BadRow) -> str:
    return f"{row.place}: {row.reason}"
