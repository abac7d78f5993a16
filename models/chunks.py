"""What config.json says of a model that reads a passage in chunks; needs no torch.

Its model_type is one that transformers does not know: as a plain BERT it would load, and score the chunks one by one.
"""

from collections.abc import Mapping
from typing import Any

CHUNKED_BERT = "chunked_bert"
CHUNKS, POOLING = "chunks", "chunk_pooling"


def chunk_entry(count: int, attention_size: int) -> dict[str, Any]:
    """The entry `chunks`: how many, and the size of the attention over them, or 0 for max pooling."""
    pooling = {"pooling": "attention", "attention_size": attention_size} if attention_size else {"pooling": "max"}
    return {"count": count, **pooling}


def chunk_sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    """What `chunk_entry` was given; 1 chunk for a plain BERT.

    Raises:
        KeyError, TypeError, ValueError: the entry is not there, or not whole.
    """
    if config.get("model_type") != CHUNKED_BERT:
        return 1, 0
    entry = config[CHUNKS]
    if entry["pooling"] not in ("attention", "max"):
        raise ValueError(f"{CHUNKS}.pooling {entry['pooling']!r}")
    return int(entry["count"]), int(entry["attention_size"]) if entry["pooling"] == "attention" else 0
