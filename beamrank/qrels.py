"""Qrels: which docs are relevant to which topics."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from beamrank.rows import Rows, integer, shown

QrelsFormat = Literal["trec", "beir"]

_BEIR_HEADER = [b"query-id", b"corpus-id", b"score"]


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
    (query-id, corpus-id, score). Tabs and spaces are alike; a line that begins with `#` is a comment.

    Raises:
        PreflightError: the file is not there, or lines are wrong: columns, a relevance that is no whole number, a doc
            judged twice with different relevance, invalid UTF-8. The first five are listed.
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
    rows.check("qrels file", len(lines))
    notes = QrelsNotes(qrels_format, len(relevance), len(lines), repeated, len(rows.comments))
    return Qrels(relevance, notes)


def _read_judgment(
    rows: Rows, line: int, columns: list[bytes], qrels_format: QrelsFormat
) -> tuple[str, str, int] | None:
    expected = 3 if qrels_format == "beir" else 4
    if len(columns) != expected:
        rows.bad(line, _explain_columns(len(columns), qrels_format))
        return None
    try:
        return columns[0].decode(), columns[expected - 2].decode(), integer(columns[-1])
    except UnicodeDecodeError:
        rows.bad(line, f"{shown(b' '.join(columns))} is not valid UTF-8")
    except ValueError:
        rows.bad(line, f"relevance {shown(columns[-1])} is no whole number")
    return None


def _explain_columns(count: int, qrels_format: QrelsFormat) -> str:
    if qrels_format == "beir":
        return f"{count} columns, where BEIR's header names three"
    hint = {3: "; BEIR's three must begin with the header query-id, corpus-id, score", 6: "; six are a TREC run's"}
    return f"{count} columns: qrels have four (query_id, iteration, doc_id, relevance){hint.get(count, '')}"
