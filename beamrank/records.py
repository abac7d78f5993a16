"""The values that pass between stages."""

from typing import NamedTuple


class Topic(NamedTuple):
    """An information need: the id and the text that is sent as the query."""

    query_id: str
    text: str


class Doc(NamedTuple):
    """A unit of the corpus."""

    doc_id: str
    text: str


class BadRow(NamedTuple):
    """An input row that could not be used: where it stands and why."""

    place: str
    reason: str
