"""What a run will cost: counts from the configuration, seconds from a short measurement on this machine."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.evaluation.measures import parse_measures
from beamrank.formats.corpora import corpus_digest, list_units, read_unit
from beamrank.ranking.input_layout import Lengths
from beamrank.ranking.segments import SegmentRule, cut_segments
from beamrank.records import Doc, Topic
from beamrank.stages.forecast import duo_inferences
from beamrank.stages.plan import StageKind, cut_shards
from beamrank.stages.plan_changes import Change
from beamrank.storage import files as storage
from beamrank.tables.shard import as_mono, candidates_table, tokenized_schema, tokenized_table
from models.checkpoints.check import Checkpoint, resolve_checkpoint
from models.lucene.bm25 import Bm25Searcher
from models.lucene.index import check_index, local_index
from models.reranker import Reranker, RerankerKind
from models.scoring.engine import StageCounts
from pipelines.planning.join_passes import join_passes
from pipelines.planning.make_plan import (
    check_apart,
    check_segments,
    chosen_topics,
    read_tokenizer,
    segment_rule,
    stored_doc_tokens,
    threads_of,
)
from pipelines.planning.remaining import find_remaining

_SAMPLE_TOPICS = 4
_SAMPLE_DOCS = 24
_SAMPLE_DUO_DOCS = 6
_SEARCH_TOPICS = 16
# Where there is no index to search yet: Anserini's own figure for one thread on 8.8 million passages.
_BM25_TOPICS_PER_SECOND = 13.0
_CANDIDATE_BYTES = 12


class Cost(NamedTuple):
    """At most so many inferences and bytes, and seconds on this machine with one worker."""

    inferences: int
    bytes: int
    seconds: float


# The cost of a stage for so many topics.
CostOf = Callable[[int], Cost]


@dataclass(frozen=True)
class StageEstimate:
    """One stage, as if nothing of it were done, and the `remaining_*` of it that has no receipt yet."""

    stage: StageKind
    inferences: int
    bytes: int
    seconds: float
    remaining_shards: int
    remaining_inferences: int
    remaining_bytes: int
    remaining_seconds: float


@dataclass(frozen=True)
class Estimate:
    """A whole run; the corpus is read at most `join_passes` times, with the memory that is free now.

    `changed` is what differs from the plan that was last run into the output, and `note` why that could not be told.
    """

    topics: int
    shards: int
    join_passes: int
    stages: tuple[StageEstimate, ...]
    changed: tuple[Change, ...]
    note: str | None

    @property
    def resumes(self) -> bool:
        """Whether receipts of earlier runs count."""
        return any(stage.remaining_shards < self.shards for stage in self.stages)


def estimate(config: RunConfig) -> Estimate:
    """Estimates a run, and what of it remains to be done, before anything of it runs. Writes nothing.

    Every topic is taken to have all its candidates, so that counts are upper bounds.

    Raises:
        PreflightError: an input is not as it must be.
    """
    check_apart(config)
    parse_measures(config.measures)
    topics = chosen_topics(config).kept
    shards = cut_shards(topics, config.shards)
    costs: list[tuple[StageKind, CostOf]] = [("retrieve", _retrieve_cost(config, topics))]
    passes = 0
    if config.mono is not None:
        mono = resolve_checkpoint(config.mono.checkpoint, "mono")
        check_segments(config.mono, mono)
        doc_tokens = stored_doc_tokens(config, mono)
        passes = join_passes(len(topics) * config.mono.k, list_units(config.corpus), len(shards), doc_tokens)
        costs += _scoring_costs(config, mono, doc_tokens, topics)
    remaining = find_remaining(config)
    stages = []
    for kind, cost in costs:
        missing = remaining.shards.get(kind, range(len(shards)))
        rest = cost(sum(len(shards[shard].topics) for shard in missing))
        stages.append(StageEstimate(kind, *cost(len(topics)), len(missing), *rest))
    return Estimate(len(topics), len(shards), passes, tuple(stages), remaining.changed, remaining.note)


def _retrieve_cost(config: RunConfig, topics: Sequence[Topic]) -> CostOf:
    seconds = _search_seconds(config, topics)
    return lambda count: Cost(0, count * config.first_stage_k * _CANDIDATE_BYTES, count * seconds)


def _search_seconds(config: RunConfig, topics: Sequence[Topic]) -> float:
    """For a topic: searches the first of them where there is an index; a run that is given takes no search."""
    if config.index is None:
        return 0.0
    if not storage.sizes_bytes(config.index.path):
        return 1 / _BM25_TOPICS_PER_SECOND
    bm25 = config.first_stage_bm25
    info = check_index(config.index.path, corpus_digest(config.corpus))
    some = topics[:_SEARCH_TOPICS]
    folder = local_index(config.index.path, info.digest).folder
    with Bm25Searcher(folder, bm25.k1, bm25.b, threads_of(config)) as searcher:
        searcher.search(some, bm25.k)
        start = time.monotonic()
        searcher.search(some, bm25.k)
    return (time.monotonic() - start) / len(some)


def _scoring_costs(
    config: RunConfig, mono: Checkpoint, doc_tokens: int, topics: Sequence[Topic]
) -> Iterator[tuple[StageKind, CostOf]]:
    assert config.mono is not None
    k = config.mono.k
    start = time.monotonic()
    docs = list(itertools.islice(_docs(config), 2000))
    # A batch is a thread's: the sample must give work to all of them.
    some = topics[: max(_SAMPLE_TOPICS, threads_of(config))]
    sample = _Sample(config, mono, doc_tokens, some, docs, time.monotonic() - start)
    yield "tokenize", _tokenize_cost(config, sample, k, len(docs))
    most, mean = _segments_a_doc(segment_rule(config.mono), sample.doc_lengths)
    chunks, mono_seconds = mono.architecture.chunks, sample.mono_seconds()
    yield (
        "mono",
        lambda count: Cost(
            count * k * most * chunks,
            count * k * most * _CANDIDATE_BYTES,
            count * k * mean * chunks * mono_seconds,
        ),
    )
    if config.duo is not None:
        depth, duo_seconds = config.duo.k, sample.duo_seconds()
        asked = int(duo_inferences(depth, depth, config.duo.opponents))
        yield "duo", lambda count: Cost(count * asked, count * depth**2 * 4, count * asked * duo_seconds)


def _tokenize_cost(config: RunConfig, sample: "_Sample", k: int, docs: int) -> CostOf:
    """The corpus is read whole for any topics at all; what is tokenized of it depends on how many they are."""
    corpus_bytes = sum(storage.size_bytes(url) for url in {unit.url for unit in list_units(config.corpus)})
    samples_read = corpus_bytes / sample.corpus_bytes

    def cost(count: int) -> Cost:
        pairs = count * k
        samples_tokenized = min(samples_read, pairs / docs)
        seconds = samples_read * sample.read_seconds + samples_tokenized * sample.tokenize_seconds
        return Cost(0, int(pairs * sample.doc_tokens * 2), seconds if count else 0.0)

    return cost


def _segments_a_doc(rule: SegmentRule | None, doc_lengths: Lengths) -> tuple[int, float]:
    """The most that any doc can have, and the mean of the sampled docs."""
    return 1 if rule is None else rule.limit, len(cut_segments(doc_lengths, rule).docs) / max(1, len(doc_lengths))


def _docs(config: RunConfig) -> Iterator[Doc]:
    for unit in list_units(config.corpus):
        for batch in read_unit(unit):
            yield from map(Doc, batch.doc_ids, batch.texts)


class _Sample:
    """The first topics and docs, tokenized, and the time that one input of each model takes."""

    def __init__(
        self,
        config: RunConfig,
        mono: Checkpoint,
        doc_tokens: int,
        topics: Sequence[Topic],
        docs: Sequence[Doc],
        read_seconds: float,
    ) -> None:
        if not docs:
            raise PreflightError(f"the corpus {config.corpus.path} holds no doc that can be read")
        self.read_seconds = read_seconds
        self._config = config
        mono.check_length(config.input.max_length)
        tokenizer = read_tokenizer(mono)
        start = time.monotonic()
        tokens = tokenizer.encode([doc.text for doc in docs], doc_tokens).ids
        self.tokenize_seconds = time.monotonic() - start
        self.corpus_bytes = max(1, sum(len(doc.text.encode()) for doc in docs))
        self.doc_lengths: Lengths = np.diff(tokens.offsets.to_numpy()).astype(np.int64)
        self.doc_tokens = float(self.doc_lengths.mean())
        queries = tokenizer.encode([topic.text for topic in topics], doc_tokens).ids
        query_ids = [topic.query_id for topic in topics]
        some = [doc.doc_id for doc in docs[:_SAMPLE_DOCS]]
        self._candidates = candidates_table(query_ids, [some] * len(topics))
        rows = np.tile(np.arange(len(some)), len(topics))
        schema = tokenized_schema(tokenizer)
        self._table = tokenized_table(schema, query_ids, queries, self._candidates, tokens, rows)

    def mono_seconds(self) -> float:
        """Seconds for one inference; a first call warms the model up."""
        mono = self._reranker("mono", self._config.mono.checkpoint if self._config.mono else "")
        return _seconds_per_inference(lambda: mono.score_shard(self._table, _SAMPLE_DOCS)[1])

    def duo_seconds(self) -> float:
        """Seconds for one triple."""
        duo = self._reranker("duo", self._config.duo.checkpoint if self._config.duo else "")
        before = as_mono(self._candidates)
        return _seconds_per_inference(lambda: duo.score_shard(self._table, _SAMPLE_DUO_DOCS, before)[1])

    def _reranker(self, kind: RerankerKind, reference: str) -> Reranker:
        config = self._config
        return Reranker(
            reference,
            kind,
            dtype=config.dtype,
            device=config.device,
            threads=config.threads,
            **config.input.model_dump(),
        )


def _seconds_per_inference(score: Callable[[], StageCounts]) -> float:
    score()
    start = time.monotonic()
    counts = score()
    return (time.monotonic() - start) / max(1, counts.inferences)
