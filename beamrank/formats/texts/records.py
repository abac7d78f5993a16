"""Values of JSON and of tables as the columns of text: ids and numbers, written as bytes."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from beamrank.errors import PreflightError
from beamrank.formats import checks
from beamrank.formats.checks import RowError


class Members(list[tuple[str, Any]]):
    """The members of a JSON object, those with the same name too."""


def members(url: str, content: bytes) -> Members:
    try:
        found = json.loads(content, object_pairs_hook=Members)
    except (ValueError, RecursionError) as error:
        raise PreflightError(f"{url} is not JSON of one object {{query_id: {{doc_id: number}}}}: {error}") from error
    return found if isinstance(found, Members) else Members()


def record_columns(values: list[Any]) -> Iterator[list[bytes]]:
    """The columns of a record; of a query and a list of docs, those of a run without scores."""
    match values:
        case [query_id, list(docs)]:
            doc_ids = [_id(doc_id) for doc_id in docs]
            if len(set(doc_ids)) < len(doc_ids):
                raise checks.ContradictionError(f"names a doc of query {query_id!r} twice")
            for rank, doc_id in enumerate(doc_ids, 1):
                yield [_id(query_id), doc_id, b"%d" % rank]
        case [query_id, doc_id, *numbers]:
            yield [_id(query_id), _id(doc_id), *map(_written, numbers)]


def _id(value: Any) -> bytes:
    if value != value:
        raise RowError("has an id that is NaN: the column of a missing one is numbers with a fraction")
    return _written(value)


def _written(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    value = checks.whole_of(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return str(value).encode()
    raise RowError(f"has a value that is neither text nor a number: {value!r:.60}")
