"""What the checks of a run share."""

from dataclasses import dataclass, field

from beamrank.formats.excluded import OWN_DEPTH
from beamrank.formats.run_writer import RunFormat
from contrib.lint.references import References
from contrib.lint.topic_rows import TopicRows
from contrib.lint.tracks import Track


@dataclass(frozen=True)
class TopicFacts:
    """What is kept of a topic after its rows were checked.

    Attributes:
        line: of its first row.
        rows: how many there are.
        first_doc: the doc that an evaluation ranks first.
        ranking: the hash of all its docs in their order.
        scores: the lowest and the highest; None without any.
        own_line: that of the doc with the topic's id, if it is among the first.
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
        judged: the docs among the first ten that are judged, and all the first ten, of topics with judgments.
        judged_topics: how many topics have judgments.
        reached: how many of them rank a judged doc.
    """

    references: References
    track: Track
    format: RunFormat | None = None
    topics: dict[bytes, TopicFacts] = field(default_factory=dict)
    run_tags: dict[bytes, int] = field(default_factory=dict)
    comments: dict[int, bytes] = field(default_factory=dict)
    judged: tuple[int, int] = (0, 0)
    judged_topics: int = 0
    reached: int = 0

    def add(self, topic: TopicRows) -> None:
        """Keeps the facts of a topic."""
        self.format = topic.format
        order = range(len(topic.rows)) if topic.order is None else topic.order.tolist()
        docs = [topic.doc_ids[i] for i in order]
        scores = topic.finite.scores
        first = docs[:OWN_DEPTH]
        self.topics[topic.query_id] = TopicFacts(
            topic.lines[0],
            len(docs),
            docs[0],
            hash(tuple(docs)),
            None if scores is None or not len(scores) else (float(scores.min()), float(scores.max())),
            topic.lines[order[first.index(topic.query_id)]] if topic.query_id in first else None,
        )
        if "run_tag" in topic.format.columns:
            tags = topic.column("run_tag")
            for tag in set(tags) - self.run_tags.keys():
                self.run_tags[tag] = topic.lines[tags.index(tag)]
        judged = (self.references.qrels or {}).get(topic.query_id)
        if judged is not None:
            self.judged_topics += 1
            self.reached += not judged.keys().isdisjoint(docs)
            self.judged = (self.judged[0] + sum(doc_id in judged for doc_id in first), self.judged[1] + len(first))

    @property
    def judged_at_10(self) -> float | None:
        """The share of judged docs among the first ten of the judged topics."""
        return self.judged[0] / self.judged[1] if self.judged[1] else None
