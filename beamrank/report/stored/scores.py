"""The stored scores of a run's finished stages, a shard of queries at a time."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.formats.corpora import digest_corpus
from beamrank.formats.corpora.texts import find_texts
from beamrank.ranking.aggregation import Matrix
from beamrank.ranking.rankings import without_dropped
from beamrank.ranking.segments import pool_segments
from beamrank.stages.plan import Plan
from beamrank.stages.receipts import Manifest
from beamrank.stages.stage_record import StageRecord
from beamrank.tables.schemas import RowKind

Floats: TypeAlias = NDArray[np.float64]
Positions: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class StoredQuery:
    """The n candidates of a query in the first stage's order, with what the later stages stored of them.

    Attributes:
        query_id: the query's.
        doc_ids: the candidates.
        ranks: int64[n], their ranks in the first stage, from 1.
        first_scores: float64[n], its scores.
        mono_scores: float64[n], NaN where mono did not score; None if mono is not finished.
        compared: int64[k], which candidates duo compared, in mono's order; None if duo is not finished.
        z: float32[k, k], duo's log-odds.
    """

    query_id: str
    doc_ids: tuple[str, ...]
    ranks: Positions
    first_scores: Floats
    mono_scores: Floats | None = None
    compared: Positions | None = None
    z: Matrix | None = None

    @cached_property
    def mono_order(self) -> Positions:
        """The candidates in mono's order: those that it scored, then the others. int64[n]."""
        assert self.mono_scores is not None
        # A stable sort: ties stay in the first stage's order, and NaN comes last.
        return np.argsort(-self.mono_scores, kind="stable")

    def duo_order(self, scores: Floats) -> Positions:
        """The candidates in duo's order, given the scores of the first of those that it compared. int64[n]."""
        head = self.mono_order[: len(scores)]
        return np.concatenate([head[np.argsort(-scores, kind="stable")], self.mono_order[len(scores) :]])


def ranked_texts(plan: Plan, config: RunConfig, doc_ids: Collection[str]) -> dict[str, str]:
    """The texts of some docs, as the run read them; those that the corpus lacks are left out.

    Raises:
        PreflightError: the corpus does not exist, cannot be read, or changed since the run.
    """
    read = {stage.corpus_digest for stage in plan.stages if stage.corpus_digest is not None}
    corpus = digest_corpus(config.corpus)
    if read and corpus.digest not in read:
        raise PreflightError(
            f"the corpus {config.corpus.path} changed since the run, so its passages may not be those that were "
            "ranked: restore it, run again, or leave the passages out (--no-texts)"
        )
    with corpus.held():
        return find_texts(config.corpus, doc_ids)


def finished_stages(plan: Plan) -> dict[RowKind, tuple[StageRecord, Manifest]]:
    """The finished stages by what their rows are. Writes nothing."""
    found = [(stage, plan.finished(stage.name)) for stage in plan.stages]
    return {stage.rows: (stage, manifest) for stage, manifest in found if manifest is not None}


def iter_stored(plan: Plan, config: RunConfig, query_ids: Collection[str] | None = None) -> Iterator[list[StoredQuery]]:
    """The stored scores of each shard, or of those with some queries; none before the first stage is finished."""
    finished = finished_stages(plan)
    for shard in plan.shards if "candidates" in finished else ():
        if query_ids is None or any(topic.query_id in query_ids for topic in shard.topics):
            yield _read_shard(plan, config, finished, shard.index)


def _read_shard(
    plan: Plan, config: RunConfig, finished: Mapping[RowKind, tuple[StageRecord, Manifest]], shard: int
) -> list[StoredQuery]:
    """The stored scores of one shard's queries; of those that have candidates."""
    tables = {
        rows: plan.folder(stage.name).read_part(manifest.receipts[shard])
        for rows, (stage, manifest) in finished.items()
        if rows != "tokenized"
    }
    candidates, mono = tables["candidates"], tables.get("mono")
    scores: dict[tuple[str, str], float] = {}
    if mono is not None and config.mono is not None:
        if config.on_missing_doc == "drop":
            candidates = without_dropped(candidates, mono, config.mono.k)
        pooled = pool_segments(mono, config.mono.pooling)
        scores = {(query_id, doc_id): score for query_id, doc_id, score in _rows(pooled, "query_id", "doc_id", "score")}
    pairs = {}
    if "duo" in tables:
        pairs = {row[0]: row[1:] for row in _rows(tables["duo"], "query_id", "doc_ids", "scores")}
    ordered = candidates.sort_by([("query_id", "ascending"), ("rank", "ascending")])
    by_query: dict[str, list[tuple[str, int, float]]] = {}
    for query_id, *row in _rows(ordered, "query_id", "doc_id", "rank", "score"):
        by_query.setdefault(query_id, []).append(tuple(row))
    return [_query(query_id, rows, scores if mono is not None else None, pairs) for query_id, rows in by_query.items()]


def _query(
    query_id: str,
    rows: list[tuple[str, int, float]],
    scores: Mapping[tuple[str, str], float] | None,
    pairs: Mapping[str, tuple[list[str], list[float]]],
) -> StoredQuery:
    doc_ids, ranks, first = zip(*rows, strict=True)
    mono = None if scores is None else np.array([scores.get((query_id, one), np.nan) for one in doc_ids], np.float64)
    compared = z = None
    if query_id in pairs:
        place = {doc_id: position for position, doc_id in enumerate(doc_ids)}
        docs, values = pairs[query_id]
        compared = np.array([place[doc_id] for doc_id in docs], np.int64)
        z = np.array(values, np.float32).reshape(len(docs), len(docs))
    return StoredQuery(query_id, doc_ids, np.array(ranks, np.int64), np.array(first, np.float64), mono, compared, z)


def _rows(table: Any, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(column).to_pylist() for column in columns), strict=True)
