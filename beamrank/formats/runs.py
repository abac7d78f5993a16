"""Runs, read and put in the order in which every measure reads them."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import DataError, PreflightError
from beamrank.formats.candidates import files_of_run
from beamrank.formats.checks import are_usable, checked_queries, shown
from beamrank.formats.columns import Columns
from beamrank.formats.rejects import Rejects
from beamrank.formats.rows import FileRows, Rows, id_reason, number
from beamrank.formats.run_order import Ordered, Orders, Places, Query, RunNotes, RunRow
from beamrank.formats.run_writer import FORMATS, RunFormat, described, text_formats
from beamrank.progress import SILENT, Progress
from beamrank.storage import files as storage

# A file of passages has rows of any number of words.
_TOP1000 = ". MS MARCO's top1000 files are unranked: give one as `candidates.run`"

# What a run's columns are called by their names: they need a rank or a score.
_NAMED = (("query_id", "doc_id", "rank"), ("query_id", "doc_id", "score"))

Ties = Literal["rank", "doc_id"]

_ROWS_AT_ONCE = 1 << 16

RunScores: TypeAlias = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Run:
    """A run in its order.

    Attributes:
        order: the doc_ids of each query, best first; queries as they first appear in the file.
        scores: float32[n] of each query, in the same order; minus the rank where the run has no scores.
        notes: facts about the file that a user should know.
    """

    order: Orders
    scores: dict[str, NDArray[np.float32]]
    notes: RunNotes


def read_run(
    url: str,
    *,
    ties: Ties = "doc_id",
    columns: Columns | None = None,
    rejects: Rejects | None = None,
    progress: Progress = SILENT,
) -> Run:
    """Reads a run from any fsspec URL: a file, compressed or not, a folder or a glob. Its format is detected.

    A run with scores is ordered by float32 score, descending, ties by doc_id, descending in UTF-8 bytes: trec_eval's
    order. Its rank column is not read. A run without scores is ordered by rank, ties in the order of the file.

    Args:
        url: the file, the folder of its parts, or a glob.
        ties: how tied scores are ordered: `rank` takes the rank column, if there is one (for a run that feeds a stage).
        columns: names of its columns, where they have others than usual.
        rejects: takes the rows that cannot be used, which are left out; by default each is an error.
        progress: receives the rows that are read.

    Raises:
        PreflightError: the file does not exist, or lines are wrong: columns, ranks, scores that are not finite in
            float32, invalid UTF-8, ids that cannot be used (formats/checks.py), more than may be left out; or, always,
            a doc_id twice for a query, or rows of another format. The first of each kind is listed.
    """
    rows = open_run(url, columns, rejects)
    queries: dict[bytes, Query] = {}
    key, query = b"", Query()
    for read, row in enumerate(rows.rows()):
        if row.query_id != key or not read:
            query.pack()
            key = row.query_id
            query = queries.get(key) or queries.setdefault(key, Query())
        query.add(row)
        if read % _ROWS_AT_ONCE == 0:
            progress.update(read, None, f"rows of {storage.name(url)} read")
    del query
    ordered = (rows.ordered(each, queries.pop(each), ties) for each in list(queries))
    run = _collected(ordered, rows.format_name, rows.has_both)
    rows.check("run", run.notes.rows)
    rows_in_comments = sum(len(comment.split()) == len(rows.format.columns) for comment in rows.comments)
    rejected = () if rejects is None else rejects.notes()
    notes = replace(run.notes, comments=len(rows.comments), comment_rows=rows_in_comments, rejected=rejected)
    return replace(run, notes=notes)


def _collected(queries: Iterable[Ordered | None], name: str, has_both: bool) -> Run:
    """A run of queries in their order; `has_both`: scores, and ranks that may disagree with them."""
    has_scores = FORMATS[name].has_scores
    scores: dict[str, NDArray[np.float32]] = {}
    tied = disagreements = 0

    def orders() -> Iterator[tuple[str, list[str]]]:
        nonlocal tied, disagreements
        for each in queries:
            if each is not None:
                values: NDArray[Any] = each.scores if has_scores else each.ranks
                tied += int(np.count_nonzero(values[1:] == values[:-1]))
                disagreements += each.disagreements if has_both else 0
                scores[each.query_id] = each.scores
                yield each.query_id, each.doc_ids

    order = Orders(orders())
    count = sum(map(len, scores.values()))
    tied_scores, tied_ranks = (tied, 0) if has_scores else (0, tied)
    return Run(order, scores, RunNotes(name, len(order), count, tied_scores, tied_ranks, disagreements))


def iterate_run(url: str, *, ties: Ties = "doc_id") -> Iterator[tuple[str, list[str], NDArray[np.float32], int]]:
    """Yields the queries of a run with their docs and scores as in `read_run`, and holds one query at a time.

    The number is that of `RunNotes.rank_disagreements`. A query whose rows are apart in the file is yielded more than
    once.
    """
    rows, count = open_run(url), 0
    for key, group in groupby(rows.rows(), attrgetter("query_id")):
        query = Query()
        for row in group:
            query.add(row)
        found = rows.ordered(key, query, ties)
        if found is None:
            continue
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


def _ordered_dictionary(query_id: str, docs: Mapping[str, float], ties: Ties) -> Ordered:
    try:
        scores = array("f", docs.values())
    except (TypeError, OverflowError) as error:
        raise DataError(f"query {query_id!r} of the run has a score that cannot be used: {error}") from error
    query = Query([doc_id.encode() for doc_id in docs], scores, array("q", range(len(docs))))
    indices = query.order(True, ties)
    found = Ordered(
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

    def __init__(self, url: str, columns: Columns | None = None, rejects: Rejects | None = None) -> None:
        plain = {name: each.columns for name, each in text_formats().items()}
        super().__init__(url, _NAMED, plain, columns, f"; {described()}", rejects)

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

    def rows(self, found: Rows | None = None) -> Iterator[RunRow]:
        """Yields the rows of `found`, by default of the whole file; the others are problems."""
        query_at = -1
        for line, columns in self if found is None else found:
            if query_at < 0:
                query_at, doc_at = self.places["query_id"], self.places["doc_id"]
                rank_at, score_at = self.places.get("rank"), self.places.get("score")
            try:
                rank = line if rank_at is None else number(int, columns[rank_at])
                score = -float(rank) if score_at is None else number(float, columns[score_at])
                if not -(2**63) <= rank < 2**63:
                    raise OverflowError
            except (ValueError, OverflowError):
                numbers = [None if place is None else columns[place] for place in (rank_at, score_at)]
                self.bad(line, _explain_numbers(*numbers), columns)
                continue
            yield RunRow(columns[query_at], columns[doc_at], rank, score, line)

    def where(self, line: int) -> str:
        """Where a row is, for messages."""
        return f"{self.noun} {line}"

    def explain_columns(self, count: int) -> str:
        return super().explain_columns(count) if self.names else explain_columns(count, self.name or None)

    def ordered(self, key: bytes, query: Query, ties: Ties) -> Ordered | None:
        """The docs of a query in their order, if any is left: those that cannot be used are problems."""
        query.unpack()
        self._check_duplicates(key, query)
        found = self._in_order(key, query, ties)
        if found is not None:
            return found
        usable = self._usable(key, query)
        return self._in_order(key, usable, ties) if usable.doc_ids else None

    def _in_order(self, key: bytes, query: Query, ties: Ties) -> Ordered | None:
        """The docs of a query in their order; None where one cannot be used."""
        scores, ranks = np.frombuffer(query.scores, np.float32), np.frombuffer(query.ranks, np.int64)
        indices = query.order(self.format.has_scores, ties if "rank" in self.places else "doc_id")
        try:
            query_id, doc_ids = key.decode(), [query.doc_ids[i].decode() for i in indices.tolist()]
        except UnicodeDecodeError:
            return None
        is_usable = np.isfinite(scores).all() and are_usable([query_id, *doc_ids])
        return Ordered(query_id, doc_ids, scores[indices], ranks[indices]) if is_usable else None

    def _usable(self, key: bytes, query: Query) -> Query:
        """The rows of a query that can be used; the others are problems."""
        usable = Query()
        for row in filter(self.is_usable, query.rows(key)):
            usable.add(row)
        return usable

    def is_usable(self, row: RunRow) -> bool:
        """Whether ids and score of a row can be used; else it is a problem."""
        reason = id_reason(row.query_id) or id_reason(row.doc_id)
        if not reason and not np.isfinite(np.float32(row.score)):
            reason = f"the score of doc {shown(row.doc_id)} is not finite in float32"
        if reason:
            self.bad(row.line, reason, row[:4])
        return not reason

    def _check_duplicates(self, key: bytes, query: Query) -> None:
        if len(set(query.doc_ids)) == len(query.doc_ids):
            return
        first: dict[bytes, int] = {}
        for doc_id, line in zip(query.doc_ids, query.lines, strict=True):
            if first.setdefault(doc_id, line) != line:
                reason = f"query {shown(key)} has doc {shown(doc_id)} already on {self.where(first[doc_id])}"
                self.bad(line, reason, always=True)


class RunFiles(RunRows):
    """The valid rows of a run of several files, which have the columns of the first.

    The line of a row is its number (`Places`).
    """

    def __init__(
        self, url: str, files: Sequence[str], columns: Columns | None = None, rejects: Rejects | None = None
    ) -> None:
        super().__init__(url, columns, rejects)
        self._files = [RunRows(each, columns, rejects) for each in files]

    def rows(self, found: Rows | None = None) -> Iterator[RunRow]:  # noqa: ARG002
        for place, file in enumerate(self._files):
            first = Places.number(place, 0)
            for query_id, doc_id, rank, score, line in file.rows():
                if self.places is not file.places:
                    self._check_columns(file, line)
                yield RunRow(query_id, doc_id, rank, score, first | line)
            self.comments += file.comments

    def _check_columns(self, file: RunRows, line: int) -> None:
        """Takes the columns of a file, which must be those of the files before it."""
        before, now = ((each.name, each.names, each.places) for each in (self, file))
        if self.places and before != now:
            known, found = (", ".join(names or places) for _, names, places in (before, now))
            raise PreflightError(
                f"{file.url}, {file.where(line)}: its columns are {found}, and those of {self._files[0].url} are "
                f"{known}. All files of a run must have the same: give a glob that matches only its own"
            )
        self.name, self.names, self.places = now

    def bad(self, line: int, reason: str, row: Any = "", *, always: bool = False) -> None:
        place, line = Places.split(line)
        self._files[place].bad(line, reason, row, always=always)

    def where(self, line: int) -> str:
        place, line = Places.split(line)
        return f"{self._files[place].where(line)} of {self._files[place].url}"

    def check(self, what: str, rows: int = 1) -> None:
        for each in self._files:
            each.check(what)
        super().check(what, rows)


def open_run(url: str, columns: Columns | None = None, rejects: Rejects | None = None) -> RunRows:
    """The rows of a run: of a file, a folder or a glob."""
    files = files_of_run(url)
    return RunRows(files[0], columns, rejects) if len(files) == 1 else RunFiles(url, files, columns, rejects)


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
