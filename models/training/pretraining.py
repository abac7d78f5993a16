"""Target corpus pre-training: masked language modelling on the corpus to be ranked (multi-stage paper, section 4.1).

A model first learns to predict masked words in the corpus's own passages; then it is fine-tuned to rank.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from transformers import BertForPreTraining

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig, DocBatch, list_units, read_unit
from models.scoring.batching import cut_batches, padded_width
from models.tokenizer.bert import BertTokenizer
from models.tokenizer.vocabulary import read_vocabulary
from models.training.data.examples import Group, Position

_BLOCK_DOCS = 1000
_HIDDEN_SHARE, _MASKED, _REPLACED = 0.15, 0.8, 0.9
_NOT_HIDDEN = -100

Ids = NDArray[np.int64]


class CorpusSource:
    """A corpus's passages: units in a new order each epoch, each unit shuffled in blocks of 1000 passages."""

    docs_per_group = 1
    groups_per_epoch: int | None = None

    def __init__(self, corpus: CorpusConfig, max_bad_rows: int, seed: int) -> None:
        """Lists the corpus's units. More than `max_bad_rows` invalid rows are an error, once they are read.

        Raises:
            PreflightError: the corpus cannot be read.
        """
        self._units = list_units(corpus)
        self._corpus, self._max_bad_rows, self._seed = corpus, max_bad_rows, seed

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
        counts = {
            "invalid rows of the corpus": position.get("bad_rows", 0),
            "empty passages of the corpus": position.get("empty", 0),
        }
        return [f"{what}: {count:,}; ignored" for what, count in counts.items() if count]

    def _read(self, unit: int, at: Position) -> Iterator[tuple[Group | None, Position]]:
        """Yields a unit's passages with the position after each; then None with the position at its end."""
        start, docs = at["docs"], 0
        for batch in read_unit(self._units[unit], _BLOCK_DOCS):
            if start <= docs:
                at = self._counted(at, batch)
            order = np.random.default_rng([self._seed, at["epoch"], unit, docs]).permutation(len(batch.texts))
            for place in range(max(0, start - docs), len(order)):
                start = docs + place + 1
                if text := batch.texts[order[place]]:
                    yield Group("", (text,), None), at | {"docs": start}
            docs += len(batch.texts)
        yield None, at

    def _counted(self, at: Position, batch: DocBatch) -> Position:
        """A position that counts the unusable docs of a batch; the first epoch meets all of them."""
        if at["epoch"]:
            return at
        left = max(0, self._max_bad_rows - at["bad_rows"])
        if len(batch.bad) > left:
            row = batch.bad[left]
            raise DataError(
                f"more than data.max_bad_rows ({self._max_bad_rows:,}) rows of the corpus {self._corpus.path} are "
                f"invalid; the next one is {row.place}: {row.reason}. Fix the corpus, or raise data.max_bad_rows"
            )
        return at | {"bad_rows": at["bad_rows"] + len(batch.bad), "empty": at["empty"] + batch.texts.count("")}


class MaskedTask:
    """BERT's masked language model: predicts 15 % of the wordpieces; 80 % of these show [MASK], 10 % another one."""

    def __init__(
        self,
        model: BertForPreTraining,
        tokenizer: BertTokenizer,
        folder: str,
        max_length: int,
        token_budget: int,
        device: str,
        dtype: torch.dtype,
        seed: int,
    ) -> None:
        """Takes a model with its tokenizer, which is in `folder`.

        Raises:
            PreflightError: the vocabulary has no [MASK].
        """
        self.model = model
        self._tokenizer = tokenizer
        self._mask_id = _mask_id(folder)
        self._max_length, self._token_budget = max_length, token_budget
        self._device, self._dtype, self._seed = device, dtype, seed

    def loss(self, groups: Sequence[Group], number: int) -> Tensor:
        """The mean cross-entropy of the masked wordpieces."""
        texts = [group.docs[0] for group in groups]
        rows = self._tokenizer.encode(texts, self._max_length - 2).ids.to_pylist()
        shown, hidden = zip(*(self._hide(row, number + place) for place, row in enumerate(rows)), strict=True)
        lengths = np.array([len(row) for row in shown], np.int64)
        losses, counts = [], 0
        for chosen in cut_batches(lengths, self._token_budget, self._max_length):
            width = padded_width(lengths[chosen], self._max_length)
            ids = _padded([shown[row] for row in chosen], width, self._tokenizer.special.pad_id).to(self._device)
            wanted = _padded([hidden[row] for row in chosen], width, _NOT_HIDDEN).to(self._device)
            mask = torch.arange(width) < torch.from_numpy(lengths[chosen])[:, None]
            with torch.autocast(self._device, self._dtype, enabled=self._dtype != torch.float32):
                logits = self.model(input_ids=ids, attention_mask=mask.long().to(self._device)).prediction_logits
            losses.append(F.cross_entropy(logits.float().flatten(0, 1), wanted.flatten(), reduction="sum"))
            counts += int((wanted != _NOT_HIDDEN).sum())
        return torch.stack(losses).sum() / max(1, counts)

    def _hide(self, wordpieces: list[int], number: int) -> tuple[Ids, Ids]:
        """[CLS] wordpieces [SEP] with some masked, and the masked ones, -100 elsewhere."""
        rng = np.random.default_rng([self._seed, number])
        ids = np.array(wordpieces, np.int64)
        count = min(len(ids), max(1, round(_HIDDEN_SHARE * len(ids))))
        places = rng.choice(len(ids), count, replace=False)
        wanted = np.full(len(ids), _NOT_HIDDEN, np.int64)
        wanted[places] = ids[places]
        dice = rng.random(count)
        ids[places[dice < _MASKED]] = self._mask_id
        replaced = places[(dice >= _MASKED) & (dice < _REPLACED)]
        ids[replaced] = rng.integers(self._tokenizer.vocab_size, size=len(replaced))
        framed = np.concatenate([[self._tokenizer.special.cls_id], ids, [self._tokenizer.special.sep_id]])
        return framed, np.concatenate([[_NOT_HIDDEN], wanted, [_NOT_HIDDEN]])


def _mask_id(folder: str) -> int:
    found = read_vocabulary(folder).token_ids.get("[MASK]")
    if found is None:
        raise PreflightError(f"the vocabulary in {folder} has no [MASK], so words of the corpus cannot be masked")
    return found


def _padded(rows: Sequence[Ids], width: int, filler: int) -> Tensor:
    table = np.full((len(rows), width), filler, np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return torch.from_numpy(table)
