"""Inputs of BERT's pre-training: a corpus's passages, packed, in segments A and B, with hidden
wordpieces.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.tokenizers.bert import BertTokenizer
from models.training.data.groups import Group, shuffled

NOT_PREDICTED = -100
IS_NEXT, IS_RANDOM = 0, 1

# The stream of random numbers for cuts; hidden wordpieces have another.
_CUTS = 1
_HIDDEN_SHARE, _MASKED, _REPLACED = 0.15, 0.8, 0.9

Ids = NDArray[np.int64]


class PassageSource:
    """The passages of a corpus in a new order each epoch; a group has as many of the next ones as
    fit into an input.
    """

    docs_per_group = 1
    queries = np.zeros(0, np.uint64)

    def __init__(self, lengths: NDArray[np.int32], room_tokens: int, seed: int) -> None:
        """Packs up to `room_tokens` tokens, each passage with its [SEP]; with 0 each passage is a
        group of its own.
        """
        self._lengths, self._room_tokens, self._seed = lengths, room_tokens, seed
        self.groups_per_epoch = None if room_tokens else len(lengths)

    def stream(self, position: int) -> Iterator[tuple[Group[int], int]]:
        """As of `GroupSource`; the position is after the last passage of a group."""
        docs: list[int] = []
        filled, at = 0, position
        for after, number in shuffled(len(self._lengths), self._seed, position):
            size = int(self._lengths[number]) + 1
            if docs and filled + size > self._room_tokens:
                yield Group(0, tuple(docs), None), at
                docs, filled = [], 0
            docs.append(number)
            filled, at = filled + size, after


class MaskedInput(NamedTuple):
    """One input of n tokens.

    Attributes:
        ids: int64[n], as the model sees them.
        types: int64[n], 0 in segment A and 1 in segment B.
        hidden: int64[n], the wordpieces to predict, `NOT_PREDICTED` elsewhere.
        next_label: whether B continues A, as BERT's head has it: `IS_NEXT`, `IS_RANDOM` or
            `NOT_PREDICTED`.
    """

    ids: Ids
    types: Ids
    hidden: Ids
    next_label: int


_Segments = tuple[Ids, Ids, int]
"""A, B, and the label of B."""


class Masking:
    """Makes the inputs of a batch: `[CLS] A [SEP] B [SEP]`, with a [SEP] between the passages of a
    segment.

    Attributes:
        room_tokens: the room of an input for passages, each with its [SEP].
        pad_id: the id of [PAD].
    """

    def __init__(
        self,
        tokenizer: BertTokenizer,
        mask_id: int,
        max_length: int,
        next_sentence: bool = False,
        seed: int = 0,
    ) -> None:
        """Makes inputs of up to `max_length` tokens; with `next_sentence` B continues A in one half
        of them.
        """
        self._vocab_size, self._special, self._mask_id = (
            tokenizer.vocab_size,
            tokenizer.special,
            mask_id,
        )
        self._next_sentence, self._seed = next_sentence, seed
        self.pad_id = tokenizer.special.pad_id
        self.room_tokens = max_length - (2 if next_sentence else 1)

    def inputs(self, packs: Sequence[Sequence[Ids]], number: int) -> list[MaskedInput]:
        """Lays out the passages of each input.

        Args:
            packs: the passages of each input; together with a [SEP] each they have at most
                `room_tokens` tokens.
            number: how many inputs the training had before these.
        """
        segments: list[_Segments] = []
        for pack in packs:
            half = (len(pack) + 1) // 2
            segments.append((self._joined(pack[:half]), self._joined(pack[half:]), NOT_PREDICTED))
        if self._next_sentence:
            for place in range(0, len(packs) - 1, 2):
                bodies = self._joined(packs[place]), self._joined(packs[place + 1])
                segments[place : place + 2] = (
                    self._cut(*bodies, number + place) or segments[place : place + 2]
                )
        return [self._masked(segment, number + place) for place, segment in enumerate(segments)]

    def _joined(self, passages: Sequence[Ids]) -> Ids:
        """Passages in a row, with [SEP] between them."""
        parts = [part for passage in passages for part in ([self._special.sep_id], passage)]
        return np.concatenate([np.empty(0, np.int64), *parts[1:]]).astype(np.int64)

    def _cut(self, one: Ids, other: Ids, number: int) -> list[_Segments]:
        """Two bodies of passages, each cut within a passage; every second pair of them swaps its
        segments B.

        Both are cut at the same place, so that they stay as long as they were; none if there is no
        such place.
        """
        rng = np.random.default_rng([self._seed, number, _CUTS])
        size = min(len(one), len(other))
        inner = (one[:size] != self._special.sep_id) & (other[:size] != self._special.sep_id)
        places = np.flatnonzero(inner[1:] & inner[:-1]) + 1
        if not len(places):
            return []
        at = int(rng.choice(places))
        if rng.random() < 0.5:
            return [(one[:at], one[at:], IS_NEXT), (other[:at], other[at:], IS_NEXT)]
        return [(one[:at], other[at:], IS_RANDOM), (other[:at], one[at:], IS_RANDOM)]

    def _masked(self, segments: _Segments, number: int) -> MaskedInput:
        """15 % of the wordpieces are predicted: 80 % of these show [MASK], 10 % another wordpiece,
        10 % themselves.
        """
        cls_id, sep_id = self._special.cls_id, self._special.sep_id
        first = np.concatenate([[cls_id], segments[0], [sep_id]])
        second = np.concatenate([segments[1], [sep_id]]) if len(segments[1]) else segments[1]
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
        ids[replaced] = rng.integers(self._vocab_size, size=len(replaced))
        types = np.repeat([0, 1], [len(first), len(second)])
        return MaskedInput(ids, types, hidden, segments[2])
