"""The cascade as a plain loop in memory, written straight from the papers; slow, short, and the oracle of our tests.

Nogueira and Cho 2019 for monoBERT (section 2), Nogueira et al. 2019 for duoBERT (section 3.3, equations 3 to 7). Models
are transformers' own BertForSequenceClassification, fed one unpadded input at a time.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from transformers import BertForSequenceClassification, BertTokenizer

LogOdds = dict[tuple[str, ...], float]


class Reference:
    """Truncation `original`: what the 2019 code does to the token."""

    def __init__(self, mono_folder: str, duo_folder: str) -> None:
        torch.set_num_threads(1)
        self.tokenizer = BertTokenizer.from_pretrained(mono_folder)
        self.mono = BertForSequenceClassification.from_pretrained(mono_folder, dtype=torch.float32).eval()
        self.duo = BertForSequenceClassification.from_pretrained(duo_folder, dtype=torch.float32).eval()

    def _ids(self, text: str, limit: int) -> list[int]:
        return self.tokenizer.convert_tokens_to_ids(self.tokenizer.tokenize(text))[:limit]

    def _log_odds(self, model: BertForSequenceClassification, segments: Sequence[list[int]]) -> float:
        ids = [self.tokenizer.cls_token_id]
        types = [0]
        for number, segment in enumerate(segments):
            ids += [*segment, self.tokenizer.sep_token_id]
            types += [number] * (len(segment) + 1)
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])).logits[0]
        return float(logits[1] - logits[0])

    def mono_log_odds(self, query: str, doc: str) -> float:
        """[CLS] q [SEP] d [SEP]."""
        query_ids = self._ids(query, 62)
        return self._log_odds(self.mono, [query_ids, self._ids(doc, 512 - (len(query_ids) + 2) - 2)])

    def duo_log_odds(self, query: str, first: str, second: str) -> float:
        """[CLS] q [SEP] d_i [SEP] d_j [SEP]."""
        query_ids = self._ids(query, 62)
        room = (512 - (len(query_ids) + 2)) // 2 - 2
        return self._log_odds(self.duo, [query_ids, self._ids(first, room), self._ids(second, room)])


def sigmoid(z: float) -> float:
    """The probability whose log-odds are z."""
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def cascade(
    query: str,
    candidates: Sequence[str],
    texts: Mapping[str, str],
    reference: Reference,
    k0: int,
    k1: int,
) -> tuple[list[str], LogOdds, list[str], LogOdds]:
    """R1 and R2 of one query, with the log-odds that they were ordered by."""
    mono: LogOdds = {(doc_id,): reference.mono_log_odds(query, texts[doc_id]) for doc_id in candidates[:k0]}
    ranked = sorted(candidates[:k0], key=lambda doc_id: -mono[doc_id,]) + list(candidates[k0:])
    head = ranked[: min(k1, k0)]
    duo: LogOdds = {
        (first, second): reference.duo_log_odds(query, texts[first], texts[second])
        for first in head
        for second in head
        if first != second
    }
    total = {first: sum(sigmoid(duo[first, second]) for second in head if second != first) for first in head}
    return ranked, mono, sorted(head, key=lambda doc_id: -total[doc_id]) + ranked[len(head) :], duo


def disagreements(ours: Sequence[str], score: Mapping[str, float], tolerance: float) -> list[tuple[str, str]]:
    """Pairs that stand in the wrong order although their reference scores differ by more than the tolerance."""
    return [
        (above, below)
        for place, above in enumerate(ours)
        for below in ours[place + 1 :]
        if score[below] - score[above] > tolerance
    ]
