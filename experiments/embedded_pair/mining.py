"""Groups to train on: a question's own passage, hard negatives by BM25 and by the teacher, and random ones.

What a training learns from is the bi-encoder's cosine and BM25's score together: on NFCorpus and SQuAD the sum is
better than either.
"""

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from beamrank.errors import DataError
from experiments.embedded_pair.data import Collection, Question
from models.training.data.examples import Group

_GROUP = 8
_HARD_POOL = 30
_BM25_NEGATIVES, _TEACHER_NEGATIVES = 4, 2
# What the teacher's score has of BM25's, beside the cosine.
BM25_SHARE = 0.04
_QUERIES_AT_A_TIME = 256

Embed = Callable[[list[str]], NDArray[np.float32]]


def mine_groups(collection: Collection, embed: Embed, seed: int) -> list[Group]:
    """Mines one group a question.

    Args:
        collection: the questions, and the passages to choose from.
        embed: texts to unit vectors, float32[texts, width].
        seed: decides which negatives are drawn.

    Raises:
        DataError: there are too few passages to choose negatives from.
    """
    if len(collection.passages) <= _HARD_POOL:
        raise DataError(
            f"{collection.name} has {len(collection.passages)} passages, and negatives are chosen from a "
            f"question's {_HARD_POOL} best: read more of it"
        )
    rng = np.random.default_rng(seed)
    passages = embed(collection.passages)
    queries = embed([question.text for question in collection.questions])
    weights, vocabulary = weigh_words(collection.passages)
    groups = []
    for start in range(0, len(collection.questions), _QUERIES_AT_A_TIME):
        questions = collection.questions[start : start + _QUERIES_AT_A_TIME]
        cosines = queries[start : start + _QUERIES_AT_A_TIME] @ passages.T
        bm25 = (count_words([question.text for question in questions], vocabulary) @ weights.T).toarray()
        for question, by_teacher, by_bm25 in zip(questions, cosines, bm25, strict=True):
            chosen = _choose(question, by_teacher, by_bm25, rng)
            texts = tuple(collection.passages[number] for number in chosen)
            relevant = (True,) + (False,) * (_GROUP - 1) if question.labelled else None
            taught = by_teacher[chosen] + BM25_SHARE * by_bm25[chosen]
            groups.append(Group(question.text, texts, relevant, tuple(taught.tolist())))
    return groups


def _choose(
    question: Question, by_teacher: NDArray[np.float32], by_bm25: NDArray[np.float64], rng: np.random.Generator
) -> list[int]:
    chosen = [question.passage]
    left_out = {question.passage, *question.others}
    for scores, count in ((by_bm25, _BM25_NEGATIVES), (by_teacher, _TEACHER_NEGATIVES)):
        pool = [int(number) for number in np.argpartition(-scores, _HARD_POOL)[:_HARD_POOL] if number not in left_out]
        drawn = [int(number) for number in rng.choice(pool, min(count, len(pool)), replace=False)]
        chosen.extend(drawn)
        left_out.update(drawn)
    while len(chosen) < _GROUP:
        number = int(rng.integers(len(by_teacher)))
        if number not in left_out:
            chosen.append(number)
            left_out.add(number)
    return chosen


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def count_words(texts: list[str], vocabulary: dict[str, int]) -> sparse.csr_matrix:
    counts = [Counter(vocabulary[word] for word in _words(text) if word in vocabulary) for text in texts]
    rows = [row for row, count in enumerate(counts) for _ in count]
    columns = [word for count in counts for word in count]
    values = [float(value) for count in counts for value in count.values()]
    return sparse.csr_matrix((values, (rows, columns)), shape=(len(texts), len(vocabulary)))


def weigh_words(passages: list[str], k1: float = 0.9, b: float = 0.4) -> tuple[sparse.csr_matrix, dict[str, int]]:
    """BM25's weight of every word in every passage, and the words' columns."""
    vocabulary = {word: number for number, word in enumerate(sorted({w for text in passages for w in _words(text)}))}
    weights = count_words(passages, vocabulary)
    lengths = np.asarray(weights.sum(axis=1)).ravel()
    docs = np.diff(weights.tocsc().indptr)
    idf = np.log1p((len(passages) - docs + 0.5) / (docs + 0.5))
    norms = np.repeat(k1 * (1 - b + b * lengths / lengths.mean()), np.diff(weights.indptr))
    weights.data = idf[weights.indices] * weights.data / (weights.data + norms)
    return weights, vocabulary
