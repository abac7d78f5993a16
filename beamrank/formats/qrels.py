"""Qrels: which docs are relevant to which topics."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator

from beamrank.errors import DataError, PreflightError
from beamrank.formats.checks import checked_queries, shown, whole_of
from beamrank.formats.columns import Columns, QrelsColumns, column_names
from beamrank.formats.files import find_files
from beamrank.formats.rows import FileRows, ReadRecord, whole
from beamrank.plugins import Registry
from beamrank.section import Paths, Relative, Section, check_paths

# The highest relevance that can be computed with. trec_eval counts the docs of each level from 0 to a topic's highest
# in an array, and nDCG without a cutoff takes time with the square of that. (trec_eval itself promises 127.)
MAX_RELEVANCE = 10_000


class QrelsConfig(Section):
    """Judgments whose columns have names."""

    path: Paths
    """A file, a glob, or a list of them."""
    columns: QrelsColumns | None = None
    """Where columns or fields have other names than usual."""


def _check_qrels(qrels: str | tuple[str, ...] | QrelsConfig) -> str | tuple[str, ...] | QrelsConfig:
    return qrels if isinstance(qrels, QrelsConfig) else check_paths(qrels)


# What a configuration gives as qrels.
QrelsFiles: TypeAlias = Annotated[str | tuple[str, ...] | QrelsConfig, AfterValidator(_check_qrels), Relative.GLOB]


@dataclass(frozen=True)
class QrelsFormat:
    """A qrels format: one judgment a line.

    Attributes:
        title: its name in messages.
        columns: their names.
        header: whether the first line holds the names; the others are detected by their numbers of columns.
        judgments: the query_id, doc_id and relevance of each judgment in a record, whose line and fields it is given,
            where a record of JSON or Parquet has several; `columns` are its fields then.
    """

    title: str
    columns: tuple[str, ...]
    header: bool = False
    judgments: Callable[[int, Mapping[str, Any]], Iterable[tuple[str, str, int]]] | None = None

    def read_record(self, line: int, record: Mapping[str, Any]) -> Iterable[list[bytes]]:
        assert self.judgments is not None
        return (
            [query_id.encode(), doc_id.encode(), b"%d" % level]
            for query_id, doc_id, level in self.judgments(line, record)
        )


FORMATS: Registry[QrelsFormat] = Registry(
    "qrels format",
    "beamrank.qrels",
    {
        "trec": QrelsFormat("TREC, MS MARCO", ("query_id", "iteration", "doc_id", "relevance")),
        "three": QrelsFormat("three columns", ("query_id", "doc_id", "relevance")),
        "beir": QrelsFormat("BEIR", ("query-id", "corpus-id", "score"), header=True),
    },
)


_JUDGMENT = ("query_id", "doc_id", "relevance")
# So many docs with the relevances 1, 2, 3, ... are a ranking.
_RANKS = 10


@dataclass(frozen=True)
class QrelsNotes:
    """Facts about qrels that a user should know.

    Attributes:
        format: its name in `FORMATS`; of several files, that of the first.
        repeated: judgments that appear again, with the same relevance.
        comments: lines that begin with `#`.
    """

    format: str
    topics: int
    judgments: int
    repeated: int
    comments: int

    def lines(self) -> list[str]:
        return (
            [f"duplicate judgments, with equal relevance: {self.repeated:,}; each counts once"] if self.repeated else []
        )


@dataclass(frozen=True)
class Qrels:
    """The relevance of each judged doc, by query_id and doc_id."""

    relevance: dict[str, dict[str, int]]
    notes: QrelsNotes

    def of_topics(self, query_ids: Collection[str]) -> "Qrels":
        kept = {query_id: docs for query_id, docs in self.relevance.items() if query_id in query_ids}
        return Qrels(kept, self.notes)


def read_qrels(paths: str | Sequence[str] | QrelsConfig, columns: Columns | None = None) -> Qrels:
    """Reads qrels from files at any fsspec URL, compressed or not.

    Columns are separated by tabs or spaces, and a first line may hold their names; a line that begins with `#` is a
    comment. Parquet and JSONL have the columns of a header. A negative relevance means what
    it means to trec_eval: the doc was in the pool, but was not judged.

    Args:
        paths: a file, a glob, or a list of them; or the section of a configuration that names them.
        columns: names of their columns, where these have others than usual.

    Raises:
        PreflightError: a file does not exist, or lines are wrong: columns, a relevance that is not a whole number
            from -10,000 to 10,000 (`MAX_RELEVANCE`), a doc judged twice with different relevance, invalid
            UTF-8, ids that cannot be used (formats/checks.py). The first of each kind is listed.
    """
    relevance: dict[str, dict[str, int]] = {}
    if isinstance(paths, QrelsConfig):
        columns = column_names(paths.columns)
    files = [_read_file(url, relevance, columns or {}) for url in find_files(paths)]
    repeated = sum(notes.repeated for notes in files)
    judgments = sum(map(len, relevance.values()))
    notes = QrelsNotes(files[0].format, len(relevance), judgments, repeated, sum(notes.comments for notes in files))
    return Qrels(relevance, notes)


class _QrelsRows(FileRows):
    def __init__(self, url: str, columns: Columns) -> None:
        # Ours come first: a plugin's format of as many columns replaces none of them.
        plain = {name: each.columns for name, each in FORMATS.items() if not each.header}
        super().__init__(url, [_JUDGMENT], plain, columns)

    @property
    def format_name(self) -> str:
        """The name of the format of the rows so far; `header` for names that no format has."""
        headers = {each.columns: name for name, each in FORMATS.items() if each.header}
        return headers.get(self.names, "header") if self.names else self.name or "trec"

    def record_reader(self, first: Mapping[str, Any]) -> ReadRecord:
        formats = (each for each in FORMATS.values() if each.judgments is not None)
        found = next((each for each in formats if set(each.columns) <= first.keys()), None)
        return super().record_reader(first) if found is None else found.read_record

    def explain_columns(self, count: int) -> str:
        if self.names:
            name = self.format_name
            title = FORMATS[name].title if name in FORMATS else "the file"
            return f"{count} columns, where {title}'s header names {len(self.names)}"
        each = [
            f"{one.title}, {len(one.columns)} columns{' below the header' * one.header} ({' '.join(one.columns)})"
            for one in FORMATS.values()
        ]
        hint = ". Six columns are a TREC run's" if count == 6 else ""
        return f"{count} columns; accepted: {'; '.join(each)}{hint}"

    def judgments(self) -> Iterator[tuple[int, str, str, int]]:
        """Yields the line, query_id, doc_id and relevance of each row; the others are problems."""
        for line, row in self:
            try:
                yield line, *self.ids(line, row), _level(row[self.places["relevance"]])
            except ValueError as error:
                self.bad(line, str(error))


def _level(column: bytes) -> int:
    """The relevance of a row; a ValueError says what is wrong."""
    try:
        level = whole(column)
    except ValueError:
        raise ValueError(f"relevance {shown(column)} is not a whole number") from None
    if abs(level) > MAX_RELEVANCE:
        raise ValueError(
            f"relevance {shown(column)} is not between {-MAX_RELEVANCE:,} and {MAX_RELEVANCE:,}, which is what "
            "trec_eval's measures can count: map it to grades, such as 0 to 4"
        )
    return level


def _read_file(url: str, relevance: dict[str, dict[str, int]], columns: Columns) -> QrelsNotes:
    """Adds the judgments of a file; the notes count its own lines."""
    rows = _QrelsRows(url, columns)
    lines: dict[tuple[str, str], int] = {}
    repeated = 0
    for line, query_id, doc_id, level in rows.judgments():
        first = lines.setdefault((query_id, doc_id), line)
        judged = relevance.setdefault(query_id, {})
        repeated += doc_id in judged
        other = judged.setdefault(doc_id, level)
        if other != level:
            where = f"on line {first}" if first != line else "in an earlier file"
            rows.bad(line, f"doc {doc_id!r} of query {query_id!r} has relevance {level}, but {other} {where}")
    if rows.format_name == "three":
        _refuse_ranks(url, relevance, lines)
    rows.check("qrels file", len(lines))
    return QrelsNotes(rows.format_name, 0, len(lines), repeated, len(rows.comments))


def _refuse_ranks(url: str, relevance: dict[str, dict[str, int]], lines: dict[tuple[str, str], int]) -> None:
    """Refuses an MS MARCO run, which has three columns too."""
    for query_id in {query_id: None for query_id, _ in lines}:
        levels = sorted(relevance[query_id].values())
        if len(levels) >= _RANKS and levels == list(range(levels[0], levels[0] + len(levels))):
            raise PreflightError(
                f"{url} is a run, not qrels: the {len(levels)} docs of query {query_id!r} have the third columns "
                f"{levels[0]} to {levels[-1]}, which are ranks. Give the qrels"
            )


def qrels_of(relevance: Mapping[str, Mapping[str, int]]) -> Qrels:
    """Qrels in memory.

    Args:
        relevance: by query_id and doc_id; queries without judgments are left out.

    Raises:
        DataError: there are no judgments, an id cannot be used, or a relevance is not a whole number
            from -10,000 to 10,000.
    """
    found: dict[str, dict[str, int]] = {}
    for query_id, docs in checked_queries("the qrels", relevance):
        for doc_id, level in docs.items():
            level = whole_of(level)
            if not hasattr(level, "__index__") or abs(level) > MAX_RELEVANCE:
                raise DataError(
                    f"doc {doc_id!r} of query {query_id!r} has relevance {level!r}, not a whole number between "
                    f"{-MAX_RELEVANCE:,} and {MAX_RELEVANCE:,}"
                )
            found.setdefault(query_id, {})[doc_id] = index(level)
    if not found:
        raise DataError("the qrels have no judgments: give at least one query with one doc")
    return Qrels(found, QrelsNotes("trec", len(found), sum(map(len, found.values())), 0, 0))
