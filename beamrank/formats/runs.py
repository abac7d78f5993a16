"""Runs, read and put in the order in which every measure reads them (docs/reference/measures.md)."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import DataError
from beamrank.formats.columns import Rows, number, shown
from beamrank.formats.ids import are_usable, check_given_ids

Ties = Literal["rank", "doc_id"]

RunFormat = Literal["trec", "msmarco"]
RunScores: TypeAlias = dict[str, dict[str, float]]
Indices: TypeAlias = NDArray[np.signedinteger[Any]]

_TREC_COLUMNS = "query_id Q0 doc_id rank score run_tag"
_FORMATS = f"TREC's six columns are {_TREC_COLUMNS}, MS MARCO's three are query_id doc_id rank"


@dataclass(frozen=True)
class RunNotes:
    """What a reader should know about a run.

    Attributes:
        tied_scores: rows of a TREC run whose float32 score equals that of the row before them in the order.
        tied_ranks: rows of a three-column run whose rank equals that of the row before them.
        rank_disagreements: rows of a TREC run whose rank column is not above that of the row before them in the order.
        comments: lines that begin with `#`.
        comment_rows: comments that have as many columns as a row.
    """

    format: RunFormat
    queries: int
    rows: int
    tied_scores: int = 0
    tied_ranks: int = 0
    rank_disagreements: int = 0
    comments: int = 0
    comment_rows: int = 0

    def lines(self) -> list[str]:
        """What is worth saying, a line each."""
        said = []
        if self.tied_scores:
            said.append(
                f"rows with the score of the row before: {self.tied_scores:,}; ordered by doc_id, descending, as in "
                "trec_eval. A run that is given as the first stage orders them by rank, unless `candidates.ties` is "
                "`doc_id`"
            )
        if self.tied_ranks:
            said.append(f"rows with the rank of the row before: {self.tied_ranks:,}; ordered as they stand in the file")
        if self.rank_disagreements:
            said.append(
                f"rows whose rank disagrees with the scores: {self.rank_disagreements:,}; "
                "the scores decide, the rank column is not read"
            )
        if self.comment_rows:
            said.append(f"lines that look like rows but begin with `#`: {self.comment_rows:,}; read as comments")
        return said


@dataclass(frozen=True)
class Run:
    """A run in its order.

    Attributes:
        order: the doc_ids of each query, best first; queries as they first appear in the file.
        scores: float32[n] of each query, in the same order; minus the rank where the run has no scores.
        notes: what is worth knowing about the file.
    """

    order: dict[str, list[str]]
    scores: dict[str, NDArray[np.float32]]
    notes: RunNotes


@dataclass
class _Query:
    """The rows of one query, in columns, as they stand in the file."""

    doc_ids: list[bytes] = field(default_factory=list)
    scores: "array[float]" = field(default_factory=lambda: array("f"))
    ranks: "array[int]" = field(default_factory=lambda: array("q"))
    lines: "array[int]" = field(default_factory=lambda: array("Q"))


def read_run(url: str, *, ties: Ties = "doc_id") -> Run:
    """Reads a run from any fsspec URL, compressed or not; its format is detected.

    A TREC run is ordered by float32 score, descending, ties by doc_id, descending in UTF-8 bytes: trec_eval's order.
    Its rank column is not read. A three-column run is ordered by rank, whatever its first is, ties as they stand.

    Args:
        url: the file.
        ties: how tied scores are ordered: `rank` takes the rank column instead (for a run that feeds a stage).

    Raises:
        PreflightError: the file does not exist, or lines are wrong: columns, ranks, scores that are not finite in
            float32, a doc_id twice for a query, invalid UTF-8, ids that cannot be used (formats/ids.py). The first of
            each kind is listed.
    """
    rows = Rows(url)
    run_format, queries = _read_queries(rows)
    order: dict[str, list[str]] = {}
    scores: dict[str, NDArray[np.float32]] = {}
    tied_scores = tied_ranks = disagreements = 0
    for key in list(queries):
        query = queries.pop(key)
        _check_scores(rows, query)
        _check_duplicates(rows, key, query)
        indices = _order(query, run_format, ties)
        ranks = np.frombuffer(query.ranks, dtype=np.int64)[indices]
        query_scores = np.frombuffer(query.scores, dtype=np.float32)[indices]
        tied_scores += int(np.count_nonzero(query_scores[1:] == query_scores[:-1]))
        tied_ranks += int(np.count_nonzero(ranks[1:] == ranks[:-1]))
        disagreements += int(np.count_nonzero(ranks[1:] <= ranks[:-1]))
        query_id = _checked_query_id(rows, key, query.lines[0])
        order[query_id] = _decode_docs(rows, query, indices)
        scores[query_id] = query_scores
    row_count = sum(map(len, order.values()))
    rows.check("run", row_count)
    is_trec = run_format == "trec"
    notes = RunNotes(
        format=run_format,
        queries=len(order),
        rows=row_count,
        tied_scores=tied_scores if is_trec else 0,
        tied_ranks=0 if is_trec else tied_ranks,
        rank_disagreements=disagreements if is_trec else 0,
        comments=len(rows.comments),
        comment_rows=sum(_format_of(comment.split()) == run_format for comment in rows.comments),
    )
    return Run(order, scores, notes)


def run_of(scores: Mapping[str, Mapping[str, float]], *, ties: Ties = "doc_id") -> Run:
    """A run in memory, in the order of `read_run`.

    Args:
        scores: the score of each doc, by query_id and doc_id; queries without docs are left out.
        ties: how scores that tie in float32 are ordered: `rank` keeps the order in which they are given.

    Raises:
        DataError: there are no rows, an id cannot be used (formats/ids.py), or a score is not finite in float32.
    """
    order: dict[str, list[str]] = {}
    found: dict[str, NDArray[np.float32]] = {}
    tied_scores = disagreements = 0
    for query_id, docs in scores.items():
        check_given_ids("the run", query_id, docs)
        if not docs:
            continue
        query = _Query([doc_id.encode() for doc_id in docs], array("f", docs.values()), array("q", range(len(docs))))
        indices = _order(query, "trec", ties)
        order[query_id] = [query.doc_ids[i].decode() for i in indices]
        found[query_id] = np.frombuffer(query.scores, dtype=np.float32)[indices]
        for doc_id, score in zip(order[query_id], found[query_id], strict=True):
            if not np.isfinite(score):
                raise DataError(f"query {query_id!r}: the score of doc {doc_id!r} is not finite in float32: {score}")
        tied_scores += int(np.count_nonzero(found[query_id][1:] == found[query_id][:-1]))
        disagreements += int(np.count_nonzero(np.diff(indices) <= 0))
    if not order:
        raise DataError("the run has no rows: give at least one query with one doc")
    notes = RunNotes("trec", len(order), sum(map(len, order.values())), tied_scores, rank_disagreements=disagreements)
    return Run(order, found, notes)


def _read_queries(rows: Rows) -> tuple[RunFormat, dict[bytes, _Query]]:
    run_format: RunFormat | None = None
    queries: dict[bytes, _Query] = {}
    for line, columns in rows:
        row_format = _format_of(columns)
        run_format = run_format or row_format
        if row_format is None or row_format != run_format:
            rows.bad(line, _explain_columns(len(columns), run_format))
            continue
        query = queries.get(columns[0]) or queries.setdefault(columns[0], _Query())
        try:
            if run_format == "trec":
                doc_id, rank, score = columns[2], number(int, columns[3]), number(float, columns[4])
            else:
                doc_id, rank = columns[1], number(int, columns[2])
                score = -float(rank)
            query.ranks.append(rank)
        except (ValueError, OverflowError):
            rows.bad(line, _explain_numbers(columns, run_format))
            continue
        query.doc_ids.append(doc_id)
        query.scores.append(score)
        query.lines.append(line)
    return run_format or "trec", {key: query for key, query in queries.items() if query.lines}


def _format_of(columns: list[bytes]) -> RunFormat | None:
    return "trec" if len(columns) == 6 else "msmarco" if len(columns) == 3 else None


def _explain_columns(count: int, run_format: RunFormat | None) -> str:
    if count > 6 and run_format != "msmarco":
        return (
            f"{count} columns, and a TREC run has six ({_TREC_COLUMNS}): the line holds more than one row, or words "
            "after the run_tag"
        )
    if run_format is not None:
        return f"{count} columns, where the rows before are {'TREC' if run_format == 'trec' else 'MS MARCO'} rows"
    return f"{count} columns: {_FORMATS}" + ("; four are TREC qrels" if count == 4 else "")


def _explain_numbers(columns: list[bytes], run_format: RunFormat) -> str:
    if run_format == "msmarco":
        return f"rank {shown(columns[2])} is not a whole number ({_FORMATS})"
    return f"rank {shown(columns[3])} must be a whole number and score {shown(columns[4])} a number ({_FORMATS})"


def _check_scores(rows: Rows, query: _Query) -> None:
    for i in np.flatnonzero(~np.isfinite(np.frombuffer(query.scores, dtype=np.float32))):
        rows.bad(query.lines[i], f"the score of doc {shown(query.doc_ids[i])} is not finite in float32")


def _check_duplicates(rows: Rows, key: bytes, query: _Query) -> None:
    if len(set(query.doc_ids)) == len(query.doc_ids):
        return
    first: dict[bytes, int] = {}
    for doc_id, line in zip(query.doc_ids, query.lines, strict=True):
        if first.setdefault(doc_id, line) != line:
            rows.bad(line, f"query {shown(key)} has doc {shown(doc_id)} already on line {first[doc_id]}")


def _order(query: _Query, run_format: RunFormat, ties: Ties) -> Indices:
    scores = np.frombuffer(query.scores, dtype=np.float32)
    ranks = np.frombuffer(query.ranks, dtype=np.int64)
    if run_format == "msmarco":
        return np.argsort(ranks, kind="stable")
    if ties == "rank":
        return np.lexsort((ranks, -scores))
    if len(np.unique(scores)) == len(scores):
        return np.argsort(-scores, kind="stable")
    by_doc_id = sorted(range(len(scores)), key=query.doc_ids.__getitem__, reverse=True)
    return np.array(by_doc_id)[np.argsort(-scores[by_doc_id], kind="stable")]


def _decode_docs(rows: Rows, query: _Query, indices: Indices) -> list[str]:
    """The doc_ids in their order, checked."""
    try:
        doc_ids = [query.doc_ids[i].decode() for i in indices.tolist()]
    except UnicodeDecodeError:
        doc_ids = [_decode(rows, query.doc_ids[i], query.lines[i]) for i in indices]
    if not are_usable(doc_ids):
        for doc_id, i in zip(doc_ids, indices.tolist(), strict=True):
            rows.check_id(query.lines[i], doc_id)
    return doc_ids


def _checked_query_id(rows: Rows, key: bytes, line: int) -> str:
    query_id = _decode(rows, key, line)
    rows.check_id(line, query_id)
    return query_id


def _decode(rows: Rows, text: bytes, line: int) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        rows.bad(line, f"{shown(text)} is not valid UTF-8")
        return text.decode("utf-8", "backslashreplace")
