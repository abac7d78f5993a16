"""The values that pass between stages."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

# The column of topics whose instruction a model reads.
INSTRUCTION = "instruction"
# The column of topics with the texts that BM25 gets, where these are others.
BM25_TEXT = "bm25_text"

Relevance: TypeAlias = Mapping[str, Mapping[str, int]]
"""Judgments: the relevance of docs by query_id and doc_id."""


class Topic(NamedTuple):
    """An information need: the id and the text that is sent as the query."""

    query_id: str
    text: str


class Doc(NamedTuple):
    """A unit of the corpus."""

    doc_id: str
    text: str


class BadRow(NamedTuple):
    """An input row that cannot be used: its place, the reason, and its beginning
    (`beamrank.formats.rejects`).
    """

    place: str
    reason: str
    row: str = ""
    kind: str = ""


NO_TOKEN = -1


class SpecialTokens(NamedTuple):
    """The ids of the special tokens around the texts of an input; NO_TOKEN where a tokenizer does
    not have one.

    Attributes:
        cls_id: starts an input: `[CLS]`, `<s>`.
        sep_id: ends a text: `[SEP]`, `</s>`.
        pad_id: fills a batch.
    """

    cls_id: int
    sep_id: int
    pad_id: int
