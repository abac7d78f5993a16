"""Groups to fit on: a question's own passage, hard negatives by BM25, and random negatives."""

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from beamrank.errors import DataError
from experiments.embedded_pair.questions import Question, Questions
from models.training.data.groups import Group

_GROUP = 8
_HARD_POOL = 30
_HARD_NEGATIVES = 5
_QUERIES_AT_A_TIME = 256


def mine_groups(found: Questions, seed: int) -> list[Group]:
    """Mines a group for each question: the question's passage first, then negatives.

    Args:
        found: the questions, and the passages to choose from.
        seed: decides which negatives are drawn.

    Raises:
        DataError: there are too few passages to choose negatives from.
    """
    if len(found.passages) <= _HARD_POOL:
        raise DataError(
            f"{found.name} has {len(found.passages)} passages, and negatives are chosen from a "
            f"question's {_HARD_POOL} best: read more of it"
        )
    rng = np.random.default_rng(seed)
    weights, vocabulary = weigh_words(found.passages)
    groups = []
    for start in range(0, len(found.questions), _QUERIES_AT_A_TIME):
        questions = found.questions[start : start + _QUERIES_AT_A_TIME]
        counts = count_words([question.text for question in questions], vocabulary)
        for question, scores in zip(questions, (counts @ weights.T).toarray(), strict=True):
            docs = tuple(found.passages[number] for number in _choose(question, scores, rng))
            groups.append(Group(question.text, docs, None, None))
    return groups


def _choose(
    question: Question, scores: NDArray[np.floating], rng: np.random.Generator
) -> list[int]:
    """The question's passage, then some of the best negatives by BM25, then random ones."""
    left_out = {question.passage, *question.others}
    best = np.argpartition(-scores, _HARD_POOL)[:_HARD_POOL]
    pool = [int(number) for number in best if number not in left_out]
    hard = [
        int(number) for number in rng.choice(pool, min(_HARD_NEGATIVES, len(pool)), replace=False)
    ]
    chosen = [question.passage, *hard]
    left_out.update(hard)
    while len(chosen) < _GROUP:
        number = int(rng.integers(len(scores)))
        if number not in left_out:
            chosen.append(number)
            left_out.add(number)
    return chosen


def count_words(texts: list[str], vocabulary: dict[str, int]) -> sparse.csr_matrix:
    """How often each text has each word of a vocabulary, float64[texts, words]."""
    counts = [
        Counter(vocabulary[word] for word in _words(text) if word in vocabulary) for text in texts
    ]
    rows = [row for row, count in enumerate(counts) for _ in count]
    columns = [word for count in counts for word in count]
    values = [float(value) for count in counts for value in count.values()]
    return sparse.csr_matrix((values, (rows, columns)), shape=(len(texts), len(vocabulary)))


def weigh_words(
    passages: list[str], k1: float = 0.9, b: float = 0.4
) -> tuple[sparse.csr_matrix, dict[str, int]]:
    """BM25's weight of every word in every passage, and the column of each word."""
    vocabulary = {
        word: number
        for number, word in enumerate(sorted({w for text in passages for w in _words(text)}))
    }
    weights = count_words(passages, vocabulary)
    lengths = np.asarray(weights.sum(axis=1)).ravel()
    docs = np.diff(weights.tocsc().indptr)
    idf = np.log1p((len(passages) - docs + 0.5) / (docs + 0.5))
    norms = np.repeat(k1 * (1 - b + b * lengths / lengths.mean()), np.diff(weights.indptr))
    weights.data = idf[weights.indices] * weights.data / (weights.data + norms)
    return weights, vocabulary


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())
