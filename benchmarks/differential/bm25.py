"""Hits of random collections, against bare pyserini on the same index: doc_ids and scores to the
last bit.
"""

from pathlib import Path

import numpy as np

from beamrank.formats.corpora import CorpusConfig
from beamrank.records import Doc, Topic
from benchmarks.datasets.collection import Collection
from benchmarks.peers import hits_of, search_pyserini
from models.lucene.bm25 import Bm25Searcher
from models.lucene.build import build_index

_THREADS = 2
_SETTINGS = 3
# Words that stem to one term, a stop word, letters beyond ASCII, numbers.
_WORDS = (
    "run",
    "running",
    "runs",
    "the",
    "café",
    "日本語",
    "x86",
    "3.14",
    "o'clock",
    "re-rank",
    "😀",
)


def draw(seed: int) -> Collection:
    """Texts of frequent and rare words; some texts are empty, some are the same, and some words are
    only in topics.
    """
    random = np.random.default_rng(seed)
    words = [*_WORDS, *(f"word{number}" for number in range(random.integers(5, 400)))]
    common = random.permutation(1 / np.arange(1, len(words) + 1) ** random.uniform(0.3, 1.5))

    def text(longest: int) -> str:
        return " ".join(random.choice(words, random.integers(0, longest), p=common / common.sum()))

    texts = [text(int(random.choice([5, 60]))) for _ in range(random.integers(1, 200))] + [
        "run at dawn"
    ]
    docs = [
        Doc(f"{random.choice(['d', 'é', 'D'])}{number}", text)
        for number, text in enumerate(texts + texts[::9])
    ]
    topics = [
        Topic(f"q{number}", text(12) + random.choice(["", " unseen"])) for number in range(20)
    ]
    return Collection(tuple(docs), tuple(topics), {})


def check(seed: int, folder: Path) -> int:
    """One index, several k1, b and k."""
    collection, random = draw(seed), np.random.default_rng([seed, 1])
    collection.write_corpus(folder)
    index = str(folder / "index")
    build_index(CorpusConfig(path=str(folder / "corpus.jsonl"), format="jsonl"), index, _THREADS)
    compared = 0
    for _ in range(_SETTINGS):
        k1, b = random.uniform(0, [3, 1]).round(2).tolist()
        k = int(random.integers(1, 120))
        theirs = search_pyserini(index, collection.topics, k, _THREADS, (k1, b)).hits
        with Bm25Searcher(index, k1, b, _THREADS) as searcher:
            part = searcher.search(collection.topics, k)
        ours = hits_of(part)
        assert ours == theirs, (k1, b, k)
        ranks = [rank for hits in ours.values() for rank in range(1, len(hits) + 1)]
        assert part["rank"].to_pylist() == ranks
        compared += part.num_rows
    return compared
