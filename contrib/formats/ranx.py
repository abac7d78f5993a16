"""ranx's JSON of a run or of qrels: {"query_id": {"doc_id": number}}."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from beamrank.formats.decode.base import Bad, RecordsDecoder, Source, WrongFormatError
from beamrank.formats.files import Beginning, Format, InputFile, Look
from beamrank.formats.schemas import Hints
from beamrank.formats.values import RowError


class _Members(list[tuple[str, Any]]):
    """The members of a JSON object, also with the same name."""


def _is_ranx(beginning: Beginning) -> bool:
    """Whether each value of the first object is an object."""
    record = beginning.record
    return (
        bool(record)
        and not beginning.is_parquet
        and all(isinstance(docs, dict) for docs in record.values())
    )


def _opener(third: str) -> Callable[[InputFile, Hints], RecordsDecoder]:
    def opened(file: InputFile, _hints: Hints) -> RecordsDecoder:
        records = lambda bad: _rows(file.source, bad)  # noqa: E731
        return RecordsDecoder(("query_id", "doc_id", third), records, "query")

    return opened


def _rows(source: Source, bad: Bad) -> Iterator[tuple[int, tuple[str, str, Any]]]:
    """The rows, each with the number of its query; one without docs has none."""
    seen: set[str] = set()
    for number, (query_id, docs) in enumerate(_queries(source), 1):
        if not isinstance(docs, _Members):
            bad(number, RowError(f"{query_id!r} has no object of docs", "not-object"), query_id)
            continue
        if query_id in seen:
            reason = f"{query_id!r} is there twice"
            bad(number, RowError(reason, "query-twice", fatal=True), query_id)
        seen.add(query_id)
        for doc_id, value in docs:
            yield number, (query_id, doc_id, value)


def _queries(source: Source) -> _Members:
    with source.open() as file:
        content = file.read()
    try:
        queries = json.loads(content, object_pairs_hook=_Members)
    except (ValueError, RecursionError) as error:
        raise WrongFormatError(
            f"{source.url} is not JSON of one object {{query_id: {{doc_id: number}}}}: {error}",
            kind="not-json",
            file=source.url,
        ) from error
    return queries if isinstance(queries, _Members) else _Members()


_LOOK = Look("ranx's JSON ({query_id: {doc_id: number}})", _is_ranx)
RUN = Format(_LOOK, _opener("score"))
QRELS = Format(_LOOK, _opener("relevance"))
