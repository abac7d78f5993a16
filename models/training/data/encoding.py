"""Training inputs, laid out exactly as for scoring (docs/reference/model-inputs.md)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from beamrank.ranking.input_layout import InputLimits, Lengths, PackedInputs, kept_lengths, lay_out, max_doc_tokens
from models.architectures.bert import bert_template
from models.architectures.chunked_bert import cut_docs
from models.scoring.batching import Rows, cut_batches, padded_width
from models.scoring.packing import Tokens
from models.tokenizers.bert import BertTokenizer
from models.training.data.examples import TokenIds
from models.training.data.tokens import token_dtype

Texts = tuple[str | TokenIds, ...]
"""A query and a doc, or a query, doc i and doc j: texts, or their token ids."""


class Batch(NamedTuple):
    """Inputs that go through the model together: their rows, and the tensors that transformers' BERT takes.

    If a passage is read in chunks, the tensors have a row for each chunk, those of a passage one after the other.
    """

    rows: Rows
    tensors: dict[str, Tensor]


class InputEncoder:
    """Lays out [CLS] query [SEP] doc [SEP], or [CLS] query [SEP] doc_i [SEP] doc_j [SEP], with token types 0, 1, 2."""

    def __init__(self, tokenizer: BertTokenizer, limits: InputLimits, token_budget: int, chunks: int = 1) -> None:
        """Takes the model's tokenizer and the layout.

        Args:
            tokenizer: the model's tokenizer.
            limits: the truncation rule.
            token_budget: the maximum of tokens in a batch, padding included.
            chunks: how many inputs monoBERT reads a doc as.
        """
        self._tokenizer = tokenizer
        self._limits = limits
        self._token_budget = token_budget
        self._chunks = chunks
        self._special = tokenizer.special

    def pack(self, inputs: Sequence[Texts]) -> PackedInputs:
        """Tokenizes each distinct text once, unless it is token ids already, and truncates each input.

        Raises:
            ConfigError: the rule leaves no room for the docs.
        """
        numbers: dict[str | TokenIds, int] = {}
        rows = np.array([[numbers.setdefault(text, len(numbers)) for text in texts] for texts in inputs])
        tokens, offsets = self._tokens(list(numbers))
        lengths = np.diff(offsets)[rows].T
        template = replace(bert_template(self._special, len(lengths)), doc_parts=self._chunks)
        kept = kept_lengths(template, self._limits, list(lengths))
        return PackedInputs(tokens, offsets[rows], np.stack(kept, axis=1), template)

    def _tokens(self, texts: list[Any]) -> tuple[Tokens, Lengths]:
        """The token ids of texts, and a zero; int64[texts + 1], where each text begins."""
        if texts and isinstance(texts[0], bytes):
            dtype = token_dtype(self._tokenizer)
            ends = np.cumsum([0, *map(len, texts)]) // dtype.itemsize
            return np.frombuffer(b"".join([*texts, bytes(dtype.itemsize)]), dtype), ends
        ids = self._tokenizer.encode(texts, max_doc_tokens(self._limits.max_length * self._chunks)).ids
        tokens = np.concatenate([ids.values.to_numpy(), np.zeros(1, ids.values.type.to_pandas_dtype())])
        return tokens, ids.offsets.to_numpy().astype(np.int64)

    def batches(self, inputs: Sequence[Texts]) -> Iterator[Batch]:
        """Yields the inputs in batches of similar lengths, which need little padding."""
        chunks = self._chunks
        packed = cut_docs(self.pack(inputs))
        lengths = packed.lengths.reshape(-1, chunks).max(axis=1)
        for rows in cut_batches(lengths, self._token_budget // chunks, self._limits.max_length):
            rows_of_chunks = (rows[:, None] * chunks + np.arange(chunks)).ravel()
            padded = lay_out(packed, rows_of_chunks, padded_width(lengths[rows], self._limits.max_length))
            mask = np.arange(padded.token_ids.shape[1]) < padded.lengths[:, None]
            yield Batch(
                rows,
                {
                    "input_ids": torch.from_numpy(padded.token_ids).long(),
                    "token_type_ids": torch.from_numpy(padded.token_types).long(),
                    "attention_mask": torch.from_numpy(mask).long(),
                },
            )


def pair_inputs(query: Any, docs: Sequence[Any], pairs: Sequence[tuple[int, int]]) -> list[Texts]:
    """The inputs of duoBERT: (query, doc i, doc j) for each pair i, j."""
    return [(query, docs[i], docs[j]) for i, j in pairs]


def both_orders(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """All pairs, then all pairs reversed."""
    return list(chain(pairs, ((j, i) for i, j in pairs)))
