"""monoBERT: the log-odds that a doc is relevant to a query (Nogueira et al. 2019, section 3.1)."""

import numpy as np
import pyarrow as pa

from beamrank.ranking.input_layout import InputLimits, PackedInputs, mono_kept
from beamrank.ranking.segments import SegmentRule, cut_segments
from beamrank.tables import schemas
from beamrank.tables.shard import special_tokens
from models.scoring.engine import ScoringEngine, StageCounts
from models.scoring.packing import distinct, number_texts, read_shard


def score_mono(
    engine: ScoringEngine,
    tokens: pa.Table,
    k: int,
    limits: InputLimits,
    segment_rule: SegmentRule | None = None,
) -> tuple[pa.Table, StageCounts]:
    """Scores the first k candidates of each query of a shard.

    Inputs that are the same for a query once they are cut are scored once.

    Args:
        engine: with a checkpoint for mono; one that reads a doc in chunks has the rule hold for each.
        tokens: a shard, `beamrank.tables.schemas.tokenized` with the special tokens as metadata, each query's
            candidates in rank order.
        k: how many candidates of a query are scored.
        limits: the truncation rule and its lengths.
        segment_rule: how docs are cut into segments; None scores each as a whole.

    Returns:
        `beamrank.tables.schemas.MONO`, a row a segment, sorted by query_id, rank and segment, and the counts for the
        receipt.
    """
    shard = read_shard(tokens)
    candidates = np.flatnonzero(shard.places < k)
    segments = cut_segments(shard.doc_lengths[candidates], segment_rule)
    chosen = candidates[segments.docs]
    queries = shard.queries[chosen]
    query_lengths, doc_lengths = shard.query_lengths[queries], segments.lengths
    model = engine.checkpoint.architecture
    template = model.template(special_tokens(tokens.schema))
    query_kept, doc_kept = mono_kept(template, limits, query_lengths, doc_lengths, model.chunks)
    read = np.zeros(len(candidates), np.int64)
    np.maximum.at(read, segments.docs, segments.starts + doc_kept)
    starts = np.stack([shard.query_starts[queries], shard.doc_starts[chosen] + segments.starts], axis=1)
    texts = number_texts(shard.tokens, starts[:, 1], doc_kept)
    rows, inverse = distinct(queries, query_kept, texts)
    kept = np.stack([query_kept, doc_kept], axis=1)
    scores = engine.score(PackedInputs(shard.tokens, starts[rows], kept[rows], template))
    table = pa.table(
        [
            shard.query_ids.take(pa.array(queries)),
            shard.doc_ids.take(pa.array(chosen)),
            pa.array(segments.numbers, pa.int16()),
            pa.array(shard.ranks[chosen]),
            pa.array(scores.log_odds[inverse]),
        ],
        schema=schemas.MONO,
    )
    return table.sort_by([("query_id", "ascending"), ("rank", "ascending"), ("segment", "ascending")]), StageCounts(
        **scores.cost,
        queries=tokens.num_rows,
        candidates=len(candidates),
        truncated_queries=len(np.unique(queries[query_kept < query_lengths])),
        truncated_docs=int(np.count_nonzero(read < shard.doc_lengths[candidates])),
        duplicate_inputs=(len(chosen) - len(rows)) * model.chunks,
    )
