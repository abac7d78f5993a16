"""Runs, read and put in the order in which every measure reads them."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import DataError
from beamrank.formats.checks import are_usable, checked_queries, shown
from beamrank.formats.columns import Columns
from beamrank.formats.notes import Note
from beamrank.formats.rows import FileRows, number
from beamrank.formats.run_writer import FORMATS, RunFormat, described
from beamrank.progress import SILENT, Progress
from beamrank.storage import files as storage

# A file of passages has rows of any number of words.
_TOP1000 = ". MS MARCO's top1000 files are unranked: give one as `candidates.run`"

# What a run's columns are called by their names: they need a rank or a score.
_NAMED = (("query_id", "doc_id", "rank"), ("query_id", "doc_id", "score"))

Ties = Literal["rank", "doc_id"]

_ROWS_AT_ONCE = 1 << 16

RunScores: TypeAlias = dict[str, dict[str, float]]
Indices: TypeAlias = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class RunNotes:
    """Facts about a run that a user should know.

    Attributes:
        format: its name in `run_writer.FORMATS`.
        tied_scores: rows whose float32 score equals that of the row before them in the order.
        tied_ranks: rows of a run without scores whose rank equals that of the row before them.
        rank_disagreements: rows of a run with scores whose rank is not above that of the row before them in the order.
        comments: lines that begin with `#`.
        comment_rows: comments that have as many columns as a row.
        remarks: what else the reader found, a line each.
        excluded: what was left out of the run (formats/excluded.py).
    """

    format: str
    queries: int
    rows: int
    tied_scores: int = 0
    tied_ranks: int = 0
    rank_disagreements: int = 0
    comments: int = 0
    comment_rows: int = 0
    remarks: tuple[str, ...] = ()
    excluded: tuple[Note, ...] = ()

    def facts(self) -> list[Note]:
        counts = (
            (
                "rows with the score of the row before",
                self.tied_scores,
                "ordered by doc_id, descending, as in trec_eval. A run that is given as the first stage orders them by "
                "rank, unless `candidates.ties` is `doc_id`",
            ),
            ("rows with the rank of the row before", self.tied_ranks, "in the order of the file"),
            (
                "rows whose rank disagrees with the scores",
                self.rank_disagreements,
                "the scores decide, the rank column is not read",
            ),
            ("lines that look like rows but begin with `#`", self.comment_rows, "read as comments"),
        )
        return [*(Note(what, f"{count:,}", why) for what, count, why in counts if count), *self.excluded]

    def lines(self) -> list[str]:
        return [str(note) for note in self.facts()]


@dataclass(frozen=True)
class Run:
    """A run in its order.

    Attributes:
        order: the doc_ids of each query, best first; queries as they first appear in the file.
        scores: float32[n] of each query, in the same order; minus the rank where the run has no scores.
        notes: facts about the file that a user should know.
    """

    order: dict[str, list[str]]
    scores: dict[str, NDArray[np.float32]]
    notes: RunNotes


class _Row(NamedTuple):
    query_id: bytes
    doc_id: bytes
    rank: int
    score: float
    line: int


@dataclass
class _Query:
    """The rows of one query, in columns, in the order of the file."""

    doc_ids: list[bytes] = field(default_factory=list)
    scores: "array[float]" = field(default_factory=lambda: array("f"))
    ranks: "array[int]" = field(default_factory=lambda: array("q"))
    lines: "array[int]" = field(default_factory=lambda: array("Q"))

    def add(self, row: _Row) -> None:
        self.doc_ids.append(row.doc_id)
        self.scores.append(row.score)
        self.ranks.append(row.rank)
        self.lines.append(row.line)

    def order(self, has_scores: bool, ties: Ties) -> Indices:
        scores = np.frombuffer(self.scores, dtype=np.float32)
        ranks = np.frombuffer(self.ranks, dtype=np.int64)
        if not has_scores:
            return np.argsort(ranks, kind="stable")
        return np.lexsort((ranks, -scores)) if ties == "rank" else score_order(scores, self.doc_ids)


class _Ordered(NamedTuple):
    """A query's docs, best first, with their scores and ranks."""

    query_id: str
    doc_ids: list[str]
    scores: NDArray[np.float32]
    ranks: NDArray[np.int64]

    @property
    def disagreements(self) -> int:
        """How many docs have a rank that is not above that of the doc before them."""
        return int(np.count_nonzero(self.ranks[1:] <= self.ranks[:-1]))


def read_run(url: str, *, ties: Ties = "doc_id", columns: Columns | None = None, progress: Progress = SILENT) -> Run:
    """Reads a run from any fsspec URL, compressed or not; its format is detected.

    A run with scores is ordered by float32 score, descending, ties by doc_id, descending in UTF-8 bytes: trec_eval's
    order. Its rank column is not read. A run without scores is ordered by rank, ties in the order of the file.

    Args:
        url: the file.
        ties: how tied scores are ordered: `rank` takes the rank column instead (for a run that feeds a stage).
        columns: names of its columns, where they have others than usual.
        progress: receives the rows that are read.

    Raises:
        PreflightError: the file does not exist, or lines are wrong: columns, ranks, scores that are not finite in
            float32, a doc_id twice for a query, invalid UTF-8, ids that cannot be used (formats/checks.py). The
            first of each kind is listed.
    """
    rows = RunRows(url, columns)
    queries: dict[bytes, _Query] = {}
    for read, row in enumerate(rows.rows()):
        query = queries.get(row.query_id) or queries.setdefault(row.query_id, _Query())
        query.add(row)
        if read % _ROWS_AT_ONCE == 0:
            progress.update(read, None, f"rows of {storage.name(url)} read")
    ordered = (rows.ordered(key, queries.pop(key), ties) for key in list(queries))
    run = _collected(ordered, rows.format_name, rows.has_both)
    rows.check("run", run.notes.rows)
    rows_in_comments = sum(len(comment.split()) == len(rows.format.columns) for comment in rows.comments)
    return replace(run, notes=replace(run.notes, comments=len(rows.comments), comment_rows=rows_in_comments))


def _collected(queries: Iterable[_Ordered], name: str, has_both: bool) -> Run:
    """A run of queries in their order; `has_both`: scores, and ranks that may disagree with them."""
    has_scores = FORMATS[name].has_scores
    order: dict[str, list[str]] = {}
    scores: dict[str, NDArray[np.float32]] = {}
    tied = disagreements = 0
    for each in queries:
        values: NDArray[Any] = each.scores if has_scores else each.ranks
        tied += int(np.count_nonzero(values[1:] == values[:-1]))
        disagreements += each.disagreements if has_both else 0
        order[each.query_id], scores[each.query_id] = each.doc_ids, each.scores
    count = sum(map(len, order.values()))
    tied_scores, tied_ranks = (tied, 0) if has_scores else (0, tied)
    return Run(order, scores, RunNotes(name, len(order), count, tied_scores, tied_ranks, disagreements))


def iterate_run(url: str, *, ties: Ties = "doc_id") -> Iterator[tuple[str, list[str], NDArray[np.float32], int]]:
    """Yields the queries of a run with their docs and scores as in `read_run`, and holds one query at a time.

    The number is that of `RunNotes.rank_disagreements`. A query whose rows are apart in the file is yielded more than
    once.
    """
    rows, count = RunRows(url), 0
    for key, group in groupby(rows.rows(), attrgetter("query_id")):
        query = _Query()
        for row in group:
            query.add(row)
        found = rows.ordered(key, query, ties)
        count += len(found.doc_ids)
        yield found.query_id, found.doc_ids, found.scores, found.disagreements if rows.has_both else 0
    rows.check("run", count)


def run_of(scores: Mapping[str, Mapping[str, float]], *, ties: Ties = "doc_id") -> Run:
    """A run in memory, in the order of `read_run`.

    Args:
        scores: the score of each doc, by query_id and doc_id; queries without docs are left out.
        ties: how scores that tie in float32 are ordered: `rank` keeps the order of the dictionary.

    Raises:
        DataError: there are no rows, an id cannot be used, or a score is not finite in float32.
    """
    queries = (_ordered_dictionary(each, docs, ties) for each, docs in checked_queries("the run", scores) if docs)
    run = _collected(queries, "trec", True)
    if not run.order:
        raise DataError("the run has no rows: give at least one query with one doc")
    return run


def _ordered_dictionary(query_id: str, docs: Mapping[str, float], ties: Ties) -> _Ordered:
    try:
        scores = array("f", docs.values())
    except (TypeError, OverflowError) as error:
        raise DataError(f"query {query_id!r} of the run has a score that cannot be used: {error}") from error
    query = _Query([doc_id.encode() for doc_id in docs], scores, array("q", range(len(docs))))
    indices = query.order(True, ties)
    found = _Ordered(
        query_id,
        [query.doc_ids[i].decode() for i in indices],
        np.frombuffer(scores, dtype=np.float32)[indices],
        indices.astype(np.int64),
    )
    for doc_id, score in zip(found.doc_ids, found.scores, strict=True):
        if not np.isfinite(score):
            raise DataError(f"query {query_id!r}: the score of doc {doc_id!r} is not finite in float32: {score}")
    return found


class RunRows(FileRows):
    """The valid rows of a run file."""

    def __init__(self, url: str, columns: Columns | None = None) -> None:
        plain = {name: each.columns for name, each in FORMATS.items()}
        super().__init__(url, _NAMED, plain, columns, f"; {described()}")

    @property
    def format_name(self) -> str:
        named = "trec" if "score" in self.places else "msmarco"
        return named if self.names else self.name or "trec"

    @property
    def format(self) -> RunFormat:
        return FORMATS[self.format_name]

    @property
    def has_both(self) -> bool:
        """Whether the rows so far have scores and ranks."""
        return "score" in self.places and "rank" in self.places

    def rows(self) -> Iterator[_Row]:
        """Yields the rows; the others are problems."""
        query_at = -1
        for line, columns in self:
            if query_at < 0:
                query_at, doc_at = self.places["query_id"], self.places["doc_id"]
                rank_at, score_at = self.places.get("rank"), self.places.get("score")
            try:
                rank = line if rank_at is None else number(int, columns[rank_at])
                score = -float(rank) if score_at is None else number(float, columns[score_at])
                if not -(2**63) <= rank < 2**63:
                    raise OverflowError
            except (ValueError, OverflowError):
                found = [None if place is None else columns[place] for place in (rank_at, score_at)]
                self.bad(line, _explain_numbers(*found))
                continue
            yield _Row(columns[query_at], columns[doc_at], rank, score, line)

    def explain_columns(self, count: int) -> str:
        return super().explain_columns(count) if self.names else explain_columns(count, self.name or None)

    def ordered(self, key: bytes, query: _Query, ties: Ties) -> _Ordered:
        """The docs of a query in their order; those that cannot be used are problems."""
        scores = np.frombuffer(query.scores, dtype=np.float32)
        for i in np.flatnonzero(~np.isfinite(scores)):
            self.bad(query.lines[i], f"the score of doc {shown(query.doc_ids[i])} is not finite in float32")
        self._check_duplicates(key, query)
        indices = query.order(self.format.has_scores, ties)
        query_id = self.text(query.lines[0], key)
        self.check_id(query.lines[0], query_id)
        ranks = np.frombuffer(query.ranks, dtype=np.int64)
        return _Ordered(query_id, self._decode_docs(query, indices), scores[indices], ranks[indices])

    def _check_duplicates(self, key: bytes, query: _Query) -> None:
        if len(set(query.doc_ids)) == len(query.doc_ids):
            return
        first: dict[bytes, int] = {}
        for doc_id, line in zip(query.doc_ids, query.lines, strict=True):
            if first.setdefault(doc_id, line) != line:
                self.bad(line, f"query {shown(key)} has doc {shown(doc_id)} already on line {first[doc_id]}")

    def _decode_docs(self, query: _Query, indices: Indices) -> list[str]:
        """The doc_ids in their order, checked."""
        try:
            doc_ids = [query.doc_ids[i].decode() for i in indices.tolist()]
        except UnicodeDecodeError:
            doc_ids = [self.text(query.lines[i], query.doc_ids[i]) for i in indices]
        if not are_usable(doc_ids):
            for doc_id, i in zip(doc_ids, indices.tolist(), strict=True):
                self.check_id(query.lines[i], doc_id)
        return doc_ids


def explain_columns(count: int, name: str | None) -> str:
    """What is wrong with a line that has this number of columns, in a run of a format or of none yet."""
    if name is None:
        return (
            f"{count} columns; {described()}" + ("; four are TREC qrels" if count == 4 else "") + _TOP1000 * (count > 6)
        )
    columns = FORMATS[name].columns
    longer = ": the line holds more than one row, or words after the last column" if count > len(columns) else ""
    return (
        f"{count} columns, where the rows before are {FORMATS[name].title} rows of {len(columns)} "
        f"({' '.join(columns)}){longer}"
    )


def _explain_numbers(rank: bytes | None, score: bytes | None) -> str:
    if rank is None or score is None:
        what = "score" if rank is None else "rank"
        return f"{what} {shown(rank or score or b'')} is not a {'whole ' * (rank is not None)}number ({described()})"
    return f"rank {shown(rank)} must be a whole number and score {shown(score)} a number ({described()})"


def score_order(scores: NDArray[np.float32], doc_ids: Sequence[bytes]) -> Indices:
    """The order of trec_eval: by score, descending, ties by doc_id, descending."""
    if len(np.unique(scores)) == len(scores):
        return np.argsort(-scores, kind="stable")
    by_doc_id = sorted(range(len(scores)), key=doc_ids.__getitem__, reverse=True)
    return np.array(by_doc_id)[np.argsort(-scores[by_doc_id], kind="stable")]
