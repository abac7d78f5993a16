"""The cascade in memory: topics, candidates and texts go in, rankings come out."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, Unpack, cast

import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.parts import ShardParts
from beamrank.commit.schemas import candidates_table
from beamrank.commit.shards import Shard, cut_shards
from beamrank.config.cascade import (
    ConfiguredStage,
    check_names,
    one_stage,
    parse_stage,
    section_of_stage,
)
from beamrank.config.run import JobConfig, RunConfig, RunInputConfig
from beamrank.config.stages import FirstStageConfig
from beamrank.errors import ConfigError, DataError
from beamrank.formats.checks import check_ids_of_query
from beamrank.formats.run_order import Run
from beamrank.formats.run_writer import run_scores
from beamrank.formats.runs import RunScores, read_run, run_of
from beamrank.frames import Frame, run_like, run_of_frame, texts_of
from beamrank.join.join import MissingDoc
from beamrank.notes import SILENT
from beamrank.ranking.input_layout import max_doc_tokens
from beamrank.ranking.rankings import Rankings
from beamrank.records import Topic
from models.reranker import Reranker, RerankerKind, RerankerOptions, tokenize_shard
from models.scoring.backends.registry import Device
from models.stages.compute import ShardInputs
from models.stages.core import stage_class
from models.stages.given_run import GivenRun
from models.stages.planning import Planning, PlanningProgress
from models.stages.scoring import kind_of
from models.stages.texts import TEXTS, CutTexts, PassTexts

_SHOWN = 5
_log = logging.getLogger(__name__)
# Of a stage without a model.
_PLANNING = Planning(
    cast(RunConfig, JobConfig.model_construct()),
    corpus_digest="",
    checkpoints={},
    device=Device("cpu", "float32", 0),
    progress=cast(PlanningProgress, SILENT),
)


@dataclass(frozen=True, kw_only=True)
class _RunHere(GivenRun):
    """A run in memory."""

    has_scores: bool = True


class Cascade(NamedTuple):
    """Stages in memory.

    Attributes:
        stages: the first, then those that score.
        models: the loaded models of these, by name.
        doc_tokens: how many tokens of a doc are kept.
    """

    stages: Sequence[Any]
    models: Mapping[str, Reranker]
    doc_tokens: int

    @classmethod
    def of(
        cls,
        later: Sequence[ConfiguredStage],
        models: Mapping[str, Reranker],
        *,
        has_scores: bool = True,
    ) -> Self:
        """The stages of these entries of a cascade after a given run, as a plan would have them."""
        stages: list[Any] = [_RunHere(run_digest="", k=sys.maxsize, url="", has_scores=has_scores)]
        read = [0]
        for own in later:
            kind, model = stage_class(own.kind), models.get(own.name)
            planning = replace(_PLANNING, before=tuple(stages))
            if model is None:
                checkpoints = {own.name: kind.read_checkpoint(own, planning.config)}
                tokens = {own.name: TEXTS} if kind.needs == TEXTS else {}
                planning = replace(planning, checkpoints=checkpoints, tokens=tokens)
            else:
                planning = replace(
                    planning,
                    config=cast(RunConfig, model.job),
                    checkpoints={own.name: model.engine.checkpoint},
                    device=model.device,
                    tokens={own.name: tokens_name(model)},
                )
            (stage,) = kind.planned(own, planning)
            stages.append(replace(stage, chain=tuple(stages)))
            if model is not None:
                read.append(own.section.doc_tokens(stage.most_tokens))
        return cls(stages, models, max_doc_tokens(max(read)))

    def rankings(self, tables: Mapping[str, pa.Table], shard: int = 0) -> Iterator[Rankings]:
        """The rankings of a shard after each stage that scores.

        `tables` are its candidates, as the part of the first stage, and its tokens, by
        `tokens_name`.
        """
        parts = dict(tables)
        ranked = ShardParts(shard, self.stages, parts.__getitem__)
        for stage in self.stages[1:]:
            model = self.models.get(stage.name)
            inputs = ShardInputs(shard, parts.__getitem__, model=model and model.engine)
            parts[stage.name] = stage.compute(inputs).part
            yield ranked.rankings(stage.name)


def tokens_name(model: Reranker) -> str:
    """The stage that would make the tokens of a model."""
    return f"tokenize-{model.tokenizer.digest[:8]}"


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
    needed = _needed(candidates, queries, sections[0][0].section.k)
    if isinstance(corpus, Frame):
        corpus = texts_of("the corpus", "doc_id", corpus, needed)
    _check_docs(needed, corpus)
    models = {own.name: _load(model, own, options) for own, model in sections if model is not None}
    cascade_here = Cascade.of(
        [own for own, _ in sections], models, has_scores=candidates.notes.has_scores
    )
    names = [stage.run_name for stage in cascade_here.stages[1:]]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"rerank: two stages give the run {max(names, key=names.count)}: choose a different "
            "`name`"
        )
    found: dict[str, RunScores] = {}
    for shard in cut_shards(queries, None):
        tables = _tables(cascade_here, shard, candidates, corpus)
        for name, rankings in zip(names, cascade_here.rankings(tables, shard.index), strict=True):
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


def _tables(
    cascade: Cascade, shard: Shard, run: Run, corpus: Mapping[str, str]
) -> dict[str, pa.Table]:
    """The candidates of a shard, and the tokens that its stages read."""
    queries = {
        topic.query_id: topic.text for topic in sorted(shard.topics) if topic.query_id in run.order
    }
    order = [run.order[query_id] for query_id in queries]
    candidates = candidates_table(
        list(queries), order, [run.scores[query_id] for query_id in queries]
    )
    first, *later = cascade.stages
    depth = later[0].k
    texts = {doc_id: corpus[doc_id] for doc_ids in order for doc_id in doc_ids[:depth]}
    for doc_id, text in texts.items():
        if not isinstance(text, str):
            raise DataError(
                f"the text of doc_id {doc_id!r} is not a string but {type(text).__name__}: give "
                "its text"
            )
    some = candidates.filter(pc.less_equal(candidates["rank"], depth))
    tokenizers = {tokens_name(model): model.tokenizer for model in cascade.models.values()}
    tokens = {
        name: tokenize_shard(tokenizer, queries, some, texts, cascade.doc_tokens)
        for name, tokenizer in tokenizers.items()
    }
    if any(stage.needs == TEXTS for stage in later):
        most = RunInputConfig().max_text_bytes
        tokens[TEXTS] = tokenize_shard(CutTexts(), queries, some, texts, most, PassTexts.schema)
    return {first.name: candidates, **tokens}


def _sections(
    cascade: Sequence[Mapping[str, Mapping[str, Any]]], hint: str = ""
) -> list[tuple[ConfiguredStage, str | Reranker | None]]:
    """Each stage, checked, and its model; `hint` explains the names of keys in an error."""
    stages: list[tuple[ConfiguredStage, str | Reranker | None]] = []
    try:
        for entry in cascade:
            kind, settings = one_stage(entry)
            section, model = section_of_stage(kind), None
            if issubclass(section, FirstStageConfig) or section.deepens:
                raise ValueError(f"{kind} cannot be ranked in memory: leave it out")
            if stage_class(kind).needs == "tokens":
                model, settings["checkpoint"] = settings.get("checkpoint"), ""
            stages.append((parse_stage({kind: settings}), model))
        check_names([stage for stage, _ in stages])
    except ValueError as error:
        raise ConfigError(f"rerank{hint}: {error}") from error
    return stages


def _load(model: str | Reranker, own: ConfiguredStage, options: RerankerOptions) -> Reranker:
    kind, name = cast(RerankerKind, kind_of(stage_class(own.kind))), own.name
    instruction: str | None = getattr(own.section, "instruction", None)
    if instruction is not None:
        options = {**options, "instruction": instruction}
    options = {**options, **own.section.options}
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
