"""The texts of some docs, for people to read."""

from collections.abc import Collection

from beamrank.formats.corpora.reader import list_units, read_unit
from beamrank.formats.corpora.registry import CorpusConfig


def find_texts(corpus: CorpusConfig, doc_ids: Collection[str]) -> dict[str, str]:
    """The texts by doc_id, from one scan that ends when all are found; those that the corpus lacks are left out.

    Raises:
        PreflightError: the corpus does not exist or cannot be read.
    """
    wanted = set(doc_ids)
    found: dict[str, str] = {}
    for unit in list_units(corpus) if wanted else ():
        for batch in read_unit(unit):
            found |= {doc_id: text for doc_id, text in zip(batch.doc_ids, batch.texts, strict=True) if doc_id in wanted}
        if len(found) == len(wanted):
            break
    return found
