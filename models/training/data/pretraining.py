"""Inputs of BERT's pre-training: a corpus's passages, packed, in segments A and B, with hidden wordpieces."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.texts.units import DocBatch
from models.tokenizers.bert import BertTokenizer
from models.training.data.groups import Group, Position
from models.training.data.texts import normal_text

NOT_PREDICTED = -100
IS_NEXT, IS_RANDOM = 0, 1

_BLOCK_DOCS = 1000
# Passages that are tokenized together to be packed.
_PACKED_TOGETHER = 256
# The random numbers of cuts, beside those of hidden wordpieces.
_CUTS = 1
_HIDDEN_SHARE, _MASKED, _REPLACED = 0.15, 0.8, 0.9

Ids = NDArray[np.int64]


class CorpusSource:
    """A corpus's passages: units in a new order each epoch, each unit shuffled in blocks of 1000 passages."""

    docs_per_group = 1
    groups_per_epoch: int | None = None
    queries = np.zeros(0, np.uint64)

    def __init__(self, corpus: CorpusConfig, max_bad_rows: int, seed: int) -> None:
        """Lists the corpus's units, and reads to the first passage.

        More than `max_bad_rows` invalid rows are an error, once they are read.

        Raises:
            PreflightError: the corpus cannot be read, has no passage, or too many rows before the first are invalid.
        """
        self._units = list_units(corpus)
        self._corpus, self._max_bad_rows, self._seed = corpus, max_bad_rows, seed
        try:
            next(self.stream({}))
        except DataError as error:
            raise PreflightError(str(error)) from error

    def stream(self, position: Position) -> Iterator[tuple[Group, Position]]:
        """See `Source`; the position is the epoch, the place of the unit, and how many of its passages are read.

        Raises:
            DataError: too many rows are invalid, or the corpus has no passage left.
        """
        at: Position = {"epoch": 0, "unit": 0, "docs": 0, "bad_rows": 0, "empty": 0} | position
        while True:
            whole, read = not (at["unit"] or at["docs"]), False
            order = np.random.default_rng([self._seed, at["epoch"]]).permutation(len(self._units))
            for place in range(at["unit"], len(order)):
                for group, after in self._read(int(order[place]), at | {"unit": place}):
                    at = after | {"unit": place + 1, "docs": 0}
                    if group is not None:
                        read = True
                        yield group, after
            if whole and not read:
                raise DataError(
                    f"the corpus {self._corpus.path} has no usable passage (any more): all are empty or invalid, so "
                    "there is nothing to train on"
                )
            at = at | {"epoch": at["epoch"] + 1, "unit": 0}

    def notes(self, position: Position) -> list[str]:
        """The number of unusable rows and passages so far."""
        counts = {"invalid rows": position.get("bad_rows", 0), "empty passages": position.get("empty", 0)}
        return [f"{what} of the corpus: {count:,}; ignored" for what, count in counts.items() if count]

    def _read(self, unit: int, at: Position) -> Iterator[tuple[Group | None, Position]]:
        """Yields a unit's passages with the position after each; then None with the position at its end."""
        start, docs = at["docs"], 0
        for batch in read_unit(self._units[unit], _BLOCK_DOCS):
            # The first epoch meets all docs.
            if start <= docs and not at["epoch"]:
                at = self._counted(at, batch)
            order = np.random.default_rng([self._seed, at["epoch"], unit, docs]).permutation(len(batch.texts))
            for place in range(max(0, start - docs), len(order)):
                start = docs + place + 1
                if normal_text(text := batch.texts[order[place]]):
                    yield Group("", (text,), None), at | {"docs": start}
            docs += len(batch.texts)
        yield None, at

    def _counted(self, at: Position, batch: DocBatch) -> Position:
        """A position that counts the unusable docs of a batch."""
        left = max(0, self._max_bad_rows - at["bad_rows"])
        if len(batch.bad) > left:
            row = batch.bad[left]
            raise DataError(
                f"more than data.max_bad_rows ({self._max_bad_rows:,}) rows of the corpus {self._corpus.path} are "
                f"invalid; the next one is {row.place}: {row.reason}. Fix the corpus, or raise data.max_bad_rows"
            )
        empty = sum(not normal_text(each) for each in batch.texts)
        return at | {"bad_rows": at["bad_rows"] + len(batch.bad), "empty": at["empty"] + empty}


class PackedSource:
    """The passages of a corpus, each group as many of the next ones as fit into an input together."""

    docs_per_group = 1
    groups_per_epoch: int | None = None
    queries = np.zeros(0, np.uint64)

    def __init__(self, passages: CorpusSource, tokenizer: BertTokenizer, room_tokens: int) -> None:
        """Packs up to `room_tokens` tokens, each passage with its [SEP]; a longer passage has an input of its own."""
        self._passages, self._tokenizer, self._room_tokens = passages, tokenizer, room_tokens
        self.notes = passages.notes

    def stream(self, position: Position) -> Iterator[tuple[Group, Position]]:
        """See `Source`; the position is that of the last passage of a group. Errors as of `CorpusSource.stream`."""
        docs: list[str] = []
        filled, at = 0, position
        passages = self._passages.stream(position)
        while block := list(islice(passages, _PACKED_TOGETHER)):
            texts = [group.docs[0] for group, _ in block]
            sizes = np.diff(self._tokenizer.encode(texts, self._room_tokens - 1).ids.offsets.to_numpy()) + 1
            for text, size, (_, after) in zip(texts, sizes.tolist(), block, strict=True):
                if docs and filled + size > self._room_tokens:
                    yield Group("", tuple(docs), None), at
                    docs, filled = [], 0
                docs.append(text)
                filled, at = filled + size, after


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


_Segments = tuple[Ids, Ids, int]
"""A, B, and the label of B."""


class Masking:
    """Makes the inputs of a batch: `[CLS] A [SEP] B [SEP]`, with a [SEP] between the passages of a segment.

    Attributes:
        room_tokens: the room of an input for passages, each with its [SEP].
        pad_id: the id of [PAD].
    """

    def __init__(
        self, tokenizer: BertTokenizer, mask_id: int, max_length: int, next_sentence: bool = False, seed: int = 0
    ) -> None:
        """Makes inputs of up to `max_length` tokens; with `next_sentence` B continues A in one half of them."""
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
        texts = [text for pack in passages for text in pack]
        rows = iter(self._tokenizer.encode(texts, self.room_tokens - 1).ids.to_pylist())
        packs = [[np.array(next(rows), np.int64) for _ in pack] for pack in passages]
        segments: list[_Segments] = []
        for pack in packs:
            half = (len(pack) + 1) // 2
            segments.append((self._joined(pack[:half]), self._joined(pack[half:]), NOT_PREDICTED))
        if self._next_sentence:
            for place in range(0, len(packs) - 1, 2):
                bodies = self._joined(packs[place]), self._joined(packs[place + 1])
                segments[place : place + 2] = self._cut(*bodies, number + place) or segments[place : place + 2]
        return [self._masked(each, number + place) for place, each in enumerate(segments)]

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
            return [(one[:at], one[at:], IS_NEXT), (other[:at], other[at:], IS_NEXT)]
        return [(one[:at], other[at:], IS_RANDOM), (other[:at], one[at:], IS_RANDOM)]

    def _masked(self, segments: _Segments, number: int) -> MaskedInput:
        """15 % of the wordpieces are predicted: 80 % of these show [MASK], 10 % another wordpiece, 10 % themselves."""
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
        ids[replaced] = rng.integers(self._tokenizer.vocab_size, size=len(replaced))
        types = np.repeat([0, 1], [len(first), len(second)])
        return MaskedInput(ids, types, hidden, segments[2])
