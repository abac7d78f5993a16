"""The cascade in memory: topics, candidates and texts go in, rankings come out."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.shards import Shard, cut_shards
from beamrank.config.models import DuoConfig, MonoConfig
from beamrank.config.yaml import check_document
from beamrank.errors import ConfigError, DataError
from beamrank.formats.ids import check_ids_of_query
from beamrank.formats.run_writer import run_scores
from beamrank.formats.runs import Run, RunScores, read_run, run_of
from beamrank.join.join import MissingDoc
from beamrank.join.shard import as_mono, candidates_table
from beamrank.ranking.rankings import Ranking, duo_ranking, mono_ranking
from beamrank.records import Topic
from models.reranker import Reranker, RerankerKind, RerankerOptions, tokenize_shard

_SHOWN = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cascade:
    """Re-ranks a shard: `k0` candidates by mono, then mono's best `k1` by duo. Without mono, duo takes the first."""

    mono: Reranker | None
    duo: Reranker | None = None
    k0: int = 1000
    k1: int = 50
    aggregation: str = "sum"
    opponents: int | None = None
    seed: int = 0

    def score(self, tokens: Mapping[str, pa.Table], candidates: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """`schemas.MONO` and `schemas.DUO` of a shard; `tokens` are its tokenized tables by the tokenizer's digest."""
        mono = as_mono(candidates)
        if self.mono is not None:
            mono, _ = self.mono.score_shard(tokens[self.mono.tokenizer.digest], self.k0)
        if self.duo is None:
            return mono, None
        shard = tokens[self.duo.tokenizer.digest]
        return mono, self.duo.score_shard(shard, self.k1, mono, self.opponents, self.seed)[0]

    def rank(self, candidates: pa.Table, mono: pa.Table, duo: pa.Table | None) -> dict[str, dict[str, Ranking]]:
        """The rankings of each stage that has a model, by the name of its run and query_id."""
        by_mono = mono_ranking(candidates, mono)
        rankings = {} if self.mono is None else {"mono": by_mono}
        if duo is not None:
            rankings[f"duo-{self.aggregation}"] = duo_ranking(by_mono, duo, self.aggregation)
        return rankings

    def tokenize(
        self, queries: Mapping[str, str], candidates: pa.Table, texts: Mapping[str, str]
    ) -> dict[str, pa.Table]:
        """The tokenized tables of a shard, by the tokenizer's digest."""
        some = candidates.filter(pc.less_equal(candidates["rank"], self.k0))
        tables: dict[str, pa.Table] = {}
        for each in (self.mono, self.duo):
            if each is not None and each.tokenizer.digest not in tables:
                table = tokenize_shard(each.tokenizer, queries, some, texts, each.max_doc_tokens)
                tables[each.tokenizer.digest] = table
        return tables


def rerank(
    topics: Mapping[str, str],
    run: Mapping[str, Mapping[str, float]] | str | os.PathLike[str],
    corpus: Mapping[str, str],
    *,
    mono: str | Reranker,
    duo: str | Reranker | None = None,
    k0: int = 1000,
    k1: int = 50,
    aggregation: str = "sum",
    opponents: int | None = None,
    seed: int = 0,
    **options: Unpack[RerankerOptions],
) -> dict[str, RunScores]:
    """Re-ranks a run in memory.

    Rankings and scores are those of `beamrank run` with `candidates: {run: ...}`, to the bit. For that, topics are
    scored in the same shards, by default 16 topics each. It also bounds the memory: the tokens of one shard are held at
    a time. Topics without candidates have no ranking, and queries of the run that are not among the topics are left
    out; both are counted in the log.

    Args:
        topics: the text of each query, by query_id.
        run: the candidates: {query_id: {doc_id: score}}, where tied scores keep their order, or the path of a TREC or
            MS MARCO run, where tied scores are ordered by the rank column.
        corpus: the text of each doc, by doc_id; any Mapping. Only the docs that are scored are looked up.
        mono: a checkpoint, or a `Reranker` of kind mono.
        duo: a checkpoint, or a `Reranker` of kind duo; by default there is no second stage.
        k0: how many candidates of a query mono scores. The others follow in the order of the run.
        k1: how many of mono's best duo compares, at most k0.
        aggregation: how duo's scores of pairs become one score a doc.
        opponents: with `aggregation="sample"`, how many opponents are drawn for a doc.
        seed: with `aggregation="sample"`, decides which are drawn.
        **options: of the rerankers that are given as checkpoints: see `Reranker`.

    Returns:
        `{"mono": run, "duo-sum": run}`, each run `{query_id: {doc_id: score}}`: queries sorted by query_id, docs best
        first, scores strictly decreasing in float32.

    Raises:
        ConfigError: an option is wrong.
        PreflightError: a checkpoint or the run cannot be used.
        DataError: a text is missing or empty, a doc is missing from the corpus, or a score is not finite.
    """
    for name, texts in (("topics", topics), ("corpus", corpus)):
        if not isinstance(texts, Mapping):
            raise DataError(f"`{name}` must be a Mapping of ids to texts, not {type(texts).__name__}")
    check_document({"checkpoint": "", "k": k0}, MonoConfig, "rerank (k is k0)")
    sampling = {"aggregation": aggregation, "opponents": opponents, "seed": seed}
    check_document({"checkpoint": "", "k": k1, **sampling}, DuoConfig, "rerank (k is k1)")
    given = run_of(run, ties="rank") if isinstance(run, Mapping) else read_run(os.fsdecode(run), ties="rank")
    queries = _queries(topics, given)
    _check_docs(given, queries, corpus, k0)
    first, second = _load(mono, "mono", options), None if duo is None else _load(duo, "duo", options)
    cascade = Cascade(first, second, k0, k1, aggregation, opponents, seed)
    found: dict[str, RunScores] = {}
    for shard in cut_shards(queries, None):
        for name, rankings in _rerank_shard(cascade, shard, given, corpus).items():
            run_of_name = found.setdefault(name, {})
            for query_id, ranking in rankings.items():
                run_of_name[query_id] = run_scores(query_id, ranking)
    return {name: dict(sorted(rankings.items())) for name, rankings in found.items()}


def _rerank_shard(cascade: Cascade, shard: Shard, run: Run, corpus: Mapping[str, str]) -> dict[str, dict[str, Ranking]]:
    queries = {topic.query_id: topic.text for topic in sorted(shard.topics) if topic.query_id in run.order}
    order = [run.order[query_id] for query_id in queries]
    candidates = candidates_table(list(queries), order, [run.scores[query_id] for query_id in queries])
    needed = dict.fromkeys(doc_id for doc_ids in order for doc_id in doc_ids[: cascade.k0])
    texts = {doc_id: corpus[doc_id] for doc_id in needed}
    for doc_id, text in texts.items():
        if not isinstance(text, str):
            raise DataError(f"the text of doc_id {doc_id!r} is not a string but {type(text).__name__}: give its text")
    return cascade.rank(candidates, *cascade.score(cascade.tokenize(queries, candidates, texts), candidates))


def _load(given: str | Reranker, kind: RerankerKind, options: RerankerOptions) -> Reranker:
    if not isinstance(given, Reranker):
        return Reranker(given, kind, **options)
    if given.kind != kind:
        raise ConfigError(f"`{kind}` is a Reranker of kind {given.kind!r}: give one of kind {kind!r}")
    if options:
        raise ConfigError(f"`{kind}` is a Reranker, which has its own options: give {', '.join(options)} to it")
    return given


def _queries(topics: Mapping[str, str], run: Run) -> list[Topic]:
    """All topics, with or without candidates: which topics share a shard depends on all of them."""
    queries = [Topic(*each) for each in topics.items()]
    for query_id, text in queries:
        check_ids_of_query("the topics", query_id, ())
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"the topic {query_id!r} has no text ({text!r}): give it one, or leave it out")
    without = [query_id for query_id in topics if query_id not in run.order]
    if len(without) == len(topics):
        raise DataError(
            f"the run has none of the {len(topics):,} topics: its first query_id is {next(iter(run.order))!r}, the "
            f"topics' {next(iter(topics), None)!r}. Give the run that was made for these topics"
        )
    strangers = [query_id for query_id in run.order if query_id not in topics]
    for what, query_ids in (("topics without candidates", without), ("queries that are not topics", strangers)):
        if query_ids:
            _log.warning("%s: %s (first: %r); they have no ranking", what, f"{len(query_ids):,}", query_ids[0])
    return queries


def _check_docs(run: Run, queries: Sequence[Topic], corpus: Mapping[str, str], k0: int) -> None:
    """Finds missing docs before anything is scored."""
    asked: dict[str, str] = {}
    for query_id, _ in queries:
        for doc_id in run.order.get(query_id, [])[:k0]:
            asked.setdefault(doc_id, query_id)
    missing = [MissingDoc(*each) for each in asked.items() if each[0] not in corpus]
    if missing:
        raise DataError(
            f"candidate docs that are not in the corpus: {len(missing):,} (first: "
            f"{', '.join(map(str, missing[:_SHOWN]))}). They cannot be scored: give the corpus that the run was made "
            "from"
        )
