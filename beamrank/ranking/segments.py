"""Long docs: windows of a doc that are scored one by one, and the doc's score (docs/reference/model-inputs.md)."""

from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from beamrank.ranking.input_layout import Lengths

SegmentPooling = Literal["max", "first", "mean"]


class SegmentRule(NamedTuple):
    """Windows of `length_tokens`, one begun every `stride_tokens`, at most `limit` of a doc; without special tokens."""

    length_tokens: int
    stride_tokens: int
    limit: int


class Segments(NamedTuple):
    """The w segments of some docs, those of a doc in its order.

    Attributes:
        docs: int64[w], which doc each is of.
        numbers: int64[w], its number within the doc, from 0.
        starts: int64[w], where it begins, in wordpieces.
        lengths: int64[w], in wordpieces.
    """

    docs: Lengths
    numbers: Lengths
    starts: Lengths
    lengths: Lengths


def cut_segments(doc_lengths: Lengths, rule: SegmentRule | None) -> Segments:
    """Cuts docs up to their ends or the rule's limit; the last window may be short, and an empty doc has one.

    Args:
        doc_lengths: int64[n], in wordpieces.
        rule: how; None leaves docs whole.
    """
    if rule is None:
        nothing = np.zeros_like(doc_lengths)
        return Segments(np.arange(len(doc_lengths)), nothing, nothing, doc_lengths)
    beyond = np.maximum(doc_lengths - rule.length_tokens, 0)
    counts = np.minimum(1 + -(-beyond // rule.stride_tokens), rule.limit)
    docs = np.repeat(np.arange(len(doc_lengths)), counts)
    numbers = np.arange(len(docs)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = numbers * rule.stride_tokens
    return Segments(docs, numbers, starts, np.minimum(doc_lengths[docs] - starts, rule.length_tokens))


def pool_segments(mono: Any, pooling: SegmentPooling) -> Any:
    """One row a candidate out of one a segment: `max` (MaxP), `first` or `mean` of the segments' scores.

    Args:
        mono: a table of schemas.MONO.
        pooling: how; where docs are whole, nothing changes.

    Returns:
        A table of schemas.MONO, sorted by query_id and rank, with segment 0 alone.
    """
    ordered = mono.sort_by([("query_id", "ascending"), ("rank", "ascending"), ("segment", "ascending")])
    scores = ordered["score"].to_numpy()
    firsts = np.flatnonzero(ordered["segment"].to_numpy() == 0)
    if pooling == "max":
        pooled = np.maximum.reduceat(scores, firsts)
    elif pooling == "first":
        pooled = scores[firsts]
    else:
        counts = np.diff(firsts, append=len(scores))
        pooled = np.add.reduceat(scores.astype(np.float64), firsts) / counts
    column = ordered.schema.get_field_index("score")
    return ordered.take(pa.array(firsts)).set_column(
        column, ordered.schema.field(column), pa.array(pooled.astype(np.float32))
    )
