"""The one order of a run, and a run in it: its docs and scores in columns, and what its file
showed.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from beamrank.errors import PreflightError
from beamrank.formats.id_places import IdMapping, IdPlaces
from beamrank.formats.reader import TableReader
from beamrank.notes import Note

Ties = Literal["rank", "doc_id"]


@dataclass(frozen=True)
class RunLayout:
    """How a file of a run holds its rows; every file of a run has the layout of the first.

    Attributes:
        url: the file.
        listed: the name of the format of a corpus that lists candidates; empty for a run.
        columns: the meaning and the name of each column; none of a file without rows.
    """

    url: str
    listed: str = ""
    columns: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, file: TableReader) -> Self:
        """The layout of an open file."""
        columns = sorted((meaning, file.names.get(meaning, "")) for meaning in file.binding)
        return cls(file.url, "", tuple(columns))

    @property
    def meanings(self) -> set[str]:
        """The meanings of the columns."""
        return {meaning for meaning, _ in self.columns}

    @property
    def has_scores(self) -> bool:
        """Whether docs are ordered by scores."""
        return bool(self.listed) or "score" in self.meanings

    @property
    def has_ranks(self) -> bool:
        """Whether ranks order docs, or docs of equal scores."""
        return bool(self.listed) or "rank" in self.meanings

    def check(self, other: "RunLayout") -> None:
        """Raises PreflightError where a file differs from the first."""
        if (self.listed, self.columns) == (other.listed, other.columns) or not other.columns:
            return
        raise PreflightError(
            f"{other.url} has {other} in its first row, and {self.url} {self}: the files of one "
            "run have the same columns. Convert one of them, or leave it out",
            kind="parts-differ",
            file=other.url,
        )

    def __str__(self) -> str:
        shown = (name or meaning for meaning, name in self.columns)
        return self.listed or f"the columns {', '.join(shown)}"


class Ordered(NamedTuple):
    """Rows in the order of a run.

    Attributes:
        rows: the rows of each query together, best first.
        begins: int64[q], the first row of each query.
        tied: how many have the score of the row before them, or its rank where there are no scores.
        disagreements: int64[q], how many of a query have scores, and a rank that is not above that
            of the row before.
    """

    rows: pa.Table
    begins: NDArray[np.int64]
    tied: int
    disagreements: NDArray[np.int64]

    @property
    def places(self) -> NDArray[np.int64]:
        """The place of each row in its query, from 0."""
        counts = np.diff([*self.begins, len(self.rows)])
        return np.arange(len(self.rows)) - np.repeat(self.begins, counts)


def order_rows(rows: pa.Table, query: str, layout: RunLayout, ties: Ties) -> Ordered:
    """Orders rows by query, then by score, descending, ties by rank and place, or by doc_id,
    descending.

    A run without scores is ordered by rank and place; one without ranks has ties by doc_id. `rows`
    are given by place, with the columns doc_id, rank, score and the query's.
    """
    by_rank = not layout.has_scores or (ties == "rank" and layout.has_ranks)
    keys = [(query, "ascending"), *([("score", "descending")] if layout.has_scores else [])]
    keys.append(("rank", "ascending") if by_rank else ("doc_id", "descending"))
    rows = rows.take(pc.sort_indices(rows, sort_keys=keys))
    queries = rows[query].combine_chunks()
    same = np.zeros(len(rows), np.bool_)
    same[1:] = pc.equal(queries[1:], queries[:-1]).to_numpy(zero_copy_only=False)
    begins = np.flatnonzero(~same)
    values, ranks = (
        rows["score" if layout.has_scores else "rank"].to_numpy(),
        rows["rank"].to_numpy(),
    )
    tied = int(np.count_nonzero(same[1:] & (values[1:] == values[:-1])))
    wrong = np.zeros(len(rows), np.int64)
    if layout.has_scores and layout.has_ranks:
        wrong[1:] = same[1:] & (ranks[1:] <= ranks[:-1])
    return Ordered(rows, begins, tied, np.add.reduceat(wrong, begins))


def run_values(ordered: Ordered, layout: RunLayout) -> NDArray[np.float32]:
    """The scores of rows; without scores, minus the ranks, which are their places where the file
    has none.
    """
    rows = ordered.rows
    if layout.has_scores:
        return np.asarray(rows["score"])
    ranks = rows["rank"].to_numpy() if layout.has_ranks else ordered.places + 1
    return -np.asarray(ranks, np.float32)


@dataclass(frozen=True)
class RunNotes:
    """Facts about a run that a user should know.

    Attributes:
        format: its name in `run_writer.FORMATS`.
        has_scores: whether its rows have them; otherwise they have ranks.
        tied_scores: rows with the float32 score of the row before them in the order.
        tied_ranks: rows of a run without scores with the rank of the row before them.
        rank_disagreements: rows of a run with scores whose rank is not above the rank of the row
            before them in the order.
        comments: lines that begin with `#`.
        comment_rows: comments that have as many columns as a row.
        rejected: what was left out because it cannot be used.
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
    rejected: tuple[Note, ...] = ()
    excluded: tuple[Note, ...] = ()
    has_scores: bool = True

    def facts(self) -> list[Note]:
        counts = (
            (
                "rows with the score of the row before",
                self.tied_scores,
                "ordered by doc_id, descending, as in trec_eval. A run that is given as the first "
                "stage orders them by rank, unless `candidates.ties` is `doc_id`",
            ),
            ("rows with the rank of the row before", self.tied_ranks, "in the order of the file"),
            (
                "rows whose rank disagrees with the scores",
                self.rank_disagreements,
                "the scores decide, the rank column is not read",
            ),
            ("lines that look like rows but begin with `#`", self.comment_rows, "read as comments"),
        )
        return [
            *(Note(what, f"{count:,}", why) for what, count, why in counts if count),
            *self.rejected,
            *self.excluded,
        ]

    def lines(self) -> list[str]:
        return [str(note) for note in self.facts()]


@dataclass(frozen=True)
class Run:
    """A run in its order, as columns.

    Attributes:
        places: the numbers of the queries, as they first appear in the file.
        starts: int64[queries + 1], the first row of each query, and the end.
        doc_ids: string[n], the docs of each query best first.
        values: float32[n], the scores in the same order; minus the rank where the run has no
            scores.
        notes: facts about the file that a user should know.
    """

    places: IdPlaces
    starts: NDArray[np.int64]
    doc_ids: pa.ChunkedArray
    values: NDArray[np.float32]
    notes: RunNotes

    @property
    def order(self) -> IdMapping[list[str]]:
        """The doc_ids of each query, best first."""
        return IdMapping(self.places, lambda at: self.doc_ids.slice(*self._rows(at)).to_pylist())

    @property
    def scores(self) -> IdMapping[NDArray[np.float32]]:
        """The scores of each query, in the same order."""

        def of_query(at: int) -> NDArray[np.float32]:
            start, count = self._rows(at)
            return self.values[start : start + count]

        return IdMapping(self.places, of_query)

    def _rows(self, at: int) -> tuple[int, int]:
        """The first row of a query, and how many it has."""
        start, end = self.starts[at : at + 2].tolist()
        return start, end - start

    def to_dict(self) -> dict[str, dict[str, float]]:
        """The score of each doc, by query_id and doc_id, best first."""
        rows = zip(self.order.items(), self.scores.values(), strict=True)
        return {
            query_id: dict(zip(ids, scores.tolist(), strict=True))
            for (query_id, ids), scores in rows
        }

    def kept(self, rows: NDArray[np.bool_]) -> "Run":
        """Some rows only, bool[n]; a query without one is left out."""
        counts = np.add.reduceat(rows, self.starts[:-1], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(counts[counts > 0])])
        places = IdPlaces(self.places.ids.filter(pa.array(counts > 0)))
        notes = replace(self.notes, queries=len(places.ids), rows=int(starts[-1]))
        return Run(places, starts, self.doc_ids.filter(pa.array(rows)), self.values[rows], notes)
