"""duoBERT: the log-odds that doc_i is more relevant to a query than doc_j (Nogueira et al. 2019, section 3.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.errors import DataError
from beamrank.ranking.aggregation import sampled_opponents
from beamrank.ranking.input_layout import InputLimits, InputTemplate, Lengths, PackedInputs, duo_kept
from beamrank.ranking.rankings import by_score
from beamrank.tables import schemas
from beamrank.tables.shard import special_tokens
from models.scoring.engine import ScoringEngine, StageCounts
from models.scoring.packing import ShardTokens, distinct, number_texts, read_shard


def score_duo(
    engine: ScoringEngine,
    tokens: pa.Table,
    mono: pa.Table,
    k: int,
    limits: InputLimits,
    opponents: int | None,
    seed: int,
) -> tuple[pa.Table, StageCounts]:
    """Scores the ordered pairs of each query's k best docs by monoBERT.

    Inputs that are the same for a query once they are cut are scored once.

    Args:
        engine: with a checkpoint for duo.
        tokens: a shard, `beamrank.tables.schemas.tokenized` with the special tokens as metadata.
        mono: the same shard's `beamrank.tables.schemas.MONO`, a row a candidate; the best docs are those of the highest
            score, then lowest rank.
        k: how many docs of a query meet each other.
        limits: the truncation rule and its lengths.
        opponents: how many opponents SAMPLE draws for a doc; None asks every pair.
        seed: decides which opponents are drawn.

    Returns:
        `beamrank.tables.schemas.DUO`, one row a query of `tokens` in its order, and the counts for the receipt.

    Raises:
        DataError: `mono` holds a candidate that `tokens` does not.
    """
    shard = read_shard(tokens)
    admitted = _admit(shard, mono, k)
    template = engine.checkpoint.architecture.template(special_tokens(tokens.schema))
    query_kept, doc_kept = _kept(shard, admitted, template, limits)
    texts = number_texts(shard.tokens, shard.doc_starts[admitted.docs], doc_kept)
    pairs = _pairs(shard, admitted, opponents, seed)
    queries = admitted.queries[pairs.first]
    rows, inverse = distinct(queries, texts[pairs.first], texts[pairs.second])
    query, first, second = queries[rows], pairs.first[rows], pairs.second[rows]
    starts = [shard.query_starts[query], *(shard.doc_starts[admitted.docs[each]] for each in (first, second))]
    kept = [query_kept[query], doc_kept[first], doc_kept[second]]
    scores = engine.score(PackedInputs(shard.tokens, np.stack(starts, axis=1), np.stack(kept, axis=1), template))
    matrices = np.full(int((admitted.counts**2).sum()), np.nan, dtype=np.float32)
    matrices[pairs.cells] = scores.log_odds[inverse]
    met = admitted.counts > 1
    return _table(shard, admitted, matrices), StageCounts(
        **scores.cost,
        queries=tokens.num_rows,
        candidates=int(np.count_nonzero(met[admitted.queries])),
        truncated_queries=int(np.count_nonzero((query_kept < shard.query_lengths) & met)),
        truncated_docs=int(np.count_nonzero((doc_kept < shard.doc_lengths[admitted.docs]) & met[admitted.queries])),
        duplicate_inputs=len(inverse) - len(rows),
    )


@dataclass(frozen=True)
class _Admitted:
    """The a docs that meet each other, best first: the candidate and the query of each, and how many a query has."""

    docs: Lengths
    queries: Lengths
    counts: Lengths


@dataclass(frozen=True)
class _Pairs:
    """The p pairs that are asked, by place among the admitted docs; `cells` by place in the flat matrices."""

    first: Lengths
    second: Lengths
    cells: Lengths


def _admit(shard: ShardTokens, mono: pa.Table, k: int) -> _Admitted:
    best_first = by_score(mono)
    chosen: dict[str, list[str]] = {query_id: [] for query_id in shard.query_ids.to_pylist()}
    for query_id, doc_id in zip(best_first["query_id"].to_pylist(), best_first["doc_id"].to_pylist(), strict=True):
        if query_id not in chosen:
            raise DataError(f"query_id {query_id!r} has monoBERT scores and no tokens in its shard")
        if len(chosen[query_id]) < k:
            chosen[query_id].append(doc_id)
    ends = np.cumsum(shard.candidates).tolist()
    doc_ids = shard.doc_ids.to_pylist()
    docs: list[int] = []
    for (query_id, best), start, end in zip(chosen.items(), [0, *ends], ends, strict=False):
        docs += _find(query_id, best, doc_ids[start:end], start)
    counts = np.array([len(best) for best in chosen.values()], dtype=np.int64)
    return _Admitted(np.array(docs, dtype=np.int64), np.repeat(np.arange(len(counts)), counts), counts)


def _find(query_id: str, wanted: Sequence[str], doc_ids: Sequence[str], start: int) -> list[int]:
    places = {doc_id: start + place for place, doc_id in enumerate(doc_ids)}
    for doc_id in wanted:
        if doc_id not in places:
            raise DataError(f"query_id {query_id!r}: doc_id {doc_id!r} has a monoBERT score and no tokens in its shard")
    return [places[doc_id] for doc_id in wanted]


def _kept(
    shard: ShardTokens, admitted: _Admitted, template: InputTemplate, limits: InputLimits
) -> tuple[Lengths, Lengths]:
    """Wordpieces kept of each query, int64[q], and of each admitted doc, int64[a]: the same in either segment."""
    lengths = shard.doc_lengths[admitted.docs]
    none = np.zeros_like(shard.query_lengths)
    query_kept, _, _ = duo_kept(template, limits, shard.query_lengths, none, none)
    _, doc_kept, _ = duo_kept(template, limits, shard.query_lengths[admitted.queries], lengths, lengths)
    return query_kept, doc_kept


def _pairs(shard: ShardTokens, admitted: _Admitted, opponents: int | None, seed: int) -> _Pairs:
    starts = np.cumsum(admitted.counts) - admitted.counts
    cell_starts = np.cumsum(admitted.counts**2) - admitted.counts**2
    first, second, cells = [], [], []
    for query, count in enumerate(admitted.counts.tolist()):
        start = int(starts[query])
        doc_ids = shard.doc_ids.take(pa.array(admitted.docs[start : start + count])).to_pylist()
        asked = sampled_opponents(shard.query_ids[query].as_py(), doc_ids, opponents or count, seed)
        flat = np.flatnonzero(asked)
        cells.append(cell_starts[query] + flat)
        first.append(start + flat // max(1, count))
        second.append(start + flat % max(1, count))
    nothing = [np.empty(0, np.int64)]
    return _Pairs(*(np.concatenate(nothing + parts) for parts in (first, second, cells)))


def _table(shard: ShardTokens, admitted: _Admitted, matrices: npt.NDArray[np.float32]) -> pa.Table:
    doc_ids = shard.doc_ids.take(pa.array(admitted.docs))
    return pa.table(
        [
            shard.query_ids,
            pa.ListArray.from_arrays(_offsets(admitted.counts), doc_ids),
            pa.ListArray.from_arrays(_offsets(admitted.counts**2), pa.array(matrices)),
        ],
        schema=schemas.DUO,
    )


def _offsets(counts: Lengths) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
