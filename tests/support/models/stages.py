"""Stages as a configuration would make them, without files behind them."""

from typing import Any

from models.stages.bm25 import RetrieveBm25
from models.stages.duo import ScoreDuo
from models.stages.mono import ScoreMono
from models.stages.tokenize import TokenizeDocs

_BM25 = {"index_digest": "i", "k1": 0.9, "b": 0.4, "k": 1000, "index": "index", "threads": 1}
_TOKENIZE = {
    "corpus_digest": "c",
    "tokenizer_digest": "t1",
    "max_doc_tokens": 512,
    "k": 100,
    "deepest": "mono",
    "on_missing_doc": "error",
    "model": "mono",
    "checkpoint": "embedded:mono",
    "vocab_size": 30522,
}
_SCORING = {
    "truncation": "original",
    "max_query_length": 64,
    "max_length": 512,
    "backend": "torch",
    "backend_keys": {},
    "kernel": "torch",
    "device": "cpu",
    "dtype": "float32",
    "token_budget": 1024,
    "threads": 1,
    "tokens": "tokenize-t1",
    "start_tokens": 1,
    "end_tokens": (1, 1),
    "doc_parts": 1,
}


def a_stage(step: str, **changes: Any) -> Any:
    """A stage of a step; `changes` are fields that differ from the usual."""
    mono = {
        **_SCORING,
        "checkpoint_digest": "m",
        "k": 100,
        "checkpoint": "embedded:mono",
        "own_name": "mono",
    }
    mono |= {"reads": ("retrieve",)}
    duo = {
        **_SCORING,
        "checkpoint_digest": "d",
        "k": 10,
        "checkpoint": "embedded:duo",
        "own_name": "duo",
    }
    duo |= {"reads": ("retrieve", "mono"), "ranked_by": {"mono.segments.pooling": "max"}}
    kinds: dict[str, tuple[type[Any], dict[str, Any]]] = {
        "retrieve": (RetrieveBm25, _BM25),
        "tokenize": (TokenizeDocs, _TOKENIZE),
        "mono": (ScoreMono, mono),
        "duo": (ScoreDuo, duo),
    }
    stage, fields = kinds[step]
    return stage(**{**fields, **changes})
