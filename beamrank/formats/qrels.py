"""Qrels: which docs are relevant to which topics."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from operator import index
from typing import Literal

from beamrank.errors import DataError
from beamrank.formats.columns import Rows, number, shown
from beamrank.formats.ids import are_usable, check_given_ids

# The highest relevance that can be computed with. trec_eval counts the docs of each level from 0 to a topic's highest
# in an array, and nDCG without a cutoff takes time with the square of that. (trec_eval itself promises 127.)
MAX_RELEVANCE = 10_000

QrelsFormat = Literal["trec", "beir"]

_BEIR_HEADER = [b"query-id", b"corpus-id", b"score"]
_FORMATS = (
    "accepted are four columns (query_id iteration doc_id relevance: TREC, MS MARCO), or three below the header "
    "`query-id corpus-id score` (BEIR)"
)


@dataclass(frozen=True)
class QrelsNotes:
    """What a reader should know about qrels.

    Attributes:
        repeated: judgments that stand there again, with the same relevance.
        comments: lines that begin with `#`.
    """

    format: QrelsFormat
    topics: int
    judgments: int
    repeated: int
    comments: int

    def lines(self) -> list[str]:
        """What is worth saying, a line each."""
        return (
            [f"judgments that stand there twice, alike: {self.repeated:,}; each counts once"] if self.repeated else []
        )


@dataclass(frozen=True)
class Qrels:
    """The relevance of each judged doc, by query_id and doc_id."""

    relevance: dict[str, dict[str, int]]
    notes: QrelsNotes

    def of_topics(self, query_ids: Collection[str]) -> "Qrels":
        """The judgments of some topics."""
        kept = {query_id: docs for query_id, docs in self.relevance.items() if query_id in query_ids}
        return Qrels(kept, self.notes)


def read_qrels(url: str) -> Qrels:
    """Reads qrels from any fsspec URL, compressed or not.

    TREC's and MS MARCO's have four columns (query_id, iteration, doc_id, relevance), BEIR's three below a header
    (query-id, corpus-id, score). Tabs and spaces are alike; a line that begins with `#` is a comment. A negative
    relevance means what it means to trec_eval: the doc was in the pool, but was not judged.

    Raises:
        PreflightError: the file does not exist, or lines are wrong: columns, a relevance that is not a whole number
            from -10,000 to 10,000 (`measures.MAX_RELEVANCE`), a doc judged twice with different relevance, invalid
            UTF-8, ids that cannot be used (`beamrank.formats.ids`). The first of each kind is listed.
    """
    rows = Rows(url)
    qrels_format: QrelsFormat = "trec"
    relevance: dict[str, dict[str, int]] = {}
    lines: dict[tuple[str, str], int] = {}
    repeated = 0
    for line, columns in rows:
        if columns == _BEIR_HEADER and not lines:
            qrels_format = "beir"
            continue
        judgment = _read_judgment(rows, line, columns, qrels_format)
        if judgment is None:
            continue
        query_id, doc_id, level = judgment
        first = lines.setdefault((query_id, doc_id), line)
        earlier = relevance.setdefault(query_id, {}).setdefault(doc_id, level)
        if earlier != level:
            rows.bad(line, f"doc {doc_id!r} of query {query_id!r} has relevance {level}, but {earlier} on line {first}")
        elif first != line:
            repeated += 1
    _check_ids(rows, relevance, lines)
    rows.check("qrels file", len(lines))
    notes = QrelsNotes(qrels_format, len(relevance), len(lines), repeated, len(rows.comments))
    return Qrels(relevance, notes)


def _check_ids(rows: Rows, relevance: dict[str, dict[str, int]], lines: dict[tuple[str, str], int]) -> None:
    for query_id, judged in relevance.items():
        if not are_usable([query_id, *judged]):
            rows.check_id(lines[query_id, next(iter(judged))], query_id)
            for doc_id in judged:
                rows.check_id(lines[query_id, doc_id], doc_id)


def qrels_of(relevance: Mapping[str, Mapping[str, int]]) -> Qrels:
    """Qrels in memory.

    Args:
        relevance: by query_id and doc_id; queries without judgments are left out.

    Raises:
        DataError: there are no judgments, an id cannot be used (formats/ids.py), or a relevance is not a whole number
            from -10,000 to 10,000.
    """
    found: dict[str, dict[str, int]] = {}
    for query_id, docs in relevance.items():
        check_given_ids("the qrels", query_id, docs)
        for doc_id, level in docs.items():
            if not hasattr(level, "__index__") or abs(level) > MAX_RELEVANCE:
                raise DataError(
                    f"doc {doc_id!r} of query {query_id!r} has relevance {level!r}, not a whole number between "
                    f"{-MAX_RELEVANCE:,} and {MAX_RELEVANCE:,}"
                )
            found.setdefault(query_id, {})[doc_id] = index(level)
    if not found:
        raise DataError("the qrels have no judgments: give at least one query with one doc")
    return Qrels(found, QrelsNotes("trec", len(found), sum(map(len, found.values())), 0, 0))


def _read_judgment(
    rows: Rows, line: int, columns: list[bytes], qrels_format: QrelsFormat
) -> tuple[str, str, int] | None:
    expected = 3 if qrels_format == "beir" else 4
    if len(columns) != expected:
        rows.bad(line, _explain_columns(len(columns), qrels_format))
        return None
    try:
        query_id, doc_id, level = columns[0].decode(), columns[expected - 2].decode(), number(int, columns[-1])
    except UnicodeDecodeError:
        rows.bad(line, f"{shown(b' '.join(columns))} is not valid UTF-8")
        return None
    except ValueError:
        rows.bad(line, f"relevance {shown(columns[-1])} is not a whole number")
        return None
    if abs(level) > MAX_RELEVANCE:
        rows.bad(
            line,
            f"relevance {shown(columns[-1])} is not between {-MAX_RELEVANCE:,} and {MAX_RELEVANCE:,}, which is what "
            "trec_eval's measures can count: map it to grades, such as 0 to 4",
        )
        return None
    return query_id, doc_id, level


def _explain_columns(count: int, qrels_format: QrelsFormat) -> str:
    if qrels_format == "beir":
        return f"{count} columns, where BEIR's header names three"
    hint = {
        3: ". If these are BEIR's, put that header into the first line",
        6: ". Six columns are a TREC run's",
    }
    return f"{count} columns: {_FORMATS}{hint.get(count, '')}"
