"""The Parquet schema of each stage's parts (one row each: see the comments)."""

from typing import Any

import pyarrow as pa

# One row: a topic, with the number of its shard; in the order of the shards, those of a shard by query_id.
TOPICS = pa.schema({"shard": pa.int32(), "query_id": pa.string(), "text": pa.string()})

# One row: a shard of rows of a file; the file as in `beamrank.storage.digested.DigestedFile`.
FILE_ROWS = pa.schema(
    {
        "shard": pa.int32(),
        "url": pa.string(),
        "version": pa.string(),
        "sha256": pa.string(),
        "start": pa.int64(),
        "end": pa.int64(),
    }
)

# One row: a candidate; sorted by query_id, rank.
CANDIDATES = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("score", pa.float32(), nullable=False),
    ]
)

# One row: a candidate, or one of its segments; rank is the previous stage's; score is the log-odds z = logit1 - logit0.
MONO = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("segment", pa.int16(), nullable=False),
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("score", pa.float32(), nullable=False),
    ]
)

# One row: a query. scores is the n*n row-major matrix of log-odds z_ij, NaN for a pair that was not scored.
DUO = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("doc_ids", pa.list_(pa.string()), nullable=False),
        pa.field("scores", pa.list_(pa.float32()), nullable=False),
    ]
)


def scores(id_type: Any) -> Any:
    """One row: a pair or a triple of texts, in the order of the input; score is null where it cannot be scored."""
    return pa.schema([pa.field("id", id_type), pa.field("score", pa.float32())])


def token_type(vocab_size: int) -> Any:
    """The narrowest unsigned type that holds every id of a vocabulary."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def tokenized(vocab_size: int) -> Any:
    """One row: a query with its ranked candidates; token ids without special tokens."""
    token = token_type(vocab_size)
    return pa.schema(
        [
            pa.field("query_id", pa.string(), nullable=False),
            pa.field("query_tokens", pa.list_(token), nullable=False),
            pa.field("doc_ids", pa.list_(pa.string()), nullable=False),
            pa.field("ranks", pa.list_(pa.int32()), nullable=False),
            pa.field("doc_tokens", pa.list_(pa.list_(token)), nullable=False),
        ]
    )
