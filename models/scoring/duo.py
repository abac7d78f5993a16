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
from beamrank.join.schemas import special_tokens
from beamrank.ranking.aggregation import sampled_opponents
from beamrank.ranking.input_layout import InputLimits, InputTemplate, Lengths, PackedInputs, duo_kept
from models.architectures.protocol import Architecture
from models.scoring.engine import Scores, ScoringEngine, StageCounts
from models.scoring.packing import ChosenDocs, Prepared, ShardTokens, choose_docs, distinct, number_texts, read_shard
from models.scoring.reuse import ReusableScores

Asked: TypeAlias = npt.NDArray[np.bool_]
# From a query and the docs that may meet, best first: bool[n, n], the pairs that are asked.
FindAsked: TypeAlias = Callable[[str, Sequence[str]], Asked]


def score_duo(
    engine: ScoringEngine,
    tokens: pa.Table,
    received: Mapping[str, Sequence[str]],
    limits: InputLimits,
    opponents: int | None,
    seed: int,
) -> tuple[pa.Table, StageCounts]:
    """Scores what `prepare_duo` prepares."""
    return prepare_duo(engine.checkpoint.architecture, tokens, received, limits, opponents, seed).score(engine)


def prepare_duo(
    model: Architecture,
    tokens: pa.Table,
    received: Mapping[str, Sequence[str]],
    limits: InputLimits,
    opponents: int | None,
    seed: int,
) -> Prepared:
    """Prepares the ordered pairs of the docs of each query that a stage receives.

    Inputs that are the same for a query once they are cut are scored once. Rows are `beamrank.join.schemas.DUO`, one a
    query of `tokens` in its order.

    Args:
        model: of a checkpoint for duo.
        tokens: a shard, `beamrank.join.schemas.tokenized` with the special tokens as metadata.
        received: the docs of each query, best first.
        limits: the truncation rule and its lengths.
        opponents: how many opponents SAMPLE draws for a doc; None takes every pair.
        seed: decides which opponents are drawn.
    """
    return prepare_pairs(model, tokens, received, limits, _sampled(opponents, seed))


def prepare_pairs(
    model: Architecture, tokens: pa.Table, chosen: Mapping[str, Sequence[str]], limits: InputLimits, asked: FindAsked
) -> Prepared:
    """Prepares the pairs that are asked among the chosen docs of each query."""
    shard = read_shard(tokens)
    chosen_docs = choose_docs(shard, chosen)
    template = model.template(special_tokens(tokens.schema))
    query_kept, doc_kept = _kept(shard, chosen_docs, template, limits)
    texts = number_texts(shard.tokens, shard.doc_starts[chosen_docs.docs], doc_kept)
    pairs = _pairs(shard, chosen_docs, asked)
    queries = chosen_docs.queries[pairs.first]
    rows, inverse = distinct(queries, texts[pairs.first], texts[pairs.second])
    compared = chosen_docs.counts > 1
    cut_docs = doc_kept < shard.doc_lengths[chosen_docs.docs]

    def finish(scores: Scores) -> tuple[pa.Table, StageCounts]:
        matrices = np.full(int((chosen_docs.counts**2).sum()), np.nan, dtype=np.float32)
        matrices[pairs.cells] = scores.log_odds[inverse]
        return _table(shard, chosen_docs, matrices), StageCounts(
            **scores.cost,
            queries=tokens.num_rows,
            candidates=int(np.count_nonzero(compared[chosen_docs.queries])),
            truncated_queries=int(np.count_nonzero((query_kept < shard.query_lengths) & compared)),
            truncated_docs=int(np.count_nonzero(cut_docs & compared[chosen_docs.queries])),
            duplicate_inputs=len(inverse) - len(rows),
        )

    return Prepared(_inputs(shard, chosen_docs, template, limits, pairs.first[rows], pairs.second[rows]), finish)


def reusable_duo(model: Architecture, tokens: pa.Table, duo: pa.Table, limits: InputLimits) -> ReusableScores:
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
    chosen_docs = choose_docs(shard, doc_ids)
    if (chosen_docs.counts != [len(each) for each in doc_ids.values()]).any():
        raise DataError("the rows of a part of duo are not those of its tokens")
    asked = np.flatnonzero(np.isfinite(log_odds))
    sizes = chosen_docs.counts**2
    queries = np.repeat(np.arange(len(sizes)), sizes)[asked]
    first, second = np.divmod(asked - (np.cumsum(sizes) - sizes)[queries], chosen_docs.counts[queries])
    starts = (np.cumsum(chosen_docs.counts) - chosen_docs.counts)[queries]
    template = model.template(special_tokens(tokens.schema))
    return ReusableScores(
        _inputs(shard, chosen_docs, template, limits, starts + first, starts + second), log_odds[asked]
    )


@dataclass(frozen=True)
class _Pairs:
    """The p pairs that are asked, by place among the chosen docs; `cells` by place in the flat matrices."""

    first: Lengths
    second: Lengths
    cells: Lengths


def _inputs(
    shard: ShardTokens,
    chosen_docs: ChosenDocs,
    template: InputTemplate,
    limits: InputLimits,
    first: Lengths,
    second: Lengths,
) -> PackedInputs:
    """The inputs of pairs, by place among the chosen docs."""
    query_kept, doc_kept = _kept(shard, chosen_docs, template, limits)
    query = chosen_docs.queries[first]
    starts = [shard.query_starts[query], *(shard.doc_starts[chosen_docs.docs[each]] for each in (first, second))]
    kept = [query_kept[query], doc_kept[first], doc_kept[second]]
    return PackedInputs(shard.tokens, np.stack(starts, axis=1), np.stack(kept, axis=1), template)


def _kept(
    shard: ShardTokens, chosen_docs: ChosenDocs, template: InputTemplate, limits: InputLimits
) -> tuple[Lengths, Lengths]:
    """Wordpieces kept of each query, int64[q], and of each chosen_docs doc, int64[a]: the same in either segment."""
    lengths = shard.doc_lengths[chosen_docs.docs]
    none = np.zeros_like(shard.query_lengths)
    query_kept, _, _ = duo_kept(template, limits, shard.query_lengths, none, none)
    _, doc_kept, _ = duo_kept(template, limits, shard.query_lengths[chosen_docs.queries], lengths, lengths)
    return query_kept, doc_kept


def _sampled(opponents: int | None, seed: int) -> FindAsked:
    return lambda query_id, doc_ids: sampled_opponents(query_id, doc_ids, opponents or len(doc_ids), seed)


def _pairs(shard: ShardTokens, chosen_docs: ChosenDocs, asked: FindAsked) -> _Pairs:
    starts = np.cumsum(chosen_docs.counts) - chosen_docs.counts
    cell_starts = np.cumsum(chosen_docs.counts**2) - chosen_docs.counts**2
    first, second, cells = [], [], []
    for query, count in enumerate(chosen_docs.counts.tolist()):
        start = int(starts[query])
        doc_ids = shard.doc_ids.take(pa.array(chosen_docs.docs[start : start + count])).to_pylist()
        flat = np.flatnonzero(asked(shard.query_ids[query].as_py(), doc_ids))
        cells.append(cell_starts[query] + flat)
        first.append(start + flat // max(1, count))
        second.append(start + flat % max(1, count))
    nothing = [np.empty(0, np.int64)]
    return _Pairs(*(np.concatenate(nothing + parts) for parts in (first, second, cells)))


def _table(shard: ShardTokens, chosen_docs: ChosenDocs, matrices: npt.NDArray[np.float32]) -> pa.Table:
    doc_ids = shard.doc_ids.take(pa.array(chosen_docs.docs))
    return pa.table(
        [
            shard.query_ids,
            pa.ListArray.from_arrays(_offsets(chosen_docs.counts), doc_ids),
            pa.ListArray.from_arrays(_offsets(chosen_docs.counts**2), pa.array(matrices)),
        ],
        schema=schemas.DUO,
    )


def _offsets(counts: Lengths) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
