"""Docs that are left out of rankings: the doc that is the query itself, or the pairs of a file."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from beamrank.errors import DataError, PreflightError
from beamrank.formats.checks import check_ids_of_query
from beamrank.formats.files import input_files
from beamrank.formats.reader import TableReader, check_all
from beamrank.formats.run_order import Run
from beamrank.formats.schemas import EXCLUDED
from beamrank.notes import Note, first_few
from beamrank.records import Relevance
from beamrank.section import SELF
from beamrank.storage.documents import digest

# Where the doc of a query's own id is among the first so many, and that in so large a share of the
# queries, queries are docs. Fewer meet by chance: topic 12 may well find doc 12.
OWN_DEPTH = 10
OWN_SHARE = 0.5
# What Lucene takes.
_MOST = 2**31 - 1


@dataclass(frozen=True)
class Excluded:
    """The docs that are left out of the ranking of each query.

    Attributes:
        source: `self`, or the file, for messages.
        pairs: the docs by query_id; None for the doc that has the query's own id.
        repeated: how many pairs the file has again.
    """

    source: str
    pairs: Mapping[str, frozenset[str]] | None = None
    repeated: int = 0

    def of(self, query_id: str) -> frozenset[str]:
        """The docs that are left out of the ranking of a query."""
        return (
            frozenset((query_id,)) if self.pairs is None else self.pairs.get(query_id, frozenset())
        )

    def kept(self, query_id: str, doc_ids: Sequence[str]) -> list[int]:
        """The places of the docs of a ranking that are not left out."""
        excluded = self.of(query_id)
        return [place for place, doc_id in enumerate(doc_ids) if doc_id not in excluded]

    def depth(self, query_ids: Iterable[str], k: int) -> int:
        """How many docs of each query to find, so that `k` are left."""
        return min(k + max((len(self.of(query_id)) for query_id in query_ids), default=0), _MOST)

    @property
    def digest(self) -> str:
        """`self`, or the digest of the pairs, whatever their order."""
        return (
            SELF
            if self.pairs is None
            else digest({one: sorted(docs) for one, docs in self.pairs.items()})
        )

    def facts(self, query_ids: Collection[str], relevance: Relevance) -> list[Note]:
        """Notes for the user.

        Args:
            query_ids: the queries that are ranked.
            relevance: the judgments, by query_id and doc_id.
        """
        pairs = self.pairs or {}
        unknown = [query_id for query_id in pairs if query_id not in query_ids]
        relevant = [
            f"{query_id} {doc_id}"
            for query_id, docs in relevance.items()
            for doc_id in sorted(self.of(query_id).intersection(docs))
            if docs[doc_id] > 0
        ]
        words = f" of {len(pairs):,} ({first_few(unknown)})"
        return self._notes(
            ("pairs that are there again", self.repeated, "", "each counts once"),
            ("queries without a ranking", len(unknown), words, "not used"),
            (
                *("docs that are judged relevant", len(relevant)),
                *(f" ({first_few(relevant)})", "they count as not found"),
            ),
        )

    def left_out(self, run: Run, relevance: Relevance) -> Run:
        """A run without these docs, whose notes say what was left out; raises PreflightError if it
        has no others.
        """
        others = [
            doc_id not in excluded
            for query_id, doc_ids in run.order.items()
            for excluded in [self.of(query_id)]
            for doc_id in doc_ids
        ]
        if not any(others):
            raise PreflightError(f"{self.source} excludes all docs of the run")
        kept = run.kept(np.array(others))
        emptied = [query_id for query_id in run.order if query_id not in kept.order]
        count = run.notes.rows - kept.notes.rows
        unknown = sum(len(self.of(query_id)) for query_id in run.order) - count
        unused = self.pairs is not None and unknown
        words = f" ({first_few(emptied)})"
        facts = [
            Note(f"exclude {self.source}: docs that were left out", f"{count:,}"),
            *self._notes(
                ("docs that are not in the ranking of their query", unused, "", "not used"),
                ("queries that have no other docs", len(emptied), words, "they count as 0"),
            ),
            *self.facts(run.order.keys(), relevance),
        ]
        return replace(kept, notes=replace(kept.notes, excluded=tuple(facts)))

    def _notes(self, *facts: tuple[str, int, str, str]) -> list[Note]:
        """Notes of what, how many, which and what it means; none of a count of 0."""
        return [
            Note(f"exclude {self.source}: {what}", f"{count:,}{which}", why)
            for what, count, which, why in facts
            if count
        ]


def read_excluded(path: str) -> Excluded:
    """Reads which docs are left out.

    Args:
        path: `self`, or a file, a folder or a glob with a query_id and a doc_id a row.
    """
    if path == SELF:
        return Excluded(SELF)
    files = [TableReader(file, EXCLUDED) for file in input_files(path, "file of docs to exclude")]
    rows = pa.concat_tables([file.read_all() for file in files])
    check_all(files, len(rows))
    docs_of = rows.group_by("query_id", use_threads=False).aggregate([("doc_id", "distinct")])
    docs = map(frozenset, docs_of["doc_id_distinct"].to_pylist())
    pairs = dict(zip(docs_of["query_id"].to_pylist(), docs, strict=True))
    return Excluded(path, pairs, len(rows) - sum(map(len, pairs.values())))


def excluded_of(exclude: str | os.PathLike[str] | Mapping[str, Collection[str]]) -> Excluded:
    """The docs that a caller excludes: `self`, a file, or docs by query_id."""
    if not isinstance(exclude, Mapping):
        return read_excluded(os.fsdecode(exclude))
    for query_id, docs in exclude.items():
        if isinstance(docs, str) or not isinstance(docs, Collection):
            raise DataError(
                f"the docs to exclude of query {query_id!r} are {docs!r:.60}: give a list of "
                "doc_ids"
            )
        check_ids_of_query("the docs to exclude", query_id, docs)
    return Excluded(
        "the given docs", {query_id: frozenset(docs) for query_id, docs in exclude.items()}
    )


def own_facts(order: Mapping[str, Sequence[str]]) -> list[Note]:
    """A note, if queries seem to be docs of the collection."""
    query_ids = [query_id for query_id, doc_ids in order.items() if query_id in doc_ids[:OWN_DEPTH]]
    if not query_ids or len(query_ids) < OWN_SHARE * len(order):
        return []
    return [
        Note(
            f"queries with the doc of their own id among the first {OWN_DEPTH}",
            f"{len(query_ids):,} of {len(order):,} ({first_few(query_ids)})",
            "where queries are docs, as in ArguAna and Quora, BEIR and MTEB leave that doc out: "
            "exclude `self`",
        )
    ]
