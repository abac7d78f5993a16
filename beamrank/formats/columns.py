"""Which column of a table, of JSON's fields or of a header line means what: by usual names, or by
`columns`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from beamrank.section import Section

# The names that a configuration gives, by their meanings.
Columns = Mapping[str, str]
# A file with a column for each tab or comma; its first line may name them, and that of a CSV must.
Table: TypeAlias = Literal["tsv", "csv"]
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
    instruction: _Name | None = None
    """That of the instruction, if not `instruction`, for a stage with `instruction:
    "{instruction}"`.
    """


class _PairColumns(Section):
    query_id: _Name | None = None
    """The column or field of the query_id, where it has none of the usual names."""
    doc_id: _Name | None = None
    """That of the doc_id."""


class QrelsColumns(_PairColumns):
    """The names of the qrels' columns or fields."""

    relevance: _Name | None = None
    """That of the relevance."""


class RunColumns(_PairColumns):
    """The names of a run's columns or fields."""

    rank: _Name | None = None
    """That of the rank."""
    score: _Name | None = None
    """That of the score."""


def column_names(columns: Section | None) -> dict[str, str]:
    return {} if columns is None else columns.model_dump(exclude_none=True)


def check_header(header: bool | None, named: Mapping[str, object]) -> None:
    """Raises ValueError where names of columns are given for files without a header."""
    keys = " and ".join(f"`{key}`" for key, value in named.items() if value is not None)
    if header is False and keys:
        raise ValueError(
            f"{keys} cannot name columns where `header` is false: without a header line the first "
            f"column is the id and the second the text. Remove {keys}, or `header`"
        )
