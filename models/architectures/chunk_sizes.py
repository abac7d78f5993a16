"""The entry in config.json of a model that reads a passage in chunks; needs no torch.

transformers does not know its model_type and refuses it; as a plain BERT it would load, and score chunks one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from beamrank.storage.documents import validated

CHUNKED_BERT = "chunked_bert"
CHUNKS, POOLING = "chunks", "chunk_pooling"
_MOST_CHUNKS = 512


@dataclass(frozen=True)
class _Entry:
    """The entry `chunks`."""

    count: Annotated[int, Field(ge=1, le=_MOST_CHUNKS)]
    pooling: Literal["attention", "max"]
    attention_size: Annotated[int, Field(ge=1, le=1 << 24)] = 0


_ENTRY = TypeAdapter(_Entry)


def chunk_entry(count: int, attention_size: int) -> dict[str, Any]:
    """The entry `chunks`: how many, and the size of the attention over them, or 0 for max pooling."""
    pooling = {"pooling": "attention", "attention_size": attention_size} if attention_size else {"pooling": "max"}
    return {"count": count, **pooling}


def chunk_sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    """The arguments of `chunk_entry`; 1 chunk for a plain BERT.

    Raises:
        ValueError: the entry is missing or wrong.
    """
    if config.get("model_type") != CHUNKED_BERT:
        return 1, 0
    try:
        entry = validated(_ENTRY, config.get(CHUNKS))
    except ValueError as error:
        raise ValueError(f"{CHUNKS}: {error}") from None
    if entry.pooling == "max":
        return entry.count, 0
    if not entry.attention_size:
        raise ValueError(f"{CHUNKS}.attention_size: Field required")
    return entry.count, entry.attention_size
