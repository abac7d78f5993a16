"""A run in memory: the order of its docs, and what its file showed."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.formats.notes import Note

Indices: TypeAlias = NDArray[np.signedinteger[Any]]

_PACKED_ROWS = 16
_LINE_BITS = 40


class Places(NamedTuple):
    """The lines of the files of a run as numbers, which have that of the file in their upper bits."""

    files: Sequence[str]

    @staticmethod
    def number(file: int, line: int) -> int:
        """The number of a line of a file."""
        return file << _LINE_BITS | line

    @staticmethod
    def split(number: int) -> tuple[int, int]:
        """The file, by its place, and the line of a number."""
        return number >> _LINE_BITS, number & ((1 << _LINE_BITS) - 1)

    def find(self, number: int) -> tuple[str, int]:
        """The file and the line of a number."""
        file, line = self.split(number)
        return self.files[file], line

    def shown(self, number: int) -> str:
        """The line of a number, with its file where there are several."""
        file, line = self.find(number)
        return f"line {line}" if len(self.files) == 1 else f"line {line} of {file}"


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
        return [
            *(Note(what, f"{count:,}", why) for what, count, why in counts if count),
            *self.rejected,
            *self.excluded,
        ]

    def lines(self) -> list[str]:
        return [str(note) for note in self.facts()]


class Orders(Mapping[str, list[str]]):
    """Lists of doc_ids by query_id, each held as one string: a sixth of its memory. A list is made when it is read.

    No doc_id holds a line end (formats/checks.py).
    """

    def __init__(self, orders: Iterable[tuple[str, Iterable[str]]] = ()) -> None:
        self._joined = {query_id: "\n".join(doc_ids) for query_id, doc_ids in orders}

    def __getitem__(self, query_id: str) -> list[str]:
        return self._joined[query_id].split("\n")

    def __contains__(self, query_id: object) -> bool:
        return query_id in self._joined

    def __iter__(self) -> Iterator[str]:
        return iter(self._joined)

    def __len__(self) -> int:
        return len(self._joined)


class RunRow(NamedTuple):
    """One row of a file."""

    query_id: bytes
    doc_id: bytes
    rank: int
    score: float
    line: int


@dataclass
class Query:
    """The rows of one query, in columns, in the order of the file; `packed` are the first doc_ids."""

    doc_ids: list[bytes] = field(default_factory=list)
    scores: "array[float]" = field(default_factory=lambda: array("f"))
    ranks: "array[int]" = field(default_factory=lambda: array("q"))
    lines: "array[int]" = field(default_factory=lambda: array("Q"))
    packed: list[Any] = field(default_factory=list)

    def pack(self) -> None:
        """Holds many doc_ids as an Arrow array, while other queries are read: a fifth of the memory of the list."""
        if len(self.doc_ids) >= _PACKED_ROWS:
            self.packed.append(pa.array(self.doc_ids, pa.binary()))
            self.doc_ids = []

    def unpack(self) -> None:
        """Makes `doc_ids` all of them."""
        self.doc_ids = [doc_id for each in self.packed for doc_id in each.to_pylist()] + self.doc_ids
        self.packed = []

    def add(self, row: RunRow) -> None:
        """Adds the next row."""
        self.doc_ids.append(row.doc_id)
        self.scores.append(row.score)
        self.ranks.append(row.rank)
        self.lines.append(row.line)

    def rows(self, key: bytes) -> Iterator[RunRow]:
        """The rows, with the query_id."""
        for doc_id, rank, score, line in zip(self.doc_ids, self.ranks, self.scores, self.lines, strict=True):
            yield RunRow(key, doc_id, rank, score, line)

    def order(self, has_scores: bool, ties: str) -> Indices:
        """The rows, best first: see `read_run`."""
        scores = np.frombuffer(self.scores, dtype=np.float32)
        ranks = np.frombuffer(self.ranks, dtype=np.int64)
        if not has_scores:
            return np.argsort(ranks, kind="stable")
        return np.lexsort((ranks, -scores)) if ties == "rank" else score_order(scores, self.doc_ids)


class Ordered(NamedTuple):
    """A query's docs, best first, with their scores and ranks."""

    query_id: str
    doc_ids: list[str]
    scores: NDArray[np.float32]
    ranks: NDArray[np.int64]

    @property
    def disagreements(self) -> int:
        """How many docs have a rank that is not above that of the doc before them."""
        return int(np.count_nonzero(self.ranks[1:] <= self.ranks[:-1]))


def score_order(scores: NDArray[np.float32], doc_ids: Sequence[bytes]) -> Indices:
    """The order of trec_eval: by score, descending, ties by doc_id, descending."""
    if len(np.unique(scores)) == len(scores):
        return np.argsort(-scores, kind="stable")
    by_doc_id = sorted(range(len(scores)), key=doc_ids.__getitem__, reverse=True)
    return np.array(by_doc_id)[np.argsort(-scores[by_doc_id], kind="stable")]
