"""The stored scores of a run's finished stages, a shard of queries at a time."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest
from beamrank.commit.stage_record import StageRecord
from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.evaluation.positions import Floats, Positions
from beamrank.formats.corpora import digest_corpus, find_texts
from beamrank.ranking.aggregation import Matrix
from beamrank.ranking.rankings import matrices, order
from beamrank.ranking.segments import pool_segments


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
        return order(self.mono_scores)

    def duo_order(self, scores: Floats) -> Positions:
        """The candidates in duo's order, given the scores of the first of those that it compared. int64[n]."""
        head = self.mono_order[: len(scores)]
        return np.concatenate([head[order(scores)], self.mono_order[len(scores) :]])


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
    with corpus.unchanged():
        return find_texts(config.corpus, doc_ids)


def finished_stages(plan: Plan) -> dict[str, tuple[StageRecord, Manifest]]:
    """The finished stages by their kinds; the first stage is `candidates`. Writes nothing."""
    found = [(stage, plan.finished(stage.name)) for stage in plan.stages]
    return {
        "candidates" if stage.name == "retrieve" else stage.type_name: (stage, manifest)
        for stage, manifest in found
        if manifest is not None
    }


def _without_dropped(candidates: Any, mono: Any, k: int) -> Any:
    """The candidates without those that mono was to score but whose doc the corpus lacks (on_missing_doc: drop)."""
    scored = set(zip(mono["query_id"].to_pylist(), mono["doc_id"].to_pylist(), strict=True))
    rows = zip(*(candidates[name].to_pylist() for name in ("query_id", "doc_id", "rank")), strict=True)
    return candidates.filter(
        pa.array([rank > k or (query_id, doc_id) in scored for query_id, doc_id, rank in rows], pa.bool_())
    )


def iter_stored(plan: Plan, config: RunConfig, query_ids: Collection[str] | None = None) -> Iterator[list[StoredQuery]]:
    """The stored scores of each shard, or of those with some queries; none before the first stage is finished."""
    finished = finished_stages(plan)
    for shard in plan.shards if "candidates" in finished else ():
        if query_ids is None or any(topic.query_id in query_ids for topic in shard.topics):
            yield _read_shard(plan, config, finished, shard.index)


def _read_shard(
    plan: Plan, config: RunConfig, finished: Mapping[str, tuple[StageRecord, Manifest]], shard: int
) -> list[StoredQuery]:
    """The stored scores of one shard's queries; of those that have candidates."""
    tables = {
        rows: plan.folder(stage.name).read_part(manifest.receipts[shard])
        for rows, (stage, manifest) in finished.items()
        if rows != "tokenize"
    }
    candidates, mono = tables["candidates"], tables.get("mono")
    scored: dict[str, slice] = {}
    if mono is not None and config.mono is not None:
        if config.on_missing_doc == "drop":
            candidates = _without_dropped(candidates, mono, config.mono.k)
        mono = pool_segments(mono, config.mono.pooling)
        scored = _rows_by_query(mono)
    pairs = matrices(tables["duo"]) if "duo" in tables else {}
    ordered = candidates.sort_by([("query_id", "ascending"), ("rank", "ascending")])
    doc_ids, ranks, first = (ordered.column(name) for name in ("doc_id", "rank", "score"))
    ids, places, scores = doc_ids.to_pylist(), ranks.to_numpy().astype(np.int64), first.to_numpy().astype(np.float64)
    return [
        _with_duo(
            StoredQuery(
                query_id,
                tuple(ids[rows]),
                places[rows],
                scores[rows],
                None if mono is None else _mono_scores(places[rows], mono, scored.get(query_id, slice(0, 0))),
            ),
            pairs,
        )
        for query_id, rows in _rows_by_query(ordered).items()
    ]


def _mono_scores(ranks: Positions, mono: Any, rows: slice) -> Floats:
    """The scores of one query's candidates, which mono's rows name by rank."""
    found = np.full(len(ranks), np.nan)
    part = mono.slice(rows.start, rows.stop - rows.start)
    found[np.searchsorted(ranks, part["rank"].to_numpy())] = part["score"].to_numpy()
    return found


def _with_duo(query: StoredQuery, pairs: Mapping[str, tuple[list[str], Matrix]]) -> StoredQuery:
    if query.query_id not in pairs:
        return query
    place = {doc_id: position for position, doc_id in enumerate(query.doc_ids)}
    docs, z = pairs[query.query_id]
    return replace(query, compared=np.array([place[doc_id] for doc_id in docs], np.int64), z=z)


def _rows_by_query(table: Any) -> dict[str, slice]:
    """The rows of each query of a table that is sorted by query_id."""
    codes = table["query_id"].combine_chunks().dictionary_encode()
    starts = np.flatnonzero(np.diff(codes.indices.to_numpy(), prepend=-1))
    ends = np.append(starts[1:], len(codes))
    return {
        query_id: slice(start, end)
        for query_id, start, end in zip(codes.dictionary.to_pylist(), starts.tolist(), ends.tolist(), strict=True)
    }
