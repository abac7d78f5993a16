"""rank_llm's JSON of retrieved results: a list, or a line each, of a query and its candidates with
texts.

{"query": {"qid": "1", "text": "..."}, "candidates": [{"docid": "d", "score": 9.5, "doc":
{"contents": "..."}}, ...]} {"query": "...", "hits": [{"qid": "1", "docid": "d", "rank": 1, "score":
9.5, "content": "..."}, ...]}

One file is topics, corpus and candidates at once.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from beamrank.formats.checks import Template, joined
from beamrank.formats.decode.base import Bad, RecordsDecoder, WrongFormatError, ignore
from beamrank.formats.files import Beginning, Format, InputFile, Look, records
from beamrank.formats.schemas import Hints, listed
from beamrank.formats.values import Id, RowError, Text, check_utf8

_NAMES = ("query", "candidates", "hits")
# The text of a doc is the first of these that it has, after its title.
_TITLE, _TEXTS = "title", ("text", "segment", "contents", "content", "body", "passage")


class Request(NamedTuple):
    """A query and its candidates, and their line, or their place in the list of a file."""

    line: int
    query_id: str
    text: str
    candidates: list[Any]


def requests(url: str) -> Iterator[Request]:
    """The requests of a file; raises WrongFormatError if it holds something else."""
    for place, row in records(url, _NAMES):
        yield _request(url, place, row)


def _request(url: str, line: int, row: Any) -> Request:
    match row:
        case {"query": {"qid": qid, "text": str(text)}, "candidates": list(candidates)} if type(
            qid
        ) in (int, str):
            return Request(line, str(qid), text, candidates)
        case {"query": str(text) | {"text": str(text)}, "hits": list(hits)}:
            return Request(
                line,
                _query_id(url, line, row["query"], hits),
                text,
                [_candidate(hit) for hit in hits],
            )
    raise WrongFormatError(
        f'{url}:{line}: a row is not a request of rank_llm ({{"query": {{"qid", "text"}}, '
        f'"candidates": [...]}}, or {{"query": text, "hits": [{{"qid", "docid", "content"}}]}}): '
        f"{json.dumps(row)[:200]}",
        kind="not-rank-llm",
        file=url,
        place=line,
    )


def _query_id(url: str, line: int, query: Any, hits: list[Any]) -> str:
    """The id of a query, which its hits may have in its place."""
    named = [query["qid"]] if isinstance(query, dict) and "qid" in query else []
    ids = {
        str(qid)
        for qid in [
            *named,
            *(hit["qid"] for hit in hits if isinstance(hit, dict) and "qid" in hit),
        ]
    }
    if len(ids) != 1:
        reason = (
            "no hit has a `qid`"
            if not ids
            else f"its hits have several: {', '.join(sorted(ids)[:3])}"
        )
        raise WrongFormatError(
            f"{url}:{line}: the id of the query {json.dumps(query):.60} is unknown: {reason}"
        )
    return ids.pop()


def _candidate(hit: Any) -> Any:
    """A hit as a candidate."""
    return {**hit, "doc": hit} if isinstance(hit, dict) and "doc" not in hit else hit


def doc_of(
    candidate: Any, fields: Sequence[str] | None = None, template: Template | None = None
) -> tuple[str, str]:
    """The doc_id and the text of a candidate; raises RowError if it has none."""
    if not isinstance(candidate, dict) or "docid" not in candidate:
        raise RowError("is a candidate without `docid`")
    doc_id, doc = Id().value("docid", candidate["docid"]), candidate.get("doc")
    if isinstance(doc, str):
        return doc_id, check_utf8(doc)
    if not isinstance(doc, dict):
        raise RowError("is a candidate without `doc`, its text")
    names = fields or _text_fields(doc)
    for name in names:
        if name not in doc:
            raise RowError(f"has no field `{name}`; it has: {', '.join(doc)}")
    return doc_id, joined([Text().value(name, doc[name]) for name in names], template)


def _text_fields(doc: dict[str, Any]) -> Sequence[str]:
    text = next((name for name in _TEXTS if name in doc), _TEXTS[0])
    return (_TITLE, text) if doc.get(_TITLE) else (text,)


def _is_rank_llm(beginning: Beginning) -> bool:
    record = beginning.record
    query = record.get("query")
    with_candidates = isinstance(query, dict | list) and "candidates" in record
    return with_candidates or (
        isinstance(query, str | dict | list) and isinstance(record.get("hits"), list)
    )


def _open(file: InputFile, hints: Hints) -> RecordsDecoder:
    """The candidates, in the order of the file; they have scores if the first one has."""

    def rows(bad: Bad) -> Iterator[tuple[int, tuple[Any, ...]]]:
        pairs = (
            (row.query_id, candidate) for row in requests(file.url) for candidate in row.candidates
        )
        for number, (query_id, candidate) in enumerate(pairs, 1):
            try:
                doc = doc_of(candidate, hints.fields, hints.template)
                yield number, (query_id, *doc, candidate.get("score"))
            except RowError as error:
                bad(number, error, candidate)

    names = ("query_id", "doc_id", "text", "score")
    first = next((row for _, row in rows(ignore)), names)
    return RecordsDecoder(names if first[-1] is not None else names[:-1], rows, "candidate")


def _open_topics(file: InputFile, _hints: Hints) -> RecordsDecoder:
    def rows(_: Bad) -> Iterator[tuple[int, tuple[str, str]]]:
        return ((request.line, (request.query_id, request.text)) for request in requests(file.url))

    return RecordsDecoder(("query_id", "text"), rows)


_LOOK = Look("rank_llm's JSON (a query and its candidates)", _is_rank_llm)
CORPUS = Format(
    _LOOK,
    _open,
    listed,
    endings=(".json", ".jsonl"),
    candidate_order="the order of the file stands for the ranks",
)
TOPICS = Format(_LOOK, _open_topics)
