"""Inputs of BERT's pre-training: packed passages, segments A and B, and hidden wordpieces (Devlin et al. 2019)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.tokenizers.bert import BertTokenizer

NOT_PREDICTED = -100
IS_NEXT, IS_RANDOM = 0, 1

_CUTS = 1  # The random numbers of cuts, beside those of hidden wordpieces.
_HIDDEN_SHARE, _MASKED, _REPLACED = 0.15, 0.8, 0.9

Ids = NDArray[np.int64]


class MaskedInput(NamedTuple):
    """One input of n tokens.

    Attributes:
        ids: int64[n], as the model sees them.
        types: int64[n], 0 in segment A and 1 in segment B.
        hidden: int64[n], the wordpieces to predict, `NOT_PREDICTED` elsewhere.
        next_label: whether B continues A, as BERT's head has it: `IS_NEXT`, `IS_RANDOM` or `NOT_PREDICTED`.
    """

    ids: Ids
    types: Ids
    hidden: Ids
    next_label: int


class _Segments(NamedTuple):
    first: Ids
    second: Ids
    next_label: int = NOT_PREDICTED


class Masking:
    """Makes the inputs of a batch: `[CLS] A [SEP] B [SEP]`, with a [SEP] between the passages of a segment.

    Attributes:
        room_tokens: the room of an input for passages, each with its [SEP].
        pad_id: the id of [PAD].
    """

    def __init__(
        self, tokenizer: BertTokenizer, mask_id: int, max_length: int, next_sentence: bool = False, seed: int = 0
    ) -> None:
        """Makes inputs of up to `max_length` tokens.

        Args:
            tokenizer: the model's tokenizer.
            mask_id: the id of [MASK].
            max_length: tokens of an input.
            next_sentence: whether segment B continues segment A in one half of the inputs, and not in the other.
            seed: decides what is hidden, and where the segments are cut.
        """
        self._tokenizer, self._special, self._mask_id = tokenizer, tokenizer.special, mask_id
        self._next_sentence, self._seed = next_sentence, seed
        self.pad_id = tokenizer.special.pad_id
        self.room_tokens = max_length - (2 if next_sentence else 1)

    def inputs(self, passages: Sequence[Sequence[str]], number: int) -> list[MaskedInput]:
        """Lays out the passages of each input; those of a long one end where its input does.

        Args:
            passages: the passages of each input; together with a [SEP] each they have at most `room_tokens` tokens.
            number: how many inputs the training had before these.
        """
        packs = self._packs(passages)
        segments = [
            _Segments(self._joined(pack[: (len(pack) + 1) // 2]), self._joined(pack[(len(pack) + 1) // 2 :]))
            for pack in packs
        ]
        if self._next_sentence:
            for place in range(0, len(packs) - 1, 2):
                bodies = self._joined(packs[place]), self._joined(packs[place + 1])
                segments[place : place + 2] = self._cut(*bodies, number + place) or segments[place : place + 2]
        return [self._masked(each, number + place) for place, each in enumerate(segments)]

    def _packs(self, passages: Sequence[Sequence[str]]) -> list[list[Ids]]:
        texts = [text for pack in passages for text in pack]
        rows = iter(self._tokenizer.encode(texts, self.room_tokens - 1).ids.to_pylist())
        return [[np.array(next(rows), np.int64) for _ in pack] for pack in passages]

    def _joined(self, passages: Sequence[Ids]) -> Ids:
        """Passages in a row, with [SEP] between them."""
        parts = [part for passage in passages for part in ([self._special.sep_id], passage)]
        return np.concatenate([np.empty(0, np.int64), *parts[1:]]).astype(np.int64)

    def _cut(self, one: Ids, other: Ids, number: int) -> list[_Segments]:
        """Two bodies of passages, each cut within a passage; every second pair of them swaps its segments B.

        Both are cut at the same place, so that they stay as long as they were; none if there is no such place.
        """
        rng = np.random.default_rng([self._seed, number, _CUTS])
        size = min(len(one), len(other))
        inner = (one[:size] != self._special.sep_id) & (other[:size] != self._special.sep_id)
        places = np.flatnonzero(inner[1:] & inner[:-1]) + 1
        if not len(places):
            return []
        at = int(rng.choice(places))
        if rng.random() < 0.5:
            return [_Segments(one[:at], one[at:], IS_NEXT), _Segments(other[:at], other[at:], IS_NEXT)]
        return [_Segments(one[:at], other[at:], IS_RANDOM), _Segments(other[:at], one[at:], IS_RANDOM)]

    def _masked(self, segments: _Segments, number: int) -> MaskedInput:
        """15 % of the wordpieces are predicted: 80 % of these show [MASK], 10 % another wordpiece, 10 % themselves."""
        cls_id, sep_id = self._special.cls_id, self._special.sep_id
        first = np.concatenate([[cls_id], segments.first, [sep_id]])
        second = np.concatenate([segments.second, [sep_id]]) if len(segments.second) else segments.second
        ids = np.concatenate([first, second])
        rng = np.random.default_rng([self._seed, number])
        wordpieces = np.flatnonzero((ids != cls_id) & (ids != sep_id))
        count = min(len(wordpieces), max(1, round(_HIDDEN_SHARE * len(wordpieces))))
        places = wordpieces[rng.choice(len(wordpieces), count, replace=False)]
        hidden = np.full(len(ids), NOT_PREDICTED, np.int64)
        hidden[places] = ids[places]
        dice = rng.random(count)
        ids[places[dice < _MASKED]] = self._mask_id
        replaced = places[(dice >= _MASKED) & (dice < _REPLACED)]
        ids[replaced] = rng.integers(self._tokenizer.vocab_size, size=len(replaced))
        types = np.repeat([0, 1], [len(first), len(second)])
        return MaskedInput(ids, types, hidden, segments.next_label)
