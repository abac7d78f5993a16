"""Which query_ids and doc_ids can be used: one rule for topics, corpora, runs and qrels, checked where they are read.

In a run, white space ends a column. Readers disagree about which characters are white space (Python splits at U+00A0,
C does not), and a NUL ends a string in C. So an id that holds white space of any kind, or a control character, would
be another id in another tool. A byte order mark (U+FEFF) at the beginning of a file is not part of its first id.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from beamrank.errors import DataError

_SHOWN = 40
# At the beginning of a file.
BYTE_ORDER_MARK = "\ufeff".encode()
_REFUSED = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ufeff\ud800-\udfff]")


class IdError(ValueError):
    """An id cannot be used; the message continues "the row ..."."""


def is_usable(identifier: str) -> bool:
    """Whether a string can be an id: not empty, no white space, control characters, BOM or surrogates."""
    # Almost every id ends here, several times faster than with the pattern: a corpus has hundreds of millions.
    if identifier.isprintable() and " " not in identifier:
        return identifier != ""
    return _REFUSED.search(identifier) is None


def are_usable(identifiers: Sequence[str]) -> bool:
    """Whether all of many strings can be ids: as one string, they are checked at once."""
    return all(identifiers) and (not identifiers or is_usable("".join(identifiers)))


def check_doc_id(doc_id: str) -> None:
    """Checks that a doc_id can be used.

    Raises:
        IdError: it is empty, or holds white space, a control character, a byte order mark or a surrogate.
    """
    if is_usable(doc_id):
        return
    found = _REFUSED.search(doc_id)
    if found is None:
        raise IdError("has an empty id")
    if "\ud800" <= found[0] <= "\udfff":
        raise IdError(f"has the id {shown(doc_id)}, which holds half of a surrogate pair: UTF-8 cannot carry it")
    kind = (
        "white space" if found[0].isspace() else "a byte order mark" if found[0] == "\ufeff" else "a control character"
    )
    raise IdError(
        f"has the id {shown(doc_id)}, which holds {kind} (U+{ord(found[0]):04X}): "
        "programs that read runs would take it for another id"
    )


def check_query_id(query_id: str) -> None:
    """Checks that a query_id can be used.

    Raises:
        IdError: it cannot be a doc_id either, or begins with `#`, which makes a line of a run a comment (trec_eval 10).
    """
    check_doc_id(query_id)
    if query_id.startswith("#"):
        raise IdError(
            f"has the id {shown(query_id)}, which begins with `#`: trec_eval would read its lines of a run as comments"
        )


def check_ids_of_query(what: str, query_id: str, doc_ids: Collection[str]) -> None:
    """Checks that the ids of one query of a dictionary can be used; `what` names the dictionary.

    Raises:
        DataError: one is not a string, or cannot be used.
    """
    for each in (query_id, *doc_ids):
        if not isinstance(each, str):
            raise DataError(
                f"query {query_id!r} of {what} has the id {each!r} ({type(each).__name__}): ids are strings"
            )
    try:
        check_query_id(query_id)
        if not are_usable(list(doc_ids)):
            for doc_id in doc_ids:
                check_doc_id(doc_id)
    except IdError as error:
        raise DataError(f"a row of {what} {error}") from error


def checked_queries(what: str, given: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The queries of a dictionary that a user gave, each checked; `what` names the dictionary.

    Raises:
        DataError: it is not a dictionary of dictionaries, or an id cannot be used.
    """
    form = "give {query_id: {doc_id: number}}"
    if not isinstance(given, Mapping):
        raise DataError(f"{what} is not a dictionary but {type(given).__name__}: {form}")
    for query_id, docs in given.items():
        if not isinstance(docs, Mapping):
            kind = type(docs).__name__
            raise DataError(f"query {query_id!r} of {what} has a value that is not a dictionary but {kind}: {form}")
        check_ids_of_query(what, query_id, docs)
        yield query_id, docs


def shown(value: str) -> str:
    """A string, shortened for a message."""
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "...")
