"""Which column of a table, of JSON's fields or of a header line means what: by known names, or by `columns`."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from beamrank.formats.row_checks import RowError
from beamrank.section import Section

# In lower case with underscores. Those of the second group can name a text too: they count where none of the first is.
_NAMES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "query_id": (("query_id", "qid", "topic_id"), ("query", "topic")),
    "doc_id": (("doc_id", "docid", "docno", "document_id", "corpus_id", "passage_id", "pid"), ("doc",)),
    "relevance": (("relevance", "rel", "score", "label", "grade", "judgment"), ()),
    "rank": (("rank",), ()),
    "score": (("score",), ()),
}

# What tables and JSON call the id of a doc or a topic, before the names above.
_OWN_IDS: Mapping[str, tuple[str, ...]] = {"doc_id": ("doc_id", "_id", "id"), "query_id": ("query_id", "_id", "id")}

# The names that a configuration gives, by their meanings.
Columns = Mapping[str, str]
_Name = Annotated[str, Field(min_length=1)]


class DocColumns(Section):
    """The names of a corpus's columns or fields; `corpus.fields` are those of the text."""

    doc_id: _Name | None = None
    """The column or field of the id, where it has none of the usual names."""


class TopicColumns(Section):
    """The names of the topics' columns or fields."""

    query_id: _Name | None = None
    """The column or field of the id, where it has none of the usual names."""
    text: _Name | None = None
    """That of the text."""


class QrelsColumns(Section):
    """The names of the qrels' columns or fields."""

    query_id: _Name | None = None
    """The column or field of the query_id, where it has none of the usual names."""
    doc_id: _Name | None = None
    """That of the doc_id."""
    relevance: _Name | None = None
    """That of the relevance."""


class RunColumns(Section):
    """The names of a run's columns or fields."""

    query_id: _Name | None = None
    """The column or field of the query_id, where it has none of the usual names."""
    doc_id: _Name | None = None
    """That of the doc_id."""
    rank: _Name | None = None
    """That of the rank."""
    score: _Name | None = None
    """That of the score."""


def given_columns(columns: Section | None) -> dict[str, str]:
    """The names that a section gives."""
    return {} if columns is None else columns.model_dump(exclude_none=True)


def check_header(header: bool | None, named: Mapping[str, object]) -> None:
    """Checks that files which have no header are given no names of columns.

    Raises:
        ValueError: they are.
    """
    given = [f"`{key}`" for key, value in named.items() if value is not None]
    if header is False and given:
        raise ValueError(
            f"{' and '.join(given)} cannot name columns where `header` is false: without a header line the first "
            f"column is the id and the second the text. Remove {' and '.join(given)}, or `header`"
        )


def find_id(names: Sequence[str], meaning: str, columns: Columns) -> int | None:
    """The position of the `doc_id` of docs or the `query_id` of topics, by `columns` or by known names.

    Raises:
        RowError: see `find_columns`.
    """
    if meaning not in columns:
        known = [_plain(name) for name in names]
        own = next((known.index(name) for name in _OWN_IDS[meaning] if name in known), None)
        if own is not None:
            return own
    return find_columns(names, [meaning], columns).get(meaning)


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


def find_text(names: Sequence[str], known: Sequence[str]) -> int | None:
    """The position of the first of some known names of a text."""
    plain = [_plain(name) for name in names]
    return next((plain.index(name) for name in known if name in plain), None)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")
