"""Groups of a query with some docs: stored as arrays, drawn in a stream that can be resumed, laid
out as inputs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Generic, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import TypeVar

from beamrank.ranking.input_layout import (
    InputLimits,
    PackedInputs,
    cut_docs,
    kept_lengths,
    lay_out,
    max_doc_tokens,
)
from beamrank.storage.local_files import map_array
from models.architectures.families import bert_template
from models.scoring.packing import Rows, cut_batches, padded_width
from models.tokenizers.bert import BertTokenizer
from models.training.data.texts import TokenTable

Text = TypeVar("Text", str, int, default=str)
"""A string, or the number of its row in a `TokenTable`."""
Texts: TypeAlias = tuple[str | int, ...]
"""A query and a doc, or a query, doc i and doc j."""


@dataclass(frozen=True)
class Group(Generic[Text]):
    """A query with docs that are compared with each other.

    Attributes:
        query: its text.
        docs: the docs' texts; a relevant one first if there is one.
        relevant: whether each doc is relevant; None if that is unknown.
        teacher_scores: a teacher's score of each doc, if there is a teacher.
    """

    query: Text
    docs: tuple[Text, ...]
    relevant: tuple[bool, ...] | None
    teacher_scores: tuple[float, ...] | None = None


@dataclass(frozen=True)
class GroupArrays:
    """The n groups of an epoch, with rows of a `TokenTable` as texts.

    Attributes:
        queries: int32[n].
        docs: int32[n, d]; docs that are drawn again each epoch come after them.
        relevant: bool[n, d].
        texts: uint64, the distinct `keys_of` the queries' texts, sorted.
        scores: float32[n, d], a teacher's; empty without one.
        pools: int64[n, 2], where the negatives begin and end that a group draws from; empty if none
            are drawn.
        negatives: int32[m].
        negative_scores: float32[m]; empty without a teacher.
    """

    queries: NDArray[np.int32]
    docs: NDArray[np.int32]
    relevant: NDArray[np.bool_]
    texts: NDArray[np.uint64]
    scores: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    pools: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    negatives: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    negative_scores: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))

    def save(self, folder: Path) -> None:
        """Writes each array to a file of its name."""
        for name, values in vars(self).items():
            np.save(folder / f"{name}.npy", values)

    @classmethod
    def load(cls, folder: Path) -> "GroupArrays":
        """Maps the arrays in a folder into memory."""
        return cls(*(map_array(folder / f"{field.name}.npy") for field in fields(cls)))


class GroupSource:
    """An endless stream of groups, which depends only on the seed.

    Attributes:
        docs_per_group: how many docs each group has.
        groups_per_epoch: how many groups an epoch has; None if that is unknown.
        queries: uint64, the `keys_of` the queries' texts, sorted.
    """

    groups_per_epoch: int | None

    def __init__(
        self, arrays: GroupArrays, seed: int, drawn: int = 0, block: int | None = None
    ) -> None:
        """Draws so many negatives for a group; with `block` so many groups are shuffled among
        themselves.
        """
        self._arrays, self._seed, self._drawn, self._block = arrays, seed, drawn, block
        self.docs_per_group, self.queries = arrays.docs.shape[1] + drawn, arrays.texts
        self.groups_per_epoch = len(arrays.queries)

    def stream(self, position: int) -> Iterator[tuple[Group[int], int]]:
        """Yields groups from a position on, each with the position after it; 0 is the beginning."""
        for after, number in shuffled(len(self._arrays.queries), self._seed, position, self._block):
            yield self._group(number, (after - 1) // len(self._arrays.queries)), after

    def _group(self, number: int, epoch: int) -> Group[int]:
        arrays = self._arrays
        docs, relevant = arrays.docs[number].tolist(), arrays.relevant[number].tolist()
        scores = arrays.scores[number].tolist() if len(arrays.scores) else []
        if self._drawn:
            first, end = arrays.pools[number].tolist()
            rng = np.random.default_rng([self._seed, epoch, number])
            places = first + rng.choice(end - first, self._drawn, replace=end - first < self._drawn)
            docs += arrays.negatives[places].tolist()
            relevant += [False] * self._drawn
            scores += arrays.negative_scores[places].tolist() if scores else []
        return Group(
            int(arrays.queries[number]), tuple(docs), tuple(relevant), tuple(scores) or None
        )


def shuffled(
    count: int, seed: int, position: int = 0, block: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yields the position after it and a number: in each epoch every number below `count`, as the
    seed decides.

    With `block` so many numbers are shuffled among themselves.
    """
    (epoch, start), size = divmod(position, count), block or count
    while True:
        for first in range(start - start % size, count, size):
            rng = np.random.default_rng([seed, epoch, first // size])
            order = first + rng.permutation(min(size, count - first))
            for place in range(max(start, first), first + len(order)):
                yield epoch * count + place + 1, int(order[place - first])
        epoch, start = epoch + 1, 0


class Batch(NamedTuple):
    """Inputs that go through the model together: their rows, and the tensors that transformers'
    BERT takes.

    If a passage is read in chunks, the tensors have a row for each chunk, a passage's chunks one
    after the other.
    """

    rows: Rows
    tensors: dict[str, Tensor]


class InputEncoder:
    """Lays out inputs exactly as for scoring: [CLS] query [SEP] doc [SEP], or with a doc i and a
    doc j.
    """

    def __init__(
        self,
        tokenizer: BertTokenizer,
        limits: InputLimits,
        token_budget: int,
        chunks: int = 1,
        tokens: TokenTable | None = None,
    ) -> None:
        """Takes the truncation rule, the most tokens of a batch with padding, and the inputs that a
        doc is read as.
        """
        self._tokenizer, self._limits, self._chunks, self._tokens = (
            tokenizer,
            limits,
            chunks,
            tokens,
        )
        self._token_budget = token_budget

    def pack(self, inputs: Sequence[Texts]) -> PackedInputs:
        """Finds the token ids of each distinct text once, and truncates each input.

        Raises:
            ConfigError: the rule leaves no room for the docs.
        """
        numbers: dict[str | int, int] = {}
        rows = np.array(
            [[numbers.setdefault(text, len(numbers)) for text in texts] for texts in inputs]
        )
        if self._tokens is None:
            most_tokens = max_doc_tokens(self._limits.max_length * self._chunks)
            ids = self._tokenizer.encode([str(text) for text in numbers], most_tokens).ids
        else:
            ids = self._tokens[[int(text) for text in numbers]]
        offsets = ids.offsets.to_numpy().astype(np.int64)
        lengths = np.diff(offsets)[rows].T
        template = replace(
            bert_template(self._tokenizer.special, len(lengths)), doc_parts=self._chunks
        )
        kept = kept_lengths(template, self._limits, list(lengths))
        tokens = np.concatenate(
            [ids.values.to_numpy(), np.zeros(1, ids.values.type.to_pandas_dtype())]
        )
        return PackedInputs(tokens, offsets[rows], np.stack(kept, axis=1), template)

    def batches(self, inputs: Sequence[Texts]) -> Iterator[Batch]:
        """Yields the inputs in batches of similar lengths, which need little padding."""
        chunks = self._chunks
        packed = cut_docs(self.pack(inputs))
        lengths = packed.lengths.reshape(-1, chunks).max(axis=1)
        for rows in cut_batches(lengths, self._token_budget // chunks, self._limits.max_length):
            rows_of_chunks = (rows[:, None] * chunks + np.arange(chunks)).ravel()
            padded = lay_out(
                packed, rows_of_chunks, padded_width(lengths[rows], self._limits.max_length)
            )
            mask = np.arange(padded.token_ids.shape[1]) < padded.lengths[:, None]
            names = ("input_ids", "token_type_ids", "attention_mask")
            values = (padded.token_ids, padded.token_types, mask)
            yield Batch(
                rows,
                {
                    name: torch.from_numpy(array).long()
                    for name, array in zip(names, values, strict=True)
                },
            )
