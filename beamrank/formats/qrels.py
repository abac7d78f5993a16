"""Qrels: which docs are relevant to which topics."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.errors import DataError, PreflightError
from beamrank.formats.checks import checked_queries
from beamrank.formats.columns import TABLES, QrelsColumns, hints_of
from beamrank.formats.files import Format, input_files
from beamrank.formats.id_places import IdMapping, IdPlaces
from beamrank.formats.reader import TableReader, again, check_all, notes_of, without
from beamrank.formats.rejects import Rejects
from beamrank.formats.schemas import MAX_RELEVANCE, NO_HINTS, QRELS, Hints
from beamrank.formats.values import RowError, whole_of
from beamrank.notes import Note
from beamrank.plugins import Registry
from beamrank.records import Relevance
from beamrank.section import OneOf, Paths, Section

FORMATS: Registry[Format] = Registry(
    "qrels format",
    "beamrank.qrels",
    {
        "labelled": "beamrank.formats.named_formats:LABELLED",
        "lotte": "beamrank.formats.named_formats:LOTTE",
    },
)


class QrelsConfig(Section):
    """The judgments."""

    short = "path"
    path: Paths
    """A file, a folder, a glob, or a list of them."""
    columns: QrelsColumns | None = None
    """The columns or fields that have other names than usual."""
    format: Annotated[str, OneOf(FORMATS, TABLES)] = TABLES[0]
    """The format of the files; `auto` recognizes it."""
    quotes: bool = False
    """Whether a TSV has quotes, as a CSV has."""


_JUDGMENT = ("query_id", "doc_id", "relevance")
# So many docs with the relevances 1, 2, 3, ... are a ranking.
_RANKS = 10


@dataclass(frozen=True)
class QrelsNotes:
    """Facts about qrels that a user should know.

    Attributes:
        format: its name in `FORMATS`; of several files, the name of the first one's.
        repeated: judgments that appear again, with the same relevance.
        comments: lines that begin with `#`.
        rejected: what was left out because it cannot be used, and what the files' columns are.
    """

    format: str
    topics: int
    judgments: int
    repeated: int
    comments: int
    rejected: tuple[Note, ...] = ()

    def lines(self) -> list[str]:
        twice = Note(
            "duplicate judgments, with equal relevance", f"{self.repeated:,}", "each counts once"
        )
        return [*([str(twice)] if self.repeated else []), *map(str, self.rejected)]


class Judgments(IdMapping[Mapping[str, int]]):
    """The relevance of each judged doc, by query_id and doc_id, in columns; topics as they first
    appear.
    """

    def __init__(self, table: Any) -> None:
        """Takes a table of the columns of `_JUDGMENT`, each doc of a topic once."""
        queries = table["query_id"].combine_chunks().dictionary_encode()
        numbers = queries.indices.to_numpy()
        order = np.argsort(numbers, kind="stable")
        super().__init__(IdPlaces(queries.dictionary), self._of_topic)
        self._doc_ids = table["doc_id"].take(pa.array(order)).combine_chunks()
        self._levels = table["relevance"].to_numpy()[order]
        self._starts = np.searchsorted(numbers[order], np.arange(len(self) + 1))

    def _of_topic(self, place: int) -> dict[str, int]:
        start, end = self._starts[place : place + 2].tolist()
        doc_ids = self._doc_ids.slice(start, end - start).to_pylist()
        return dict(zip(doc_ids, self._levels[start:end].tolist(), strict=True))

    @classmethod
    def of(cls, relevance: Relevance) -> "Judgments":
        """The judgments of a dictionary."""
        rows = [
            (query_id, *judged) for query_id, docs in relevance.items() for judged in docs.items()
        ]
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        kinds = (pa.string(), pa.string(), pa.int16())
        arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
        return cls(pa.table(arrays, _JUDGMENT))

    @property
    def count(self) -> int:
        """How many docs are judged, over all topics."""
        return len(self._levels)

    @property
    def has_relevant(self) -> bool:
        """Whether any doc is relevant."""
        return bool((self._levels > 0).any())

    def of_topics(self, query_ids: Collection[str]) -> "Judgments":
        """The judgments of some topics."""
        kept = pc.is_in(self.ids, pa.array(list(query_ids), pa.string())).to_numpy(
            zero_copy_only=False
        )
        counts = np.diff(self._starts)
        queries = self.ids.take(pa.array(np.repeat(np.flatnonzero(kept), counts[kept])))
        rows = np.repeat(kept, counts)
        return Judgments(
            pa.table([queries, self._doc_ids.filter(pa.array(rows)), self._levels[rows]], _JUDGMENT)
        )


@dataclass(frozen=True)
class Qrels:
    """The relevance of each judged doc, by query_id and doc_id."""

    relevance: Judgments
    notes: QrelsNotes

    def of_topics(self, query_ids: Collection[str]) -> "Qrels":
        return Qrels(self.relevance.of_topics(query_ids), self.notes)


def read_qrels(
    paths: str | Sequence[str] | QrelsConfig | pa.Table,
    hints: Hints = NO_HINTS,
    rejects: Rejects | None = None,
) -> Qrels:
    """Reads qrels from files at any fsspec URL, compressed or not.

    A negative relevance means what it means to trec_eval: the doc was in the pool, but was not
    judged. `hints` names columns that have other names than usual; `rejects` takes the rows that
    cannot be used, which are left out: by default each is an error.

    Raises:
        PreflightError: a file does not exist, or lines are wrong: columns, a relevance that is not
            a whole number from -10,000 to 10,000 (`MAX_RELEVANCE`), invalid UTF-8, ids that cannot
            be used (formats/checks.py), more than may be left out; or, always, a doc judged twice
            with different relevance. The first of each kind is listed.
    """
    if isinstance(paths, QrelsConfig):
        hints = hints_of(paths)
    inputs: Sequence[Any] = (
        [paths] if isinstance(paths, pa.Table) else input_files(paths, "qrels file")
    )
    files = [TableReader(file, QRELS, hints, rejects, FORMATS) for file in inputs]
    tables = [_table(file) for file in files]
    rows = []
    for row, file, now, before, place in again(files, tables, ["query_id", "doc_id"]):
        rows.append(row)
        if now["relevance"] != before["relevance"]:
            reason = (
                f"gives doc {now['doc_id']!r} of query {now['query_id']!r} the relevance "
                f"{now['relevance']}, but {place} gives {before['relevance']}"
            )
            file.bad(now["place"], RowError(reason, "judged-twice", fatal=True))
    table = without(pa.concat_tables(tables), rows)
    check_all(files, len(table))
    relevance = Judgments(table)
    comments = sum(len(file.decoder.comments) for file in files)
    rejected, name = notes_of(files, rejects), files[0].layout or "header"
    return Qrels(
        relevance, QrelsNotes(name, len(relevance), relevance.count, len(rows), comments, rejected)
    )


def _table(file: TableReader) -> Any:
    """All judgments; raises PreflightError for an MS MARCO run, which has three columns too."""
    table = file.read_all()
    for query_id, docs in Judgments(table).items() if file.layout == "three" else ():
        levels = sorted(docs.values())
        if len(levels) >= _RANKS and levels == list(range(levels[0], levels[0] + len(levels))):
            raise PreflightError(
                f"{file.url} is a run, not qrels: the {len(levels)} docs of query {query_id!r} "
                f"have the third columns {levels[0]} to {levels[-1]}, which are ranks. Give the "
                "qrels",
                kind="run-as-qrels",
                file=file.url,
            )
    return table


def qrels_of(relevance: Relevance) -> Qrels:
    """Qrels of a dictionary; queries without judgments are left out.

    Raises:
        DataError: there are no judgments, an id cannot be used, or a relevance is not a whole
            number from -10,000 to 10,000.
    """
    levels: dict[str, dict[str, int]] = {}
    for query_id, docs in checked_queries("the qrels", relevance):
        for doc_id, level in docs.items():
            level = whole_of(level)
            if not hasattr(level, "__index__") or abs(level) > MAX_RELEVANCE:
                raise DataError(
                    f"doc {doc_id!r} of query {query_id!r} has relevance {level!r}, not a whole "
                    f"number between {-MAX_RELEVANCE:,} and {MAX_RELEVANCE:,}"
                )
            levels.setdefault(query_id, {})[doc_id] = index(level)
    if not levels:
        raise DataError("the qrels have no judgments: give at least one query with one doc")
    judgments = Judgments.of(levels)
    return Qrels(judgments, QrelsNotes("trec", len(judgments), judgments.count, 0, 0))
