"""The meanings of a table's columns, of JSON's fields or of a header line: by usual names, or by
`columns`.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from beamrank.errors import ConfigError
from beamrank.formats.checks import split_template
from beamrank.formats.schemas import Hints, Schema
from beamrank.section import Section

# Values of `format` beside a named one.
TABLES = ("auto", "tsv", "csv", "json")


def _checked_template(template: str) -> str:
    split_template(template)
    return template


# A text with fields in braces.
TemplateText = Annotated[str, AfterValidator(_checked_template)]
_Column = Annotated[str, Field(min_length=1)] | Annotated[int, Field(ge=1)]
# The names, or the numbers, that a configuration gives, by their meanings.
Columns = Mapping[str, str | int]


class DocColumns(Section):
    """The names of a corpus's columns or fields; in files without a header their numbers from 1."""

    doc_id: _Column | None = None
    """The column or field of the id, where it has none of the usual names."""
    text: _Column | None = None
    """The text's column; `corpus.fields` takes several."""


class TopicColumns(Section):
    """The names of the topics' columns; in files without a header their numbers from 1."""

    query_id: _Column | None = None
    """The column or field of the id, where it has none of the usual names."""
    text: _Column | None = None
    """The text's column."""
    instruction: Annotated[str, Field(min_length=1)] | None = None
    """The instruction's column, if not `instruction`, for a stage with `instruction:
    "{instruction}"`.
    """


class _PairColumns(Section):
    query_id: _Column | None = None
    """The column or field of the query_id, where it has none of the usual names; or its number from
    1 in files without a header.
    """
    doc_id: _Column | None = None
    """The doc_id's column."""


class QrelsColumns(_PairColumns):
    """The names of the qrels' columns or fields."""

    relevance: _Column | None = None
    """The relevance's column."""


class RunColumns(_PairColumns):
    """The names of a run's columns or fields."""

    rank: _Column | None = None
    """The rank's column."""
    score: _Column | None = None
    """The score's column."""


def hints_of(section: Any) -> Hints:
    """The hints about its files in a section with `columns`, `format` and `quotes`."""
    named = "" if section.format == TABLES[0] else section.format
    return Hints(column_names(section.columns), quotes=section.quotes, format=named)


def checked_hints(
    schema: Schema,
    formats: Collection[str],
    columns: Columns = MappingProxyType({}),
    format: str = TABLES[0],
    quotes: bool = False,
) -> Hints:
    """The hints of a caller about files; raises ConfigError for a format or a meaning that they do
    not have.
    """
    for name, given, accepted in (
        ("format", [format], [*TABLES, *formats]),
        ("columns", columns, schema.columns),
    ):
        unknown = next((repr(value) for value in given if value not in accepted), None)
        if unknown is not None:
            raise ConfigError(
                f"{unknown} is no {name} of a {schema.what}; accepted: {', '.join(accepted)}"
            )
    return Hints(columns, quotes=quotes, format="" if format == TABLES[0] else format)


def column_names(columns: Section | None) -> dict[str, str | int]:
    return {} if columns is None else columns.model_dump(exclude_none=True)


def check_header(
    header: bool | None, columns: Section | None, others: Mapping[str, object] = {}
) -> None:
    """Raises ValueError where names of columns are given for files without a header."""
    names = [column for column in column_names(columns).values() if isinstance(column, str)]
    named = {"columns": names, **others}
    keys = " and ".join(f"`{key}`" for key, value in named.items() if value not in (None, []))
    if header is False and keys:
        raise ValueError(
            f"{keys} cannot name columns where `header` is false: without a header line the first "
            f"column is the id and the second the text. Remove {keys}, or `header`"
        )
