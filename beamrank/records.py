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


class Candidate(NamedTuple):
    """A doc that a stage hands on for a query; `rank` counts from 1."""

    query_id: str
    doc_id: str
    rank: int
    score: float


class BadRow(NamedTuple):
    """An input row that could not be used: where it stands and why."""

    place: str
    reason: str
