"""`beamrank stats CONFIG`: the lengths of a collection's topics and docs, and what its qrels
judge.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, TypeAlias

import typer

from beamrank.config.run import RunConfig
from beamrank.config.stages import ModelConfig
from beamrank.evaluation.tables import COUNT, Cell, Column, Table
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.formats.rejects import NO_LIMIT, Rejects
from beamrank.formats.texts.units import DocBatch
from beamrank.formats.topics import read_topics
from beamrank.notes import Progress
from beamrank.records import Topic
from pipelines.commands.arguments import ConfigPath, Overrides, ResultFormat, load_run_config
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import print_result
from pipelines.plan.named_inputs import named_inputs

HELP_PANEL = "Data and models"

# How many units each text has.
CountUnits: TypeAlias = Callable[[Sequence[str]], Iterable[int]]
_NO_LIMIT = 1 << 40


class Distribution(Counter[int]):
    """How often each whole number occurs, and exact statistics of the numbers; None if there are
    none.
    """

    def statistics(self) -> dict[str, float | None]:
        """The shortest, the median, the mean and the longest."""
        if not self:
            return dict.fromkeys(("shortest", "median", "mean", "longest"))
        middle = float(median(self.elements()))
        mean = sum(value * times for value, times in self.items()) / self.total()
        return {"shortest": min(self), "median": middle, "mean": mean, "longest": max(self)}

    def share_beyond(self, limit: int) -> float | None:
        """The share of the numbers above a limit."""
        above = sum(times for value, times in self.items() if value > limit)
        return above / self.total() if self else None


def count_words(texts: Sequence[str]) -> Iterator[int]:
    """How many words each text has: what white space separates."""
    return (len(text.split()) for text in texts)


@dataclass
class CollectionStats:
    """The sizes of a collection.

    Attributes:
        beyond: lengths; for each, the share of longer texts is shown.
        lengths: of queries and docs, by kind (`queries`, `docs`) and unit (`words`, `wordpieces`).
        judged: how many docs of a judged query the qrels judge; empty without qrels. `relevant`
            have a label above 0.
        labels: how many judgments have each label.
        unknown: how many judged queries are not among the topics, and judged docs not in the
            corpus.
    """

    beyond: tuple[int, ...]
    lengths: dict[tuple[str, str], Distribution] = field(default_factory=dict)
    judged: Distribution = field(default_factory=Distribution)
    relevant: Distribution = field(default_factory=Distribution)
    labels: dict[int, int] = field(default_factory=dict)
    unknown: tuple[int, int] = (0, 0)
    bad_rows: int = 0

    def lines(self) -> list[str]:
        """Notes for the user, a line each."""
        counts = (
            (self.bad_rows, "rows of the corpus that cannot be used"),
            (self.unknown[0], "judged queries that are not among the topics"),
            (self.unknown[1], "judged docs that are not in the corpus"),
        )
        return [f"{what}: {count:,}" for count, what in counts if count]

    def table(self) -> Table:
        """A row for each length, for the judged docs of a query and for each label."""
        formats = {
            "count": COUNT,
            "shortest": COUNT,
            "median": ",.1f",
            "mean": ",.1f",
            "longest": COUNT,
        }
        columns = [Column("length"), *(Column(name, form) for name, form in formats.items())]
        columns += [Column(f"> {limit:,}", ".2%") for limit in self.beyond]

        def row(name: str, lengths: Distribution, beyond: Sequence[Cell]) -> list[Cell]:
            return [name, lengths.total(), *lengths.statistics().values(), *beyond]

        rows = [
            row(
                f"{kind}, {unit}",
                distribution,
                [distribution.share_beyond(limit) for limit in self.beyond],
            )
            for (kind, unit), distribution in self.lengths.items()
        ]
        judged = {"judged": self.judged, "relevant": self.relevant}
        none: list[Cell] = [None] * len(self.beyond)
        rows += [
            row(f"{name} docs of a query", distribution, none)
            for name, distribution in judged.items()
            if distribution
        ]
        rest: list[Cell] = [None] * (len(columns) - 2)
        rows += [
            [f"judgments with label {label}", count, *rest] for label, count in self.labels.items()
        ]
        return Table(columns, rows)

    def as_object(self) -> dict[str, object]:
        """For JSON; what does not exist is null."""
        lengths: dict[str, dict[str, object]] = {}
        for (kind, unit), distribution in self.lengths.items():
            shares = {str(limit): distribution.share_beyond(limit) for limit in self.beyond}
            lengths.setdefault(kind, {"count": distribution.total()})[unit] = {
                **distribution.statistics(),
                "share_beyond": shares,
            }
        qrels = {
            "queries": self.judged.total(),
            "judged_docs": self.judged.statistics(),
            "relevant_docs": self.relevant.statistics(),
            "labels": {str(label): count for label, count in self.labels.items()},
            "queries_not_in_topics": self.unknown[0],
            "docs_not_in_corpus": self.unknown[1],
        }
        return {**lengths, "bad_rows": self.bad_rows, "qrels": qrels if self.judged else None}


def measure_collection(
    topics: Sequence[Topic],
    batches: Iterable[DocBatch],
    qrels: Qrels | None,
    units: Mapping[str, CountUnits],
    beyond: Sequence[int] = (),
) -> CollectionStats:
    """Measures a collection in one pass over its docs, in `units`; `beyond` are lengths whose
    shares are shown.
    """
    stats = CollectionStats(tuple(beyond))
    stats.lengths = {(kind, unit): Distribution() for kind in ("queries", "docs") for unit in units}
    for unit, count in units.items():
        stats.lengths["queries", unit].update(count([topic.text for topic in topics]))
    relevance = {} if qrels is None else qrels.relevance
    missing = {doc_id for docs in relevance.values() for doc_id in docs}
    for batch in batches:
        missing.difference_update(batch.doc_ids)
        for unit, count in units.items():
            stats.lengths["docs", unit].update(count(batch.texts))
    stats.judged.update(map(len, relevance.values()))
    stats.relevant.update(sum(label > 0 for label in docs.values()) for docs in relevance.values())
    labels = Counter(label for docs in relevance.values() for label in docs.values())
    stats.labels = dict(sorted(labels.items()))
    stats.unknown = len(relevance.keys() - {topic.query_id for topic in topics}), len(missing)
    return stats


def stats(
    config: ConfigPath,
    overrides: Overrides = None,
    beyond: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Show the share of longer texts; may be given several times. Default: "
            "input.max_query_length and input.max_length.",
        ),
    ] = None,
    result_format: ResultFormat = "table",
) -> None:
    """Show how many queries, docs and judgments a configuration has, and how long its texts are.

    Reads the corpus once. Words are separated by white space; the checkpoints' tokenizers make
    wordpieces, without special tokens.
    """
    console = ConsoleProgress()
    settings = named_inputs(load_run_config(config, overrides), console)
    bad = Rejects("docs", NO_LIMIT)
    limits = beyond or [settings.input.max_query_length, settings.input.max_length]
    rejects = settings.max_bad_rows.rejects("topics"), settings.max_bad_rows.rejects("qrels")
    qrels = None if settings.qrels is None else read_qrels(settings.qrels, rejects=rejects[1])
    units = {"words": count_words, **_wordpieces(settings)}
    with console.bar("stats") as bar:
        docs = _docs(settings.corpus, bar, bad)
        topics = read_topics(settings.topics, rejects[0])
        measured = measure_collection(topics, docs, qrels, units, sorted(set(limits)))
    measured.bad_rows = bad.count
    for line in (
        *measured.lines(),
        *(str(note) for rejected in rejects for note in rejected.notes()),
    ):
        console.note(f"note: {line}")
    if qrels is None:
        console.note("note: no qrels: the configuration has no judgments to count")
    if len(units) == 1:
        console.note("note: no wordpieces: no stage of the configuration has a checkpoint")
    print_result(measured.table(), measured.as_object(), result_format)


def _docs(corpus: CorpusConfig, progress: Progress, rejects: Rejects) -> Iterator[DocBatch]:
    units = list_units(corpus)
    for done, unit in enumerate(units):
        progress.update(done, len(units), "units of the corpus")
        yield from read_unit(unit, rejects)


def _wordpieces(settings: RunConfig) -> dict[str, CountUnits]:
    """How wordpieces are counted, for each distinct tokenizer; only the tokenizers are fetched, not
    the weights.
    """
    # The libraries take a second to import, and other commands do without.
    from models.checkpoints.checkpoint import fetch_tokenizer
    from models.tokenizers.base import Tokenizer

    def counter(tokenizer: Tokenizer) -> CountUnits:
        def count(texts: Sequence[str]) -> list[int]:
            lengths: list[int] = tokenizer.encode(texts, _NO_LIMIT).ids.value_lengths().to_pylist()
            return lengths

        return count

    counters: dict[str, CountUnits] = {}
    digests: set[str] = set()
    for name, _, section in settings.cascade:
        if isinstance(section, ModelConfig):
            tokenizer = fetch_tokenizer(section.checkpoint)
            if tokenizer.digest not in digests:
                digests.add(tokenizer.digest)
                counters[f"wordpieces ({name})" if counters else "wordpieces"] = counter(tokenizer)
    return counters
