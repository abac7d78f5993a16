"""The sizes of a collection: lengths of its topics and docs, and what its qrels judge."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from beamrank.evaluation.tables import COUNT, Cell, Column, Table
from beamrank.formats.corpora import DocBatch
from beamrank.formats.qrels import Qrels
from beamrank.records import Topic

# How many units each text has.
CountUnits: TypeAlias = Callable[[Sequence[str]], Iterable[int]]

_SHARE = ".2%"


class Distribution:
    """Exact statistics of many whole numbers, in the memory of the distinct ones."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, values: Iterable[int]) -> None:
        """Counts some more."""
        self._counts.update(values)

    @property
    def count(self) -> int:
        """How many there are."""
        return self._counts.total()

    @property
    def shortest(self) -> int | None:
        """The smallest; None if there are none."""
        return min(self._counts, default=None)

    @property
    def longest(self) -> int | None:
        """The largest; None if there are none."""
        return max(self._counts, default=None)

    @property
    def mean(self) -> float | None:
        """The mean; None if there are none."""
        return sum(value * count for value, count in self._counts.items()) / self.count if self._counts else None

    @property
    def median(self) -> float | None:
        """The middle one, or the mean of the two in the middle; None if there are none."""
        if not self._counts:
            return None
        return (self._at((self.count - 1) // 2) + self._at(self.count // 2)) / 2

    def share_beyond(self, limit: int) -> float | None:
        """The share of those above a limit; None if there are none."""
        above = sum(count for value, count in self._counts.items() if value > limit)
        return above / self.count if self._counts else None

    def as_object(self) -> dict[str, float | None]:
        """For JSON."""
        return {"shortest": self.shortest, "median": self.median, "mean": self.mean, "longest": self.longest}

    def _at(self, position: int) -> int:
        for value in sorted(self._counts):
            position -= self._counts[value]
            if position < 0:
                return value
        raise IndexError(position)


def count_words(texts: Sequence[str]) -> Iterator[int]:
    """How many words each text has: what white space separates."""
    return (len(text.split()) for text in texts)


@dataclass
class CollectionStats:
    """The sizes of a collection.

    Attributes:
        beyond: lengths; for each, the share of longer texts is shown.
        lengths: of queries and docs, by kind (`queries`, `docs`) and unit (`words`, `wordpieces`).
        judged: how many docs of a judged query the qrels judge; empty without qrels.
        relevant: how many of them have a label of 1 or more.
        labels: how many judgments have each label.
        bad_rows: rows of the corpus that cannot be used.
        judged_without_topic: judged queries that are not among the topics.
        judged_without_doc: judged docs that are not in the corpus.
    """

    beyond: tuple[int, ...]
    lengths: dict[tuple[str, str], Distribution] = field(default_factory=dict)
    judged: Distribution = field(default_factory=Distribution)
    relevant: Distribution = field(default_factory=Distribution)
    labels: dict[int, int] = field(default_factory=dict)
    bad_rows: int = 0
    judged_without_topic: int = 0
    judged_without_doc: int = 0

    def lines(self) -> list[str]:
        """What a user should know, a line each."""
        found = (
            (self.bad_rows, "rows of the corpus that cannot be used"),
            (self.judged_without_topic, "judged queries that are not among the topics"),
            (self.judged_without_doc, "judged docs that are not in the corpus"),
        )
        return [f"{what}: {count:,}" for count, what in found if count]

    def table(self) -> Table:
        """A row for each length, for the judged docs of a query and for each label."""
        names = ("count", "shortest", "median", "mean", "longest")
        columns = [Column("length"), *(Column(name, ",.1f" if name in ("median", "mean") else COUNT) for name in names)]
        columns += [Column(f"> {limit:,}", _SHARE) for limit in self.beyond]
        rows = [[f"{kind}, {unit}", *self._cells(found)] for (kind, unit), found in self.lengths.items()]
        shares: list[Cell] = [None] * len(self.beyond)
        for name, found in (("judged", self.judged), ("relevant", self.relevant)):
            if found.count:
                rows.append([f"{name} docs of a query", *self._cells(found)[: len(names)], *shares])
        rest: list[Cell] = [None] * (len(columns) - 2)
        rows += [[f"judgments with label {label}", count, *rest] for label, count in self.labels.items()]
        return Table(columns, rows)

    def as_object(self) -> dict[str, object]:
        """For JSON; what does not exist is null."""
        lengths: dict[str, dict[str, object]] = {}
        for (kind, unit), found in self.lengths.items():
            shares = {str(limit): found.share_beyond(limit) for limit in self.beyond}
            lengths.setdefault(kind, {"count": found.count})[unit] = {**found.as_object(), "share_beyond": shares}
        qrels = {
            "queries": self.judged.count,
            "judged_docs": self.judged.as_object(),
            "relevant_docs": self.relevant.as_object(),
            "labels": {str(label): count for label, count in self.labels.items()},
            "queries_not_in_topics": self.judged_without_topic,
            "docs_not_in_corpus": self.judged_without_doc,
        }
        return {**lengths, "bad_rows": self.bad_rows, "qrels": qrels if self.judged.count else None}

    def _cells(self, found: Distribution) -> list[Cell]:
        shares = [found.share_beyond(limit) for limit in self.beyond]
        return [found.count, found.shortest, found.median, found.mean, found.longest, *shares]


def measure_collection(
    topics: Sequence[Topic],
    batches: Iterable[DocBatch],
    qrels: Qrels | None,
    units: Mapping[str, CountUnits],
    beyond: Sequence[int] = (),
) -> CollectionStats:
    """Measures a collection in one pass over its docs.

    Args:
        topics: the queries.
        batches: the docs; read once.
        qrels: the judgments, if there are any.
        units: how the units of a text are counted, by their name.
        beyond: lengths; for each, the share of longer texts is computed.
    """
    stats = CollectionStats(tuple(beyond))
    stats.lengths = {(kind, unit): Distribution() for kind in ("queries", "docs") for unit in units}
    for unit, count in units.items():
        stats.lengths["queries", unit].add(count([topic.text for topic in topics]))
    relevance = {} if qrels is None else qrels.relevance
    missing = {doc_id for docs in relevance.values() for doc_id in docs}
    for batch in batches:
        stats.bad_rows += len(batch.bad)
        missing.difference_update(batch.doc_ids)
        for unit, count in units.items():
            stats.lengths["docs", unit].add(count(batch.texts))
    stats.judged.add(map(len, relevance.values()))
    stats.relevant.add(sum(label > 0 for label in docs.values()) for docs in relevance.values())
    labels = Counter(label for docs in relevance.values() for label in docs.values())
    stats.labels = dict(sorted(labels.items()))
    stats.judged_without_topic = len(relevance.keys() - {topic.query_id for topic in topics})
    stats.judged_without_doc = len(missing)
    return stats
