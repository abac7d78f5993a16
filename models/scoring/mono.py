"""monoBERT: the log-odds that a doc is relevant to a query (Nogueira et al. 2019, section 3.1)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.errors import DataError
from beamrank.join import schemas
from beamrank.join.shard import special_tokens
from beamrank.ranking.input_layout import InputLimits, Lengths, PackedInputs, mono_kept
from beamrank.ranking.segments import SegmentRule, Segments, cut_segments
from models.architectures.protocol import Architecture
from models.scoring.engine import Scorer, StageCounts
from models.scoring.known import KnownScores
from models.scoring.packing import ShardTokens, distinct, number_texts, read_shard


def score_mono(
    engine: Scorer,
    tokens: pa.Table,
    k: int,
    limits: InputLimits,
    segment_rule: SegmentRule | None = None,
) -> tuple[pa.Table, StageCounts]:
    """Scores the first k candidates of each query of a shard.

    Inputs that are the same for a query once they are cut are scored once.

    Args:
        engine: with a checkpoint for mono.
        tokens: a shard, `beamrank.join.schemas.tokenized` with the special tokens as metadata, each query's
            candidates in rank order.
        k: how many candidates of a query are scored.
        limits: the truncation rule and its lengths.
        segment_rule: how docs are cut into segments; None scores each as a whole.

    Returns:
        `beamrank.join.schemas.MONO`, a row a segment, sorted by query_id, rank and segment, and the counts for the
        receipt.
    """
    laid_out = _lay_out(engine.checkpoint.architecture, tokens, k, limits, segment_rule)
    shard, inputs = laid_out.shard, laid_out.inputs
    query_kept, doc_kept = inputs.kept.T
    queries, candidates = laid_out.queries, laid_out.candidates
    read = np.zeros(len(shard.doc_lengths), np.int64)
    np.maximum.at(read, laid_out.docs, laid_out.segments.starts + doc_kept)
    rows, inverse = distinct(queries, query_kept, number_texts(inputs.tokens, inputs.starts[:, 1], doc_kept))
    scores = engine.score(PackedInputs(inputs.tokens, inputs.starts[rows], inputs.kept[rows], inputs.template))
    table = laid_out.table(scores.log_odds[inverse])
    return table.sort_by([("query_id", "ascending"), ("rank", "ascending"), ("segment", "ascending")]), StageCounts(
        **scores.cost,
        queries=tokens.num_rows,
        candidates=len(candidates),
        truncated_queries=len(np.unique(queries[query_kept < shard.query_lengths[queries]])),
        truncated_docs=int(np.count_nonzero(read[candidates] < shard.doc_lengths[candidates])),
        duplicate_inputs=len(queries) - len(rows),
    )


def known_mono(
    model: Architecture,
    tokens: pa.Table,
    mono: pa.Table,
    k: int,
    limits: InputLimits,
    segment_rule: SegmentRule | None = None,
) -> KnownScores:
    """The inputs of `score_mono` with the scores that it gave them.

    Args:
        model: of the checkpoint.
        tokens: some queries of a shard.
        mono: the rows of these queries in what `score_mono` returned.
        k: how many candidates of a query it scored.
        limits: as it got them.
        segment_rule: as it got it.

    Raises:
        DataError: the rows are not those of the tokens.
    """
    laid_out = _lay_out(model, tokens, k, limits, segment_rule)
    log_odds = mono["score"].to_numpy()
    if len(log_odds) != len(laid_out.inputs) or not laid_out.table(log_odds).equals(mono):
        raise DataError("the rows of a part of mono are not those of its tokens")
    return KnownScores(laid_out.inputs, log_odds)


@dataclass(frozen=True)
class _LaidOut:
    """The n inputs of a shard, those of a candidate side by side.

    Attributes:
        shard: the shard.
        candidates: int64[c], those that are scored.
        segments: of the candidates' docs.
        inputs: n of them.
    """

    shard: ShardTokens
    candidates: Lengths
    segments: Segments
    inputs: PackedInputs

    @property
    def docs(self) -> Lengths:
        """int64[n], the candidate that each input is of."""
        return self.candidates[self.segments.docs]

    @property
    def queries(self) -> Lengths:
        """int64[n], the row of each input's query."""
        return self.shard.queries[self.docs]

    def table(self, log_odds: npt.NDArray[np.float32]) -> pa.Table:
        """`beamrank.join.schemas.MONO` in the order of the inputs."""
        shard = self.shard
        return pa.table(
            [
                shard.query_ids.take(pa.array(self.queries)),
                shard.doc_ids.take(pa.array(self.docs)),
                pa.array(self.segments.numbers, pa.int16()),
                pa.array(shard.ranks[self.docs]),
                pa.array(log_odds),
            ],
            schema=schemas.MONO,
        )


def _lay_out(
    model: Architecture, tokens: pa.Table, k: int, limits: InputLimits, segment_rule: SegmentRule | None
) -> _LaidOut:
    shard = read_shard(tokens)
    candidates = np.flatnonzero(shard.places < k)
    segments = cut_segments(shard.doc_lengths[candidates], segment_rule)
    docs = candidates[segments.docs]
    queries = shard.queries[docs]
    template = model.template(special_tokens(tokens.schema))
    kept = mono_kept(template, limits, shard.query_lengths[queries], segments.lengths)
    starts = np.stack([shard.query_starts[queries], shard.doc_starts[docs] + segments.starts], axis=1)
    return _LaidOut(shard, candidates, segments, PackedInputs(shard.tokens, starts, np.stack(kept, axis=1), template))
