"""One row of a file: its id and its text, or why it cannot be used."""

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from string import Formatter
from typing import Any, TypeAlias, TypeVar

from beamrank.errors import DataError
from beamrank.formats.values import RowError, are_usable, check_id, check_query_id

# The texts of a template before, between and after its fields.
Template: TypeAlias = tuple[str, ...]
_Number = TypeVar("_Number", int, float)


def check_ids_of_query(what: str, query_id: str, doc_ids: Collection[str]) -> None:
    """Raises DataError where an id of a query of a dictionary, which `what` names, is no string or
    cannot be used.
    """
    for identifier in (query_id, *doc_ids):
        if not isinstance(identifier, str):
            raise DataError(
                f"query {query_id!r} of {what} has the id {identifier!r} "
                f"({type(identifier).__name__}): ids are strings"
            )
    try:
        check_query_id(query_id)
        if not are_usable(list(doc_ids)):
            for doc_id in doc_ids:
                check_id(doc_id)
    except RowError as error:
        raise DataError(f"a row of {what} {error}") from error


def checked_queries(what: str, queries: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The queries of a dictionary of dictionaries, which `what` names, each with usable ids; raises
    DataError.
    """
    form = "give {query_id: {doc_id: number}}"
    if not isinstance(queries, Mapping):
        raise DataError(
            f"{what} is not a dictionary but {type(queries).__name__}: {form}, or a frame of "
            "pandas, polars or Arrow (of a LazyFrame `.collect()`, of a data set of Hugging Face "
            '`.with_format("arrow")[:]`)'
        )
    for query_id, docs in queries.items():
        if not isinstance(docs, Mapping):
            kind = type(docs).__name__
            raise DataError(
                f"query {query_id!r} of {what} has a value that is not a dictionary but {kind}: "
                f"{form}"
            )
        check_ids_of_query(what, query_id, docs)
        yield query_id, docs


def number(kind: Callable[[Any], _Number], text: str | bytes) -> _Number:
    """An `int`, or a `float` (NaN and infinity included), of ASCII's digits alone; raises
    ValueError for others that Python allows: other scripts' digits, and underscores between digits.
    """
    has_underscore = "_" in text if isinstance(text, str) else b"_" in text
    if has_underscore or not text.isascii():
        raise ValueError(f"could not convert to a number: {text!r}")
    return kind(text)


def joined(parts: Sequence[str], template: Template | None = None) -> str:
    """The text of a doc: its fields as a template has them, or with one space between them, empty
    ones left out.
    """
    if template is not None:
        return template[0] + "".join(map(operator.add, parts, template[1:]))
    return parts[0] if len(parts) == 1 else " ".join(part for part in parts if part)


def split_template(template: str) -> tuple[tuple[str, ...], Template]:
    """The fields of a template such as `{title}: {text}`, and what is around them; raises
    ValueError if it has none.
    """
    around, names = [""], list[str]()
    for text, name, form, conversion in Formatter().parse(template):
        around[-1] += text
        if name is not None:
            if not name or form or conversion:
                raise ValueError(
                    f"template {template!r} needs the name of a field, alone, in each pair of "
                    "braces"
                )
            names.append(name)
            around.append("")
    if not names:
        raise ValueError(
            f"template {template!r} names no field: give one in braces, such as {{text}}"
        )
    return tuple(names), tuple(around)
