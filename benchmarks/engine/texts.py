"""The texts of the inputs: questions and paragraphs of SQuAD, or random words that fill a number of
tokens.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.datasets.squad import read_squad
from benchmarks.synthetic import vocabulary

DEPTH = 20
Texts = tuple[str, ...]


class Inputs(NamedTuple):
    """The texts of inputs, `DEPTH` for each question, and which of these is relevant; -1 where that
    is not known.
    """

    texts: Sequence[Texts]
    relevant: Sequence[int]


def real_inputs(archive: Path, count: int, segments: int) -> Inputs:
    """Questions of SQuAD's dev part, each with paragraphs around its own, of the same article for
    the most part.
    """
    squad = read_squad(archive)
    texts: list[Texts] = []
    relevant = []
    place_of = {doc.doc_id: place for place, doc in enumerate(squad.passages)}
    questions = -(-count // DEPTH)
    for number in range(questions):
        topic = squad.topics[number * len(squad.topics) // questions]
        own = place_of[next(iter(squad.qrels[topic.query_id]))]
        first = min(max(0, own - number % DEPTH), len(squad.passages) - DEPTH)
        docs = [doc.text for doc in squad.passages[first : first + DEPTH]]
        other = [docs[place:] + docs[:place] for place in range(segments - 1)]
        texts += zip([topic.text] * DEPTH, *other, strict=True)
        relevant.append(own - first if segments == 2 else -1)
    return Inputs(texts[:count], relevant)


def even_inputs(count: int, tokens: int, segments: int) -> Inputs:
    """Inputs of so many tokens, special tokens included, of random words that are tokens."""
    drawn = np.random.default_rng(0).choice(vocabulary(), (count, tokens - segments - 1))
    texts = [
        (" ".join(row[:8]), *(" ".join(half) for half in np.array_split(row[8:], segments - 1)))
        for row in drawn
    ]
    return Inputs(texts, [-1] * -(-count // DEPTH))
