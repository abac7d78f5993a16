"""duoBERT: the log-odds that doc_i is more relevant to a query than doc_j (Nogueira et al. 2019, section 3.2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.errors import DataError
from beamrank.join import schemas
from beamrank.join.shard import special_tokens
from beamrank.ranking.aggregation import sampled_opponents
from beamrank.ranking.input_layout import InputLimits, InputTemplate, Lengths, PackedInputs, duo_kept
from beamrank.ranking.rankings import by_score
from models.architectures.protocol import Architecture
from models.scoring.engine import Scorer, StageCounts
from models.scoring.known import KnownScores
from models.scoring.packing import ShardTokens, distinct, number_texts, read_shard

Asked: TypeAlias = npt.NDArray[np.bool_]
# From a query and the docs that may meet, best first: bool[n, n], the pairs that are asked.
FindAsked: TypeAlias = Callable[[str, Sequence[str]], Asked]


def score_duo(
    engine: Scorer,
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
        tokens: a shard, `beamrank.join.schemas.tokenized` with the special tokens as metadata.
        mono: the same shard's `beamrank.join.schemas.MONO`, a row a candidate; the best docs are those of the highest
            score, then lowest rank.
        k: how many docs of a query meet each other.
        limits: the truncation rule and its lengths.
        opponents: how many opponents SAMPLE draws for a doc; None asks every pair.
        seed: decides which opponents are drawn.

    Returns:
        `beamrank.join.schemas.DUO`, one row a query of `tokens` in its order, and the counts for the receipt.

    Raises:
        DataError: `mono` holds a candidate that `tokens` does not.
    """
    return _score(engine, tokens, _best(tokens, mono, k), limits, _sampled(opponents, seed))


def score_depths(
    engine: Scorer, tokens: pa.Table, mono: pa.Table, k: int, limits: InputLimits, k0s: Sequence[int]
) -> tuple[pa.Table, StageCounts]:
    """Scores the pairs of each query's k best docs among the first k0 candidates, for each k0.

    Args:
        engine: with a checkpoint for duo.
        tokens: as in `score_duo`, like the other arguments.
        mono: with the rank of each candidate.
        k: how many docs of a query meet each other.
        limits: the truncation rule and its lengths.
        k0s: how many candidates mono is taken to have scored.

    Returns:
        As `score_duo`: the docs of all k0 best first, NaN for pairs that no k0 has.
    """
    among = [_best(tokens, mono.filter(pc.less_equal(mono["rank"], k0)), k) for k0 in k0s]
    in_order = _best(tokens, mono, mono.num_rows)
    chosen = {
        query_id: [doc_id for doc_id in doc_ids if any(doc_id in best[query_id] for best in among)]
        for query_id, doc_ids in in_order.items()
    }

    def asked(query_id: str, doc_ids: Sequence[str]) -> Asked:
        found = np.zeros((len(doc_ids), len(doc_ids)), np.bool_)
        for best in among:
            member = np.isin(doc_ids, best[query_id])
            found |= member[:, None] & member
        np.fill_diagonal(found, False)
        return found

    return _score(engine, tokens, chosen, limits, asked)


def _score(
    engine: Scorer, tokens: pa.Table, chosen: Mapping[str, Sequence[str]], limits: InputLimits, asked: FindAsked
) -> tuple[pa.Table, StageCounts]:
    """Scores the pairs that are asked among the chosen docs of each query."""
    shard = read_shard(tokens)
    admitted = _admit(shard, chosen)
    template = engine.checkpoint.architecture.template(special_tokens(tokens.schema))
    query_kept, doc_kept = _kept(shard, admitted, template, limits)
    texts = number_texts(shard.tokens, shard.doc_starts[admitted.docs], doc_kept)
    pairs = _pairs(shard, admitted, asked)
    queries = admitted.queries[pairs.first]
    rows, inverse = distinct(queries, texts[pairs.first], texts[pairs.second])
    scores = engine.score(_inputs(shard, admitted, template, limits, pairs.first[rows], pairs.second[rows]))
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


def known_duo(model: Architecture, tokens: pa.Table, duo: pa.Table, limits: InputLimits) -> KnownScores:
    """The inputs that `score_duo` scored, with their scores.

    Args:
        model: of the checkpoint.
        tokens: some queries of a shard.
        duo: the rows of these queries in what `score_duo` returned.
        limits: as it got them.

    Raises:
        DataError: the rows are not those of the tokens.
    """
    shard = read_shard(tokens)
    doc_ids = dict(zip(duo["query_id"].to_pylist(), duo["doc_ids"].to_pylist(), strict=True))
    log_odds = pc.list_flatten(duo["scores"].combine_chunks()).to_numpy()
    cells = sum(len(each) ** 2 for each in doc_ids.values())
    if list(doc_ids) != shard.query_ids.to_pylist() or len(log_odds) != cells:
        raise DataError("the rows of a part of duo are not those of its tokens")
    admitted = _admit(shard, doc_ids)
    asked = np.flatnonzero(np.isfinite(log_odds))
    sizes = admitted.counts**2
    queries = np.repeat(np.arange(len(sizes)), sizes)[asked]
    first, second = np.divmod(asked - (np.cumsum(sizes) - sizes)[queries], admitted.counts[queries])
    starts = (np.cumsum(admitted.counts) - admitted.counts)[queries]
    template = model.template(special_tokens(tokens.schema))
    return KnownScores(_inputs(shard, admitted, template, limits, starts + first, starts + second), log_odds[asked])


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


def _best(tokens: pa.Table, mono: pa.Table, k: int) -> dict[str, list[str]]:
    """The doc_ids of each query that meet each other, best first."""
    best_first = by_score(mono)
    chosen: dict[str, list[str]] = {query_id: [] for query_id in tokens["query_id"].to_pylist()}
    for query_id, doc_id in zip(best_first["query_id"].to_pylist(), best_first["doc_id"].to_pylist(), strict=True):
        if query_id not in chosen:
            raise DataError(f"query_id {query_id!r} has monoBERT scores and no tokens in its shard")
        if len(chosen[query_id]) < k:
            chosen[query_id].append(doc_id)
    return chosen


def _admit(shard: ShardTokens, chosen: Mapping[str, Sequence[str]]) -> _Admitted:
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


def _inputs(
    shard: ShardTokens,
    admitted: _Admitted,
    template: InputTemplate,
    limits: InputLimits,
    first: Lengths,
    second: Lengths,
) -> PackedInputs:
    """The inputs of pairs, by place among the admitted docs."""
    query_kept, doc_kept = _kept(shard, admitted, template, limits)
    query = admitted.queries[first]
    starts = [shard.query_starts[query], *(shard.doc_starts[admitted.docs[each]] for each in (first, second))]
    kept = [query_kept[query], doc_kept[first], doc_kept[second]]
    return PackedInputs(shard.tokens, np.stack(starts, axis=1), np.stack(kept, axis=1), template)


def _kept(
    shard: ShardTokens, admitted: _Admitted, template: InputTemplate, limits: InputLimits
) -> tuple[Lengths, Lengths]:
    """Wordpieces kept of each query, int64[q], and of each admitted doc, int64[a]: the same in either segment."""
    lengths = shard.doc_lengths[admitted.docs]
    none = np.zeros_like(shard.query_lengths)
    query_kept, _, _ = duo_kept(template, limits, shard.query_lengths, none, none)
    _, doc_kept, _ = duo_kept(template, limits, shard.query_lengths[admitted.queries], lengths, lengths)
    return query_kept, doc_kept


def _sampled(opponents: int | None, seed: int) -> FindAsked:
    return lambda query_id, doc_ids: sampled_opponents(query_id, doc_ids, opponents or len(doc_ids), seed)


def _pairs(shard: ShardTokens, admitted: _Admitted, asked: FindAsked) -> _Pairs:
    starts = np.cumsum(admitted.counts) - admitted.counts
    cell_starts = np.cumsum(admitted.counts**2) - admitted.counts**2
    first, second, cells = [], [], []
    for query, count in enumerate(admitted.counts.tolist()):
        start = int(starts[query])
        doc_ids = shard.doc_ids.take(pa.array(admitted.docs[start : start + count])).to_pylist()
        flat = np.flatnonzero(asked(shard.query_ids[query].as_py(), doc_ids))
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
