"""Training examples: groups of a query with some docs, in a stream that can be resumed, and the model inputs of these.

A text is the number of its row in a `TokenTable`, or a string.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import TypeVar

from beamrank.ranking.input_layout import InputLimits, PackedInputs, cut_docs, kept_lengths, lay_out, max_doc_tokens
from models.architectures.families import bert_template
from models.scoring.packing import Rows, cut_batches, padded_width
from models.tokenizers.bert import BertTokenizer
from models.training.data.texts import TokenTable

Text = TypeVar("Text", str, int, default=str)
Texts: TypeAlias = tuple[str | int, ...]
"""A query and a doc, or a query, doc i and doc j."""
Position: TypeAlias = dict[str, int]
"""A position in a stream, as JSON."""


@dataclass(frozen=True)
class Group(Generic[Text]):
    """A query with docs that are compared with each other.

    Attributes:
        query: its text.
        docs: those of the docs; a relevant one first if there is one.
        relevant: whether each doc is relevant; None if that is unknown.
        teacher_scores: a teacher's score of each doc, if there is a teacher.
    """

    query: Text
    docs: tuple[Text, ...]
    relevant: tuple[bool, ...] | None
    teacher_scores: tuple[float, ...] | None = None


class Source(Protocol):
    """An endless stream of groups of stored texts, which depends only on the seed.

    Attributes:
        docs_per_group: how many docs each group has.
        groups_per_epoch: how many groups an epoch has; None if that is unknown.
        queries: uint64, the hashes of the queries' texts.
        lines: to report about the data.
    """

    docs_per_group: int
    groups_per_epoch: int | None
    queries: NDArray[np.uint64]
    lines: list[str]

    def stream(self, position: Position) -> Iterator[tuple[Group[int], Position]]:
        """Yields groups from a position on, each with the position after it; an empty position is the beginning."""


def shuffled(count: int, seed: int, position: Position, block: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Yields epoch, place and number: in each epoch every number below `count`, in an order that the seed decides.

    With `block` so many numbers are shuffled among themselves.
    """
    epoch, start, size = position.get("epoch", 0), position.get("index", 0), block or count
    while True:
        for first in range(start - start % size, count, size):
            rng = np.random.default_rng([seed, epoch, first // size])
            order = first + rng.permutation(min(size, count - first))
            for place in range(max(start, first), first + len(order)):
                yield epoch, place, int(order[place - first])
        epoch, start = epoch + 1, 0


class Batch(NamedTuple):
    """Inputs that go through the model together: their rows, and the tensors that transformers' BERT takes.

    If a passage is read in chunks, the tensors have a row for each chunk, those of a passage one after the other.
    """

    rows: Rows
    tensors: dict[str, Tensor]


class InputEncoder:
    """Lays out inputs exactly as for scoring: [CLS] query [SEP] doc [SEP], or with a doc i and a doc j."""

    def __init__(
        self,
        tokenizer: BertTokenizer,
        limits: InputLimits,
        token_budget: int,
        chunks: int = 1,
        tokens: TokenTable | None = None,
    ) -> None:
        """Takes the truncation rule, the most tokens of a batch with padding, and the inputs that a doc is read as."""
        self._tokenizer, self._limits, self._chunks, self._tokens = tokenizer, limits, chunks, tokens
        self._token_budget = token_budget

    def pack(self, inputs: Sequence[Texts]) -> PackedInputs:
        """Finds the token ids of each distinct text once, and truncates each input.

        Raises:
            ConfigError: the rule leaves no room for the docs.
        """
        numbers: dict[str | int, int] = {}
        rows = np.array([[numbers.setdefault(text, len(numbers)) for text in texts] for texts in inputs])
        if self._tokens is None:
            most_tokens = max_doc_tokens(self._limits.max_length * self._chunks)
            ids = self._tokenizer.encode([str(text) for text in numbers], most_tokens).ids
        else:
            ids = self._tokens[[int(text) for text in numbers]]
        offsets = ids.offsets.to_numpy().astype(np.int64)
        lengths = np.diff(offsets)[rows].T
        template = replace(bert_template(self._tokenizer.special, len(lengths)), doc_parts=self._chunks)
        kept = kept_lengths(template, self._limits, list(lengths))
        tokens = np.concatenate([ids.values.to_numpy(), np.zeros(1, ids.values.type.to_pandas_dtype())])
        return PackedInputs(tokens, offsets[rows], np.stack(kept, axis=1), template)

    def batches(self, inputs: Sequence[Texts]) -> Iterator[Batch]:
        """Yields the inputs in batches of similar lengths, which need little padding."""
        chunks = self._chunks
        packed = cut_docs(self.pack(inputs))
        lengths = packed.lengths.reshape(-1, chunks).max(axis=1)
        for rows in cut_batches(lengths, self._token_budget // chunks, self._limits.max_length):
            rows_of_chunks = (rows[:, None] * chunks + np.arange(chunks)).ravel()
            padded = lay_out(packed, rows_of_chunks, padded_width(lengths[rows], self._limits.max_length))
            mask = np.arange(padded.token_ids.shape[1]) < padded.lengths[:, None]
            names = ("input_ids", "token_type_ids", "attention_mask")
            values = (padded.token_ids, padded.token_types, mask)
            yield Batch(rows, {name: torch.from_numpy(each).long() for name, each in zip(names, values, strict=True)})
