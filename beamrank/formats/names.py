"""Which column of a table, of JSON's fields or of a header line means what: by known names, or by `columns`."""

from collections.abc import Mapping, Sequence

from beamrank.formats.row_checks import RowError

# In lower case with underscores. Those of the second group can name a text too: they count where none of the first is.
_NAMES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "query_id": (("query_id", "qid", "topic_id"), ("query", "topic")),
    "doc_id": (("doc_id", "docid", "docno", "document_id", "corpus_id", "passage_id", "pid"), ("doc",)),
    "relevance": (("relevance", "rel", "score", "label", "grade", "judgment"), ()),
    "rank": (("rank",), ()),
    "score": (("score",), ()),
}

# The names that a configuration gives, by their meanings.
Columns = Mapping[str, str]


def find_columns(names: Sequence[str], meanings: Sequence[str], columns: Columns) -> dict[str, int]:
    """The positions of the columns that have some meanings, as far as there are such columns.

    Raises:
        RowError: a name of `columns` is missing, or several columns could have a meaning.
    """
    for name in columns.values():
        if name not in names:
            raise RowError(f"has no column `{name}`, which `columns` names; it has: {', '.join(names)}")
    found = {meaning: names.index(name) for meaning, name in columns.items() if meaning in meanings}
    known = [_plain(name) for name in names]
    for meaning in meanings:
        if meaning in found:
            continue
        for group in _NAMES[meaning]:
            places = [place for place, name in enumerate(known) if name in group and place not in found.values()]
            if len(places) > 1:
                several = " and ".join(f"`{names[place]}`" for place in places)
                raise RowError(
                    f"has the columns {several}, and each could be the {meaning}: choose with "
                    f"`columns: {{{meaning}: {names[places[0]]}}}`, or remove one"
                )
            if places:
                found[meaning] = places[0]
                break
    return {meaning: found[meaning] for meaning in meanings if meaning in found}


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")
