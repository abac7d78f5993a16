"""monoBERT: the log-odds that a doc is relevant to a query (Nogueira et al. 2019, section 3.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.commit import schemas
from beamrank.ranking.input_layout import (
    TEXT_COUNTS,
    InputLimits,
    Lengths,
    PackedInputs,
    SegmentRule,
    Segments,
    cut_segments,
    mono_kept,
)
from models.architectures.protocol import Architecture
from models.scoring.answers import Answers, Contents, Cut
from models.scoring.engine import Prepared, Scores, StageCounts
from models.scoring.packing import ChosenDocs, choose_docs, distinct, number_texts


def prepare_mono(
    model: Architecture,
    tokens: pa.Table,
    received: Mapping[str, Sequence[str]],
    limits: InputLimits,
    segment_rule: SegmentRule | None = None,
) -> Prepared:
    """Prepares the docs of each query of a shard that a stage receives.

    Inputs that are the same for a query once they are cut are scored once. Rows are
    `beamrank.commit.schemas.MONO`, a row a segment, sorted by query_id, rank and segment.

    `tokens` are `beamrank.commit.schemas.tokenized` with the special tokens as metadata, `received`
    the docs of each query, best first. Without a rule for segments, each doc is scored as a whole.
    """
    laid_out = _lay_out(model, tokens, received, limits, segment_rule)
    shard, inputs = laid_out.chosen.shard, laid_out.inputs
    *_, query_kept, doc_kept = inputs.kept.T
    queries, candidates = laid_out.queries, laid_out.chosen.docs
    read = np.zeros(len(shard.doc_lengths), np.int64)
    np.maximum.at(read, laid_out.docs, laid_out.segments.starts + doc_kept)
    rows, inverse = distinct(
        queries, query_kept, number_texts(inputs.tokens, inputs.starts[:, -1], doc_kept)
    )

    def finish(scores: Scores) -> tuple[pa.Table, StageCounts]:
        table = laid_out.table(scores.log_odds[inverse])
        return table.sort_by(
            [("query_id", "ascending"), ("rank", "ascending"), ("segment", "ascending")]
        ), StageCounts(
            **scores.cost,
            queries=tokens.num_rows,
            candidates=len(candidates),
            truncated_queries=len(np.unique(queries[query_kept < shard.query_lengths[queries]])),
            truncated_docs=int(np.count_nonzero(read[candidates] < shard.doc_lengths[candidates])),
            duplicate_inputs=len(queries) - len(rows),
        )

    def keys() -> Sequence[bytes]:
        segments = laid_out.segments
        lengths = np.minimum(segments.lengths, limits.max_length * inputs.template.doc_parts)
        contents = Contents.of(tokens, instructed=len(inputs.template.ends) > TEXT_COUNTS["mono"])
        return contents.keys(queries, Cut(laid_out.docs, segments.starts, lengths))

    return Prepared(inputs.take(rows), inverse, keys, finish)


def known_mono(
    mono: pa.Table, contents: Contents, most_tokens: int, segment_rule: SegmentRule | None = None
) -> Answers:
    """The scores of rows of a part, by what they contain; `most_tokens` of a doc are read."""
    queries, docs = contents.find(mono["query_id"].to_pylist(), mono["doc_id"].to_pylist())
    lengths = contents.doc_lengths[docs]
    starts = np.zeros_like(lengths)
    if segment_rule is not None:
        starts = mono["segment"].to_numpy() * segment_rule.stride_tokens
        lengths = np.minimum(lengths - starts, segment_rule.length_tokens)
    cut = Cut(docs, starts, np.minimum(lengths, most_tokens))
    return dict(zip(contents.keys(queries, cut), mono["score"].to_pylist(), strict=True))


@dataclass(frozen=True)
class _LaidOut:
    """The n inputs of a shard, those of a candidate side by side.

    Attributes:
        chosen: the docs that are scored.
        segments: of these docs.
        docs: int64[n], the candidate that each input is of.
        queries: int64[n], the row of each input's query.
        inputs: n of them.
    """

    chosen: ChosenDocs
    segments: Segments
    docs: Lengths
    queries: Lengths
    inputs: PackedInputs

    def table(self, log_odds: npt.NDArray[np.float32]) -> pa.Table:
        """`beamrank.commit.schemas.MONO` in the order of the inputs."""
        shard = self.chosen.shard
        return pa.table(
            [
                shard.query_ids.take(pa.array(self.queries)),
                shard.doc_ids.take(pa.array(self.docs)),
                pa.array(self.segments.numbers, pa.int16()),
                pa.array(self.chosen.places[self.segments.docs] + 1, pa.int32()),
                pa.array(log_odds),
            ],
            schema=schemas.MONO,
        )


def _lay_out(
    model: Architecture,
    tokens: pa.Table,
    received: Mapping[str, Sequence[str]],
    limits: InputLimits,
    segment_rule: SegmentRule | None,
) -> _LaidOut:
    chosen = choose_docs(tokens, received)
    shard = chosen.shard
    segments = cut_segments(shard.doc_lengths[chosen.docs], segment_rule)
    docs, queries = chosen.docs[segments.docs], chosen.queries[segments.docs]
    template = model.template(schemas.special_tokens(tokens.schema))
    starts, instructions = (
        [shard.query_starts[queries], shard.doc_starts[docs] + segments.starts],
        list[Lengths](),
    )
    if len(template.ends) > TEXT_COUNTS["mono"]:
        starts, instructions = (
            [shard.instruction_starts[queries], *starts],
            [shard.instruction_lengths[queries]],
        )
    kept = mono_kept(
        template, limits, shard.query_lengths[queries], segments.lengths, *instructions
    )
    inputs = PackedInputs(
        shard.tokens, np.stack(starts, axis=1), np.stack([*instructions, *kept], axis=1), template
    )
    return _LaidOut(chosen, segments, docs, queries, inputs)
