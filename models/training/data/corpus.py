"""The passages of a corpus as examples, one or several to an input, for target corpus pre-training."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig, DocBatch, list_units, read_unit
from models.tokenizers.bert import BertTokenizer
from models.training.data.examples import Group, Position
from models.training.data.texts import normal_text

_BLOCK_DOCS = 1000
# Passages that are tokenized together to be packed.
_PACKED_TOGETHER = 256


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
                if normal_text(text := batch.texts[order[place]]):
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
        return at | {
            "bad_rows": at["bad_rows"] + len(batch.bad),
            "empty": at["empty"] + sum(not normal_text(each) for each in batch.texts),
        }


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
        """See `Source`; the position is that of the last passage of a group.

        Raises:
            DataError: as `CorpusSource.stream`.
        """
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
