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
    """An input row that cannot be used: its place and the reason."""

    place: str
    reason: str


class SpecialTokens(NamedTuple):
    """The ids that a tokenizer's vocabulary gives the special tokens."""

    cls_id: int
    sep_id: int
    pad_id: int
