"""The cascade in memory: topics, candidates and texts go in, rankings come out."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.shards import Shard, cut_shards
from beamrank.config.cascade import SHORT_FORM, checked_names, one_stage, parse_stage
from beamrank.config.stages import MonoConfig
from beamrank.errors import ConfigError, DataError
from beamrank.formats.checks import check_ids_of_query
from beamrank.formats.run_order import Run
from beamrank.formats.run_writer import run_scores
from beamrank.formats.runs import RunScores, read_run, run_of
from beamrank.frames import Frame, run_like, run_of_frame, texts_of
from beamrank.join.join import MissingDoc
from beamrank.join.schemas import candidates_table
from beamrank.ranking.rankings import Rankings, rank_candidates, rank_docs, rank_pairs, received
from beamrank.records import Topic
from models.reranker import Reranker, RerankerKind, RerankerOptions, tokenize_shard

_SHOWN = 5
_log = logging.getLogger(__name__)


class _Stage(NamedTuple):
    """A stage in memory: its name, its model, and the section that says how it ranks."""

    name: str
    model: Reranker
    section: Any

    @property
    def run_name(self) -> str:
        """The name of its run."""
        return self.name if self.model.kind == "mono" else f"{self.name}-{self.section.aggregation}"


def rerank_shard(model: Reranker, section: Any, before: Rankings, tokens: pa.Table) -> Rankings:
    """Scores a tokenized shard and ranks it, as the section of a stage says."""
    docs = received(before, section.k)
    if model.kind == "mono":
        return rank_docs(before, model.score_shard(tokens, docs)[0], section.k)
    part, _ = model.score_shard(tokens, docs, section.opponents, section.seed)
    return rank_pairs(before, part, section.k, section.aggregation)


def rerank(
    topics: Mapping[str, str] | Frame,
    run: Mapping[str, Mapping[str, float]] | Frame | str | os.PathLike[str],
    corpus: Mapping[str, str] | Frame,
    *,
    mono: str | Reranker | None = None,
    duo: str | Reranker | None = None,
    cascade: Sequence[Mapping[str, Mapping[str, Any]]] = (),
    k0: int = 1000,
    k1: int = 50,
    aggregation: str = "sum",
    opponents: int | None = None,
    seed: int = 0,
    **options: Unpack[RerankerOptions],
) -> dict[str, Any]:
    """Re-ranks a run in memory.

    Rankings and scores are those of `beamrank run` with `candidates: {run: ...}`, to the bit. For
    that, topics are scored in the same shards, by default 16 topics each. It also bounds the
    memory: only the tokens of one shard are in memory. Topics without candidates have no ranking,
    and queries of the run that are not among the topics are left out; both are counted in the log.

    Each of `topics`, `run` and `corpus` can be a frame: a table of pandas, polars, Arrow or any
    other library that exports Arrow's PyCapsule stream. Columns have the names that those of files
    can have.

    Args:
        topics: the text of each query, by query_id; a frame has the columns query_id and text.
        run: the candidates: {query_id: {doc_id: score}}, where tied scores keep their order, or the
            path of a TREC or MS MARCO run, where tied scores are ordered by the rank column. A
            frame has the columns query_id, doc_id, and score or rank or both; tied scores are
            ordered as those of a file: by rank, or else by doc_id, descending.
        corpus: the text of each doc, by doc_id; any Mapping, or a frame with the columns doc_id and
            text. Only the docs that are scored are looked up.
        mono: a checkpoint, or a `Reranker` of kind mono.
        duo: a checkpoint, or a `Reranker` of kind duo; by default there is no second stage.
        cascade: any number of stages in place of `mono` and `duo`, as in a configuration:
            `[{"mono": {"checkpoint": ..., "k": 100}}, {"duo": {...}}]`; a checkpoint can be a
            `Reranker`.
        k0: how many candidates of a query mono scores. The others follow in the order of the run.
        k1: how many of mono's best duo compares, at most k0.
        aggregation: how duo's scores of pairs become one score a doc.
        opponents: with `aggregation="sample"`, how many opponents are drawn for a doc.
        seed: with `aggregation="sample"`, decides which are drawn.
        **options: of the rerankers that are given as checkpoints: see `Reranker`.

    Returns:
        `{"mono": run, "duo-sum": run}`, by the names of the stages' runs; each run `{query_id:
        {doc_id: score}}`: queries sorted by query_id, docs best first, scores strictly decreasing
        in float32. Where `run` is a frame, or `run` is a path and `topics` a frame, each run is a
        frame with the columns query_id, doc_id, rank and score: of the same class if that, or its
        package, has `from_arrow` (pandas from 3.0, polars), or else a pyarrow.Table.

    Raises:
        ConfigError: an option is wrong.
        PreflightError: a checkpoint or the run cannot be used.
        DataError: a text is missing or empty, a doc is missing from the corpus, a score is not
            finite, or a frame cannot be used; the error names the column and the row.
    """
    for name, texts in (("topics", topics), ("corpus", corpus)):
        if not isinstance(texts, Mapping | Frame):
            raise DataError(
                f"`{name}` must be a Mapping of ids to texts or a frame, not {type(texts).__name__}"
            )
    if cascade and (mono is not None or duo is not None):
        raise ConfigError("`mono` and `duo` are the short form of `cascade`: give one or the other")
    if cascade and (k0, k1, aggregation, opponents, seed) != (1000, 50, "sum", None, 0):
        raise ConfigError(
            "k0, k1, aggregation, opponents and seed belong to `mono` and `duo`: set them in "
            "`cascade`"
        )
    if not cascade:
        if mono is None:
            raise ConfigError("give `mono`, or `cascade`")
        sampling = {"aggregation": aggregation, "opponents": opponents, "seed": seed}
        short: list[dict[str, dict[str, Any]]] = [
            {"mono": {"checkpoint": mono, "k": k0}},
            {"duo": {"checkpoint": duo or "", "k": k1, **sampling}},
        ]
        # What duo would be told is checked without it, too.
        sections = _sections(short, " (mono.k is k0, duo.k is k1)")[: 1 if duo is None else 2]
    else:
        sections = _sections(cascade)
    candidates = _read(run)
    queries = _queries(
        texts_of("the topics", "query_id", topics) if isinstance(topics, Frame) else topics,
        candidates,
    )
    needed = _needed(candidates, queries, sections[0][2].k)
    if isinstance(corpus, Frame):
        corpus = texts_of("the corpus", "doc_id", corpus, needed)
    _check_docs(needed, corpus)
    stages = [
        _Stage(name, _load(model, section, name, options), section)
        for name, model, section in sections
    ]
    names = [stage.run_name for stage in stages]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"rerank: two stages give the run {max(names, key=names.count)}: choose a different "
            "`name`"
        )
    found: dict[str, RunScores] = {}
    for shard in cut_shards(queries, None):
        for name, rankings in _rerank_stages(stages, shard, candidates, corpus):
            scores = {
                query_id: run_scores(query_id, ranking) for query_id, ranking in rankings.items()
            }
            found.setdefault(name, {}).update(scores)
    given = run if isinstance(run, Mapping | Frame) else topics
    runs = {name: dict(sorted(rankings.items())) for name, rankings in found.items()}
    return (
        {name: run_like(given, each) for name, each in runs.items()}
        if isinstance(given, Frame)
        else {**runs}
    )


def _read(run: Mapping[str, Mapping[str, float]] | Frame | str | os.PathLike[str]) -> Run:
    if isinstance(run, Frame):
        return run_of_frame(run, ties="rank")
    if isinstance(run, str | bytes | os.PathLike):
        return read_run(os.fsdecode(run), ties="rank")
    return run_of(run, ties="rank")


def _rerank_stages(
    stages: Sequence[_Stage], shard: Shard, run: Run, corpus: Mapping[str, str]
) -> Iterator[tuple[str, Rankings]]:
    """The rankings of each stage, and the name of its run."""
    queries = {
        topic.query_id: topic.text for topic in sorted(shard.topics) if topic.query_id in run.order
    }
    order = [run.order[query_id] for query_id in queries]
    candidates = candidates_table(
        list(queries), order, [run.scores[query_id] for query_id in queries]
    )
    depth = stages[0].section.k
    texts = {doc_id: corpus[doc_id] for doc_ids in order for doc_id in doc_ids[:depth]}
    for doc_id, text in texts.items():
        if not isinstance(text, str):
            raise DataError(
                f"the text of doc_id {doc_id!r} is not a string but {type(text).__name__}: give "
                "its text"
            )
    most: dict[str, int] = {}
    for model in (stage.model for stage in stages):
        most[model.tokenizer.digest] = max(
            most.get(model.tokenizer.digest, 0), model.max_doc_tokens
        )
    tokenizers = {stage.model.tokenizer.digest: stage.model.tokenizer for stage in stages}
    some = candidates.filter(pc.less_equal(candidates["rank"], depth))
    tokens = {
        key: tokenize_shard(each, queries, some, texts, most[key])
        for key, each in tokenizers.items()
    }
    ranking = rank_candidates(candidates)
    for stage in stages:
        ranking = rerank_shard(
            stage.model, stage.section, ranking, tokens[stage.model.tokenizer.digest]
        )
        yield stage.run_name, ranking


def _sections(
    cascade: Sequence[Mapping[str, Mapping[str, Any]]], hint: str = ""
) -> list[tuple[str, str | Reranker, Any]]:
    """The name, the model and the checked section of each stage; `hint` explains the names of keys
    in an error.
    """
    stages, models = [], []
    try:
        for entry in cascade:
            kind, settings = one_stage(entry)
            if kind not in SHORT_FORM:
                raise ValueError(
                    f"{kind} cannot be ranked in memory: give stages of the kinds "
                    f"{', '.join(SHORT_FORM)}"
                )
            models.append(settings.get("checkpoint", ""))
            stages.append(parse_stage({kind: {**settings, "checkpoint": ""}}))
        checked_names(stages, ())
    except ValueError as error:
        raise ConfigError(f"rerank{hint}: {error}") from error
    for stage in stages:
        if getattr(stage.section, "segments", None):
            raise ConfigError(
                f"rerank: {stage.name}.segments: docs are not cut in memory; leave it out"
            )
    return [(stage.name, model, stage.section) for stage, model in zip(stages, models, strict=True)]


def _load(model: str | Reranker, section: Any, name: str, options: RerankerOptions) -> Reranker:
    kind: RerankerKind = "mono" if isinstance(section, MonoConfig) else "duo"
    instruction: str | None = getattr(section, "instruction", None)
    if instruction is not None:
        options = {**options, "instruction": instruction}
    options = {**options, **section.options}
    if not isinstance(model, Reranker):
        return Reranker(model, kind, **options)
    if model.kind != kind:
        raise ConfigError(
            f"`{name}` is a Reranker of kind {model.kind!r}: give one of kind {kind!r}"
        )
    if options:
        raise ConfigError(
            f"`{name}` is a Reranker, which has its own options: give {', '.join(options)} to it"
        )
    return model


def _queries(topics: Mapping[str, str], run: Run) -> list[Topic]:
    """All topics, with or without candidates: which topics share a shard depends on all of them."""
    queries = [Topic(*each) for each in topics.items()]
    for query_id, text in queries:
        check_ids_of_query("the topics", query_id, ())
        if not isinstance(text, str) or not text.strip():
            raise DataError(
                f"the topic {query_id!r} has no text ({text!r}): give it one, or leave it out"
            )
    without = [query_id for query_id in topics if query_id not in run.order]
    if len(without) == len(topics):
        raise DataError(
            f"the run has none of the {len(topics):,} topics: its first query_id is "
            f"{next(iter(run.order))!r}, the topics' {next(iter(topics), None)!r}. Give the run "
            "that was made for these topics"
        )
    foreign = [query_id for query_id in run.order if query_id not in topics]
    for what, query_ids in (
        ("topics without candidates", without),
        ("queries that are not topics", foreign),
    ):
        if query_ids:
            _log.warning(
                "%s: %s (first: %r); they have no ranking",
                what,
                f"{len(query_ids):,}",
                query_ids[0],
            )
    return queries


def _needed(run: Run, queries: Sequence[Topic], k0: int) -> dict[str, str]:
    """The docs that are scored, each with the first query that needs it."""
    query_of: dict[str, str] = {}
    for query_id, _ in queries:
        for doc_id in run.order.get(query_id, [])[:k0]:
            query_of.setdefault(doc_id, query_id)
    return query_of


def _check_docs(needed: Mapping[str, str], corpus: Mapping[str, str]) -> None:
    """Finds missing docs before anything is scored."""
    missing = [MissingDoc(*each) for each in needed.items() if each[0] not in corpus]
    if missing:
        raise DataError(
            f"candidate docs that are not in the corpus: {len(missing):,} (first: "
            f"{', '.join(map(str, missing[:_SHOWN]))}). They cannot be scored: give the corpus "
            "that the run was made from"
        )
