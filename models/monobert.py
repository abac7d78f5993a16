"""monoBERT: the log-odds that a doc is relevant to a query (Nogueira et al. 2019, section 3.1)."""

import numpy as np
import pyarrow as pa

from beamrank import schemas
from beamrank.layout import PackedInputs, SpecialTokens, mono_kept
from models.engine import InputLimits, ScoringEngine, StageCounts
from models.shard_tokens import distinct, number_texts, read_shard


def score_mono(
    engine: ScoringEngine, tokens: pa.Table, k: int, special: SpecialTokens, limits: InputLimits
) -> tuple[pa.Table, StageCounts]:
    """Scores the first k candidates of each query of a shard.

    Inputs that are the same for a query once they are cut are scored once.

    Args:
        engine: with a checkpoint for mono; one that reads a doc in chunks has the rule hold for each.
        tokens: a shard, `beamrank.schemas.tokenized`, each query's candidates in rank order.
        k: how many candidates of a query are scored.
        special: the special tokens of the tokenizer that made the shard.
        limits: the truncation rule and its lengths.

    Returns:
        `beamrank.schemas.MONO`, sorted by query_id and rank, and the counts for the receipt.
    """
    shard = read_shard(tokens)
    chosen = np.flatnonzero(shard.places < k)
    queries = shard.queries[chosen]
    query_lengths, doc_lengths = shard.query_lengths[queries], shard.doc_lengths[chosen]
    chunks = engine.checkpoint.shape.chunks
    query_kept, doc_kept = mono_kept(
        limits.truncation, query_lengths, doc_lengths, limits.max_query_length, limits.max_length, chunks
    )
    starts = np.stack([shard.query_starts[queries], shard.doc_starts[chosen]], axis=1)
    texts = number_texts(shard.tokens, starts[:, 1], doc_kept)
    rows, inverse = distinct(queries, query_kept, texts)
    kept = np.stack([query_kept, doc_kept], axis=1)
    scores = engine.score(PackedInputs(shard.tokens, starts[rows], kept[rows], special))
    table = pa.table(
        [
            shard.query_ids.take(pa.array(queries)),
            shard.doc_ids.take(pa.array(chosen)),
            pa.array(np.zeros(len(chosen), np.int16)),
            pa.array(shard.ranks[chosen]),
            pa.array(scores.log_odds[inverse]),
        ],
        schema=schemas.MONO,
    )
    return table.sort_by([("query_id", "ascending"), ("rank", "ascending")]), StageCounts.of(
        scores,
        queries=tokens.num_rows,
        truncated_queries=len(np.unique(queries[query_kept < query_lengths])),
        truncated_docs=int(np.count_nonzero(doc_kept < doc_lengths)),
        duplicate_inputs=(len(chosen) - len(rows)) * chunks,
    )
