"""Checks, the rules of tracks, and the state that the checks of a run share."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from beamrank.formats.excluded import OWN_DEPTH
from beamrank.formats.run_writer import RunFormat
from contrib.lint.references import References
from contrib.lint.run_rows import TopicRows

# Versions 1, 2 and 2.1; ids with `#` are segments of docs.
_MSMARCO_DOCS = rb"D?\d+|msmarco_passage_\d\d_\d+|msmarco_(v2\.1_)?doc_\d\d_\d+(#\d+(_\d+)?)?"
_TREC_TAG = rb"[A-Za-z0-9_-]{1,15}"


@dataclass(frozen=True)
class Track:
    """The rules of a track. Without a rule, anything that evaluators can read is accepted.

    Attributes:
        first_ranks: the accepted ranks of a topic's first doc; `--fix` counts from the last one.
        run_tag: the pattern of a run tag.
        query_id: the pattern of a query_id.
        doc_id: the pattern of a doc_id.
        max_docs: the most docs of a topic. With a limit, topics with fewer docs than the others are
            reported too.
    """

    first_ranks: tuple[int, ...] = (1,)
    run_tag: bytes | None = None
    query_id: bytes | None = None
    doc_id: bytes | None = None
    max_docs: int | None = None


TRACKS: dict[str, Track] = {
    "generic": Track(first_ranks=(0, 1)),
    "msmarco": Track(query_id=rb"\d+", doc_id=_MSMARCO_DOCS, max_docs=1000),
    "trec-car": Track(
        run_tag=_TREC_TAG, query_id=rb"[!-~]+", doc_id=rb"[0-9a-f]{40}", max_docs=1000
    ),
    "trec-dl": Track(run_tag=_TREC_TAG, query_id=rb"\d+", doc_id=_MSMARCO_DOCS, max_docs=1000),
}


def matches(pattern: bytes | None, text: bytes) -> bool:
    """Whether a text satisfies a rule of a track."""
    return pattern is None or re.fullmatch(pattern, text) is not None


@dataclass(frozen=True)
class TopicFacts:
    """The facts that are kept of a topic after its rows were checked.

    Attributes:
        line: of its first row.
        rows: how many there are.
        first_doc: the doc that an evaluation ranks first.
        ranking: the hash of all its docs in their order.
        scores: the lowest and the highest; None without any.
        own_line: of the doc with the topic's id, if it is among the first.
    """

    line: int
    rows: int
    first_doc: bytes
    ranking: int
    scores: tuple[float, float] | None
    own_line: int | None = None


@dataclass
class RunState:
    """A run that is being checked.

    Attributes:
        references: the files that it is checked against.
        track: the rules that it is checked against.
        format: its format; None until the first row.
        topics: the topics read so far, by query_id.
        run_tags: the first line of each run tag.
        comments: the comments, by line.
        judged, first_docs: of topics with judgments, the docs among the first ten that are judged,
            and all of these.
        judged_topics: how many topics have judgments.
        reached: how many of them rank a judged doc.
    """

    references: References
    track: Track
    format: RunFormat | None = None
    topics: dict[bytes, TopicFacts] = field(default_factory=dict)
    run_tags: dict[bytes, int] = field(default_factory=dict)
    comments: dict[int, bytes] = field(default_factory=dict)
    judged: int = 0
    first_docs: int = 0
    judged_topics: int = 0
    reached: int = 0

    def add(self, topic: TopicRows) -> None:
        self.format = topic.format
        order = range(len(topic.rows)) if topic.order is None else topic.order.tolist()
        docs = [topic.doc_ids[i] for i in order]
        scores, first, spread, own_line = topic.finite.scores, docs[:OWN_DEPTH], None, None
        if scores is not None and len(scores):
            spread = float(scores.min()), float(scores.max())
        if topic.query_id in first:
            own_line = topic.lines[order[first.index(topic.query_id)]]
        self.topics[topic.query_id] = TopicFacts(
            topic.lines[0], len(docs), docs[0], hash(tuple(docs)), spread, own_line
        )
        if "run_tag" in topic.format.columns:
            tags = topic.column("run_tag")
            for tag in set(tags) - self.run_tags.keys():
                self.run_tags[tag] = topic.lines[tags.index(tag)]
        judged = (self.references.qrels or {}).get(topic.query_id)
        if judged is not None:
            self.judged_topics += 1
            self.reached += not judged.keys().isdisjoint(docs)
            self.judged += sum(doc_id in judged for doc_id in first)
            self.first_docs += len(first)

    @property
    def judged_at_10(self) -> float | None:
        """The share of judged docs among the first ten of the judged topics."""
        return self.judged / self.first_docs if self.first_docs else None


Severity = Literal["error", "warning"]
# The line and the message of each finding.
Found: TypeAlias = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        function: finds what is wrong with a line, with a topic, or, at the end, with the whole run.
        severity: `error` if tools refuse or misread such a run, `warning` if the run may not be
            what was intended.
        summary: what it finds, for the table of the documentation.
        fix: what `--fix` does; empty if there is no single right answer.
        blocks_fix: whether a file with such a finding is left as it is: a row could be lost.
        needs_scores: whether only runs with scores can be fixed.
    """

    function: Callable[..., Any]
    severity: Severity
    summary: str
    fix: str = ""
    blocks_fix: bool = False
    needs_scores: bool = False
