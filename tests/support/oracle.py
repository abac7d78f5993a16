"""The cascade as a plain loop in memory, written straight from the papers; slow, short, and the
oracle of our tests.

Nogueira and Cho 2019 for monoBERT (section 2), Nogueira et al. 2019 for duoBERT (section 3.3,
equations 3 to 7). Models are transformers' own BertForSequenceClassification, fed one unpadded
input at a time.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from transformers import BertForSequenceClassification, BertTokenizer

from beamrank.records import SpecialTokens
from tests.support.checkpoints import SPECIAL

LogOdds = dict[tuple[str, ...], float]


class Oracle:
    """transformers' own classifier, fed one unpadded input at a time."""

    def __init__(self, folder: str, special: SpecialTokens = SPECIAL) -> None:
        self._model = BertForSequenceClassification.from_pretrained(
            folder, dtype=torch.float32
        ).eval()
        self._special = special

    def log_odds(self, *segments: Sequence[int]) -> float:
        """[CLS] segment [SEP] segment [SEP] ..., each segment with its own token type."""
        ids, types = [self._special.cls_id], [0]
        for number, segment in enumerate(segments):
            ids += [*segment, self._special.sep_id]
            types += [number] * (len(segment) + 1)
        with torch.inference_mode():
            logits = self._model(
                input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])
            ).logits[0]
        return float(logits[-1] - logits[0]) if len(logits) == 2 else float(logits[0])


class TextOracle:
    """The log-odds of texts, with truncation `original`: what the 2019 code does to the token."""

    def __init__(self, mono_folder: str, duo_folder: str) -> None:
        torch.set_num_threads(1)
        self._tokenizer = BertTokenizer.from_pretrained(mono_folder)
        self._mono, self._duo = Oracle(mono_folder), Oracle(duo_folder)

    def _ids(self, text: str, limit: int) -> list[int]:
        ids: list[int] = self._tokenizer.convert_tokens_to_ids(self._tokenizer.tokenize(text))
        return ids[:limit]

    def mono(self, query: str, doc: str) -> float:
        """[CLS] q [SEP] d [SEP]."""
        query_ids = self._ids(query, 62)
        return self._mono.log_odds(query_ids, self._ids(doc, 512 - (len(query_ids) + 2) - 2))

    def duo(self, query: str, first: str, second: str) -> float:
        """[CLS] q [SEP] d_i [SEP] d_j [SEP]."""
        query_ids = self._ids(query, 62)
        room = (512 - (len(query_ids) + 2)) // 2 - 2
        return self._duo.log_odds(query_ids, self._ids(first, room), self._ids(second, room))


def sigmoid(z: float) -> float:
    """The probability whose log-odds are z."""
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def cascade(
    query: str,
    candidates: Sequence[str],
    texts: Mapping[str, str],
    oracle: TextOracle,
    k0: int,
    k1: int,
) -> tuple[LogOdds, LogOdds]:
    """The log-odds of one query's candidates, and of the pairs of the first `k1` of them."""
    mono: LogOdds = {(doc_id,): oracle.mono(query, texts[doc_id]) for doc_id in candidates[:k0]}
    head = sorted(candidates[:k0], key=lambda doc_id: -mono[doc_id,])[:k1]
    pairs = [(first, second) for first in head for second in head if first != second]
    return mono, {
        (first, second): oracle.duo(query, texts[first], texts[second]) for first, second in pairs
    }


def disagreements(
    ours: Sequence[str], score: Mapping[str, float], tolerance: float
) -> list[tuple[str, str]]:
    """Pairs in the wrong order although their oracle scores differ by more than the tolerance."""
    return [
        (above, below)
        for place, above in enumerate(ours)
        for below in ours[place + 1 :]
        if score[below] - score[above] > tolerance
    ]


def assert_parity(found: Sequence[float], wanted: Sequence[float]) -> None:
    """Log-odds within 1e-4, and the same order wherever they differ by more than 2e-4."""
    one, other = np.array(found, np.float64), np.array(wanted, np.float64)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)
    apart = other[:, None] - other[None, :] > 2e-4
    assert (one[:, None] > one[None, :])[apart].all()
