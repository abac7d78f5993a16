"""What the checks of a run share."""

from dataclasses import dataclass, field

from beamrank.formats.run_formats import RunFormat
from beamrank.lint.given import Given
from beamrank.lint.topic_rows import TopicRows
from beamrank.lint.tracks import Track


@dataclass(frozen=True)
class TopicFacts:
    """What is kept of a topic after its rows were checked.

    Attributes:
        line: of its first row.
        rows: how many there are.
        first_doc: the doc that an evaluation ranks first.
        ranking: the hash of all its docs in their order.
        scores: the lowest and the highest; None for a run without scores.
    """

    line: int
    rows: int
    first_doc: bytes
    ranking: int
    scores: tuple[float, float] | None


@dataclass
class RunState:
    """A run that is being checked.

    Attributes:
        given: the files that it is checked against.
        track: the rules that it is checked against.
        format: its format; None until the first row.
        topics: the topics read so far, by query_id.
        run_tags: the first line of each run tag.
        comments: the comments, by line.
        judged: the docs among the first ten that are judged, and all the first ten, of topics with judgments.
    """

    given: Given
    track: Track
    format: RunFormat | None = None
    topics: dict[bytes, TopicFacts] = field(default_factory=dict)
    run_tags: dict[bytes, int] = field(default_factory=dict)
    comments: dict[int, bytes] = field(default_factory=dict)
    judged: tuple[int, int] = (0, 0)

    def add(self, topic: TopicRows) -> None:
        """Keeps the facts of a topic."""
        self.format = topic.format
        order = range(len(topic.rows)) if topic.order is None else topic.order.tolist()
        docs = [topic.doc_ids[i] for i in order]
        scores = topic.scores
        self.topics[topic.query_id] = TopicFacts(
            topic.lines[0],
            len(docs),
            docs[0],
            hash(tuple(docs)),
            None if scores is None else (float(scores.min()), float(scores.max())),
        )
        if "run_tag" in topic.format.columns:
            tags = topic.column("run_tag")
            for tag in set(tags) - self.run_tags.keys():
                self.run_tags[tag] = topic.lines[tags.index(tag)]
        judged = (self.given.qrels or {}).get(topic.query_id)
        if judged is not None:
            first = docs[:10]
            self.judged = (self.judged[0] + sum(doc_id in judged for doc_id in first), self.judged[1] + len(first))

    @property
    def judged_at_10(self) -> float | None:
        """The share of judged docs among the first ten of the judged topics."""
        return self.judged[0] / self.judged[1] if self.judged[1] else None
