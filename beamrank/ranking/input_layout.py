"""The input of a BERT model: truncation rules and layout, on token ids alone (docs/reference/model-inputs.md).

An input is `[CLS] query [SEP] doc [SEP]` for monoBERT and `[CLS] query [SEP] doc_i [SEP] doc_j [SEP]` for duoBERT; each
segment, its [SEP] included, has its own token type: 0, 1, 2. Lengths in this module are wordpieces without special
tokens, save where the name says otherwise. The rules, at the papers' max_query_length 64 and max_length 512:

* `original`, what the 2019 code does to the token: at most 62 wordpieces of the query. A doc of monoBERT keeps
  max_length - (query + 2) - 2 (the code takes two off for special tokens and adds one, so that an input has at most 511
  tokens); each doc of duoBERT keeps (max_length - (query + 2)) // 2 - 2. Every text keeps its head, on its own.
* `paper`: at most 62 wordpieces of the query and 512 tokens in all for monoBERT, 62/223/223 for duoBERT: whatever the
  query's length, half of what the longest query and two [SEP] leave, (max_length - max_query_length - 2) // 2.
* `hf`, monoBERT only: `longest_first` of the Hugging Face fast tokenizers at max_length, whatever max_query_length.
  Texts are stored cut at 512 tokens, so where both texts are longer than that, they count as equally long.

With other lengths the same formulas hold.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from beamrank.errors import ConfigError
from beamrank.records import SpecialTokens

Truncation = Literal["original", "paper", "hf"]

Lengths = npt.NDArray[np.int64]

QUERY_SPECIAL_TOKENS = 2  # [CLS] and the query's [SEP], which max_query_length includes


class PaddedBatch(NamedTuple):
    """Inputs side by side, padded to one width: int32[b, width] ids and token types, int64[b] lengths in tokens."""

    token_ids: npt.NDArray[np.int32]
    token_types: npt.NDArray[np.int32]
    lengths: Lengths


@dataclass(frozen=True)
class PackedInputs:
    """The inputs of one shard, as references into one flat store of token ids: texts stand once, pairs take no room.

    Attributes:
        tokens: uint16[t] or uint32[t], never empty; every text of the shard without special tokens.
        starts: int64[n, s], where each input's segments begin in `tokens`; s is 2 for monoBERT, 3 for duoBERT.
        kept: int64[n, s], how many wordpieces each segment keeps.
        special: the special tokens that frame the segments.
    """

    tokens: npt.NDArray[np.unsignedinteger]
    starts: Lengths
    kept: Lengths
    special: SpecialTokens

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Lengths:
        """int64[n], tokens of each input, special tokens included."""
        segments = self.kept.shape[1]
        return np.asarray(self.kept.sum(axis=1) + segments + 1, dtype=np.int64)

    def in_chunks(self, count: int) -> "PackedInputs":
        """Each input as `count` inputs in a row, its last segment shared out evenly among them."""
        if count == 1:
            return self
        borders = self.kept[:, -1:] * np.arange(count + 1) // count
        starts, kept = np.repeat(self.starts, count, axis=0), np.repeat(self.kept, count, axis=0)
        starts[:, -1] += borders[:, :-1].ravel()
        kept[:, -1] = np.diff(borders).ravel()
        return PackedInputs(self.tokens, starts, kept, self.special)


def mono_kept(
    rule: Truncation,
    query_lengths: Lengths,
    doc_lengths: Lengths,
    max_query_length: int,
    max_length: int,
    chunks: int = 1,
) -> tuple[Lengths, Lengths]:
    """How many wordpieces of each query and doc a pair keeps.

    Args:
        rule: the truncation rule.
        query_lengths: int64[n].
        doc_lengths: int64[n].
        max_query_length: the query's limit in tokens, [CLS] and [SEP] included.
        max_length: the input's limit in tokens, special tokens included.
        chunks: how many inputs the doc is shared out among; the rule holds for each of them.

    Returns:
        int64[n] for the queries, int64[n] for the docs, all their chunks together.
    """
    longest_chunks = -(-doc_lengths // chunks)
    if rule == "hf":
        query, chunk = _longest_first(query_lengths, longest_chunks, max_length - 3)
    else:
        query = _query_kept(query_lengths, max_query_length)
        unused = 2 if rule == "original" else 1
        chunk = np.minimum(longest_chunks, max_length - (query + QUERY_SPECIAL_TOKENS) - unused)
    return query, np.minimum(doc_lengths, chunk * chunks)


def duo_kept(
    rule: Truncation,
    query_lengths: Lengths,
    first_lengths: Lengths,
    second_lengths: Lengths,
    max_query_length: int,
    max_length: int,
) -> tuple[Lengths, Lengths, Lengths]:
    """How many wordpieces of each query, doc_i and doc_j a triple keeps. Arguments as for `mono_kept`.

    Raises:
        ConfigError: the rule is for pairs only, or the lengths leave nothing of the docs.
    """
    if rule == "hf":
        raise ConfigError("truncation `hf` is defined for pairs only, and duoBERT's input has three segments")
    query = _query_kept(query_lengths, max_query_length)
    if rule == "original":
        doc: Lengths = (max_length - (query + QUERY_SPECIAL_TOKENS)) // 2 - 2
        least = (max_length - max_query_length) // 2 - 2
    else:
        least = (max_length - max_query_length - 2) // 2
        doc = np.full_like(query, least)
    if least < 1:
        raise ConfigError(
            f"truncation `{rule}` with max_length {max_length} and max_query_length {max_query_length} leaves "
            "duoBERT's docs no wordpiece beside a long query: raise max_length or lower max_query_length"
        )
    return query, np.minimum(first_lengths, doc), np.minimum(second_lengths, doc)


def lay_out(inputs: PackedInputs, rows: npt.NDArray[np.intp], width: int) -> PaddedBatch:
    """Writes some inputs out as a batch.

    Args:
        inputs: the shard's inputs.
        rows: intp[b], which of them.
        width: tokens of a row; at least the longest of these inputs.
    """
    position = np.arange(width)
    kept = inputs.kept[rows]
    separators = np.cumsum(kept + 1, axis=1)  # a segment's [SEP] stands here; the next segment begins after it
    token_types = np.zeros((len(rows), width), dtype=np.int32)
    for separator in separators.T[:-1]:
        token_types += position > separator[:, None]
    source = inputs.starts[rows] - (separators - kept)
    places = np.take_along_axis(source, token_types.astype(np.intp), axis=1) + position
    token_ids = np.take(inputs.tokens, places, mode="clip").astype(np.int32)
    padding = position > separators[:, -1:]
    token_ids[padding] = inputs.special.pad_id
    token_types[padding] = 0
    token_ids[:, 0] = inputs.special.cls_id
    np.put_along_axis(token_ids, separators, np.int32(inputs.special.sep_id), axis=1)
    return PaddedBatch(token_ids, token_types, separators[:, -1] + 1)


def _query_kept(query_lengths: Lengths, max_query_length: int) -> Lengths:
    return np.minimum(query_lengths, max_query_length - QUERY_SPECIAL_TOKENS)


def _longest_first(query_lengths: Lengths, doc_lengths: Lengths, room: int) -> tuple[Lengths, Lengths]:
    """The shorter text stays whole up to half of the room; the odd token goes to the longer, or to the doc."""
    query, doc = np.broadcast_arrays(query_lengths, doc_lengths)
    shorter = np.minimum(query, doc)
    of_shorter = np.minimum(shorter, room // 2)
    of_longer = room - of_shorter
    fits = query + doc <= room
    query_is_longer = query > doc
    kept_query = np.where(query_is_longer, of_longer, of_shorter)
    kept_doc = np.where(query_is_longer, of_shorter, of_longer)
    return np.where(fits, query, kept_query), np.where(fits, doc, kept_doc)
