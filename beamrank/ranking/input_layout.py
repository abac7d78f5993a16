"""The input of a model: truncation rules and layout, on token ids (docs/reference/model-inputs.md).

An input is, for BERT, `[CLS] query [SEP] doc [SEP]` (mono) or `[CLS] query [SEP] doc_i [SEP] doc_j
[SEP]` (duo). The `InputTemplate` of a model's architecture holds the special tokens and the token
types. Lengths in this module are tokens of the texts, without special tokens, unless noted
otherwise. The rules, for BERT and the papers' max_query_length 64 and max_length 512:

* `original`, identical to the 2019 code: at most 62 wordpieces of the query. A doc of monoBERT
  keeps max_length - (query + 2) - 2 (the code subtracts two for special tokens and adds one, so an
  input has at most 511 tokens); each doc of duoBERT keeps (max_length - (query + 2)) // 2 - 2.
  Every text keeps its head, on its own.
* `paper`: at most 62 wordpieces of the query and 512 tokens in all for monoBERT, 62/223/223 for
  duoBERT: for a query of any length, half of what the longest query and two [SEP] leave,
  (max_length - max_query_length - 2) // 2.
* `hf`, mono only: `longest_first` of the Hugging Face fast tokenizers at max_length;
  max_query_length has no effect. Texts are stored cut at 512 tokens or a longer max_length, so two
  texts that are both longer count as equally long.

The same formulas hold for other lengths and other templates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from beamrank.errors import ConfigError

Truncation = Literal["original", "paper", "hf"]
SegmentPooling = Literal["max", "first", "mean"]

Lengths = npt.NDArray[np.int64]

# The texts of an input, by the kind of model, and how many they are.
INPUT_TEXTS: dict[Literal["mono", "duo"], tuple[str, ...]] = {
    "mono": ("query", "doc"),
    "duo": ("query", "doc_i", "doc_j"),
}
TEXT_COUNTS: dict[str, int] = {kind: len(names) for kind, names in INPUT_TEXTS.items()}
# At least so many tokens of a text are stored: `longest_first` compares the lengths of texts that
# are cut later.
MAX_DOC_TOKENS = 512
# So many of the fixed tokens around a query count in max_query_length: all special tokens, and not
# a prompt's text.
_COUNTED_TOKENS = 3


class InputLimits(NamedTuple):
    """How long an input may be, in tokens, special tokens included; max_query_length includes those
    of the query.
    """

    truncation: Truncation
    max_query_length: int
    max_length: int


@dataclass(frozen=True)
class InputTemplate:
    """The special tokens and token types around the texts of an input.

    Attributes:
        start: the token ids before the first text.
        ends: the token ids after each text.
        token_types: the token type of each text and of the tokens after it; `start` has the first
            text's.
        pad_id: the token id that fills a batch.
        leads: how many of the tokens between two texts have the type of the second one, for each
            two; () for none.
        doc_parts: how many parts the model itself cuts a doc into. `max_length` then limits an
            input of one part.
    """

    start: tuple[int, ...]
    ends: tuple[tuple[int, ...], ...]
    token_types: tuple[int, ...]
    pad_id: int
    leads: tuple[int, ...] = ()
    doc_parts: int = 1

    @property
    def query_special_tokens(self) -> int:
        """The number of special tokens of the query."""
        return len(self.start) + len(self.ends[0])

    @property
    def special_tokens(self) -> int:
        """The number of special tokens of an input."""
        return len(self.start) + sum(map(len, self.ends))


class PaddedBatch(NamedTuple):
    """Inputs side by side, padded to one width: int32[b, width] ids and token types, int64[b]
    lengths in tokens. The first input has `prefix` ids before its last text, which leave it one.
    """

    token_ids: npt.NDArray[np.int32]
    token_types: npt.NDArray[np.int32]
    lengths: Lengths
    prefix: int = 0


@dataclass(frozen=True)
class PackedInputs:
    """The inputs of one shard, as references into one flat store of token ids, which holds each
    text once.

    Attributes:
        tokens: uint16[t] or uint32[t], never empty; every text of the shard without special tokens.
        starts: int64[n, s], where each input's segments begin in `tokens`; s is 2 for monoBERT, 3
            for duoBERT. The instruction of a topic is one more, the first.
        kept: int64[n, s], how many wordpieces each segment keeps.
        template: the special tokens around the segments.
    """

    tokens: npt.NDArray[np.unsignedinteger]
    starts: Lengths
    kept: Lengths
    template: InputTemplate

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Lengths) -> "PackedInputs":
        """Some of the inputs."""
        return PackedInputs(self.tokens, self.starts[rows], self.kept[rows], self.template)

    @property
    def lengths(self) -> Lengths:
        """int64[n], tokens of each input, special tokens included."""
        return np.asarray(self.kept.sum(axis=1) + self.template.special_tokens, dtype=np.int64)


def max_doc_tokens(read_tokens: int) -> int:
    """The most tokens that are stored of a text, for a model that reads at most `read_tokens` of
    it.
    """
    return max(MAX_DOC_TOKENS, read_tokens)


def kept_lengths(
    template: InputTemplate, limits: InputLimits, lengths: Sequence[Lengths]
) -> tuple[Lengths, ...]:
    """The number of tokens of each text that an input keeps: `mono_kept` for two texts, `duo_kept`
    for three.
    """
    query, first, *second = lengths
    if second:
        return duo_kept(template, limits, query, first, second[0])
    return mono_kept(template, limits, query, first)


def mono_kept(
    template: InputTemplate,
    limits: InputLimits,
    query_lengths: Lengths,
    doc_lengths: Lengths,
    instructions: Lengths | int = 0,
) -> tuple[Lengths, Lengths]:
    """The number of tokens of each query and doc that a pair keeps: int64[n] each, from int64[n]
    each.

    `instructions` are the tokens of the topics' instructions, which are kept whole. The rule of the
    limits holds for each part of a doc. ConfigError: the prompt and the longest query leave nothing
    of the docs.
    """
    longest_parts = -(-doc_lengths // template.doc_parts)
    room = limits.max_length - template.special_tokens - instructions
    least, around = (
        int(np.min(room, initial=limits.max_length)),
        template.special_tokens - len(template.ends[-1]),
    )
    if around > _COUNTED_TOKENS and least < limits.max_query_length:
        raise ConfigError(
            f"max_length {limits.max_length}, max_query_length {limits.max_query_length} leave a "
            f"doc no token beside a long query and the {limits.max_length - least} tokens of the "
            "model's prompt: raise max_length or lower max_query_length"
        )
    if limits.truncation == "hf":
        # Longer texts count as equally long, however much other stages have stored of them.
        most = max_doc_tokens(limits.max_length)
        lengths = np.minimum(query_lengths, most), np.minimum(longest_parts, most)
        query, part = _longest_first(*lengths, room)
    else:
        query = _query_kept(around, limits, query_lengths)
        unused = 1 if limits.truncation == "original" else 0
        part = np.minimum(longest_parts, room - query - unused)
    return query, np.minimum(doc_lengths, part * template.doc_parts)


def duo_kept(
    template: InputTemplate,
    limits: InputLimits,
    query_lengths: Lengths,
    firsts: Lengths,
    seconds: Lengths,
) -> tuple[Lengths, Lengths, Lengths]:
    """The number of tokens of each query, doc_i and doc_j that a triple keeps. Arguments as for
    `mono_kept`.

    Raises:
        ConfigError: the rule is for pairs only, or the lengths leave nothing of the docs.
    """
    rule, max_query_length, max_length = limits
    if rule == "hf":
        raise ConfigError(
            "truncation `hf` is defined for pairs only, and duoBERT's input has three segments"
        )
    around = template.query_special_tokens
    query, longest_query = (
        _query_kept(around, limits, query_lengths),
        _longest_query(around, limits),
    )
    ends = [len(end) for end in template.ends[1:]]
    if rule == "original":
        doc: Lengths = (max_length - (query + around)) // 2 - max(ends) - 1
        least = (max_length - longest_query) // 2 - max(ends) - 1
    else:
        least = (max_length - longest_query - sum(ends)) // 2
        doc = np.full_like(query, least)
    if least < 1:
        raise ConfigError(
            f"truncation `{rule}` with max_length {max_length} and max_query_length "
            f"{max_query_length} leaves duoBERT's docs no wordpiece beside a long query: raise "
            "max_length or lower max_query_length"
        )
    return query, np.minimum(firsts, doc), np.minimum(seconds, doc)


class SegmentRule(NamedTuple):
    """Windows of `length_tokens`, one begun every `stride_tokens`, at most `limit` of a doc;
    without special tokens.
    """

    length_tokens: int
    stride_tokens: int
    limit: int


class Segments(NamedTuple):
    """The w segments of some docs, a doc's segments in its order.

    Attributes:
        docs: int64[w], which doc each is of.
        numbers: int64[w], its number within the doc, from 0.
        starts: int64[w], where it begins, in wordpieces.
        lengths: int64[w], in wordpieces.
    """

    docs: Lengths
    numbers: Lengths
    starts: Lengths
    lengths: Lengths


def cut_segments(doc_lengths: Lengths, rule: SegmentRule | None) -> Segments:
    """Cuts docs, int64[n] wordpieces long, up to their ends or the rule's limit; without a rule
    they stay whole.

    The last window may be short, and an empty doc has one.
    """
    if rule is None:
        nothing = np.zeros_like(doc_lengths)
        return Segments(np.arange(len(doc_lengths)), nothing, nothing, doc_lengths)
    beyond = np.maximum(doc_lengths - rule.length_tokens, 0)
    counts = np.minimum(1 + -(-beyond // rule.stride_tokens), rule.limit)
    docs = np.repeat(np.arange(len(doc_lengths)), counts)
    numbers = np.arange(len(docs)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = numbers * rule.stride_tokens
    return Segments(
        docs, numbers, starts, np.minimum(doc_lengths[docs] - starts, rule.length_tokens)
    )


def lay_out(inputs: PackedInputs, rows: npt.NDArray[np.intp], width: int) -> PaddedBatch:
    """Writes some rows of the inputs, intp[b], out as a batch of `width` tokens, at least the
    longest of them.
    """
    template, position, kept = inputs.template, np.arange(width), inputs.kept[rows]
    end_sizes = np.array([len(end) for end in template.ends])
    afters = len(template.start) + np.cumsum(
        kept + end_sizes, axis=1
    )  # where a segment's end tokens are over
    ends = afters - end_sizes
    segment = np.zeros((len(rows), width), dtype=np.intp)
    for after in afters.T[:-1]:
        segment += position >= after[:, None]
    places = np.take_along_axis(inputs.starts[rows] - (ends - kept), segment, axis=1) + position
    token_ids = np.take(inputs.tokens, places, mode="clip").astype(np.int32)
    for after, lead in zip(afters.T, template.leads, strict=False):
        segment += (position >= after[:, None] - lead) & (position < after[:, None])
    token_types = np.array(template.token_types, dtype=np.int32)[segment]
    padding = position >= afters[:, -1:]
    token_ids[padding] = template.pad_id
    token_types[padding] = 0
    token_ids[:, : len(template.start)] = template.start
    for end, end_ids in zip(ends.T, template.ends, strict=True):
        for offset, token_id in enumerate(end_ids):
            np.put_along_axis(token_ids, end[:, None] + offset, np.int32(token_id), axis=1)
    prefix = int(afters[:1, -2].sum()) - (not template.ends[-1])
    return PaddedBatch(token_ids, token_types, afters[:, -1], prefix)


def cut_docs(inputs: PackedInputs) -> PackedInputs:
    """Each input as `doc_parts` of its template in a row, its last segment shared out evenly among
    them.
    """
    count = inputs.template.doc_parts
    borders = inputs.kept[:, -1:] * np.arange(count + 1) // count
    starts, kept = np.repeat(inputs.starts, count, axis=0), np.repeat(inputs.kept, count, axis=0)
    starts[:, -1] += borders[:, :-1].ravel()
    kept[:, -1] = np.diff(borders).ravel()
    return PackedInputs(inputs.tokens, starts, kept, inputs.template)


def _query_kept(around: int, limits: InputLimits, query_lengths: Lengths) -> Lengths:
    return np.minimum(query_lengths, _longest_query(around, limits) - around)


def _longest_query(around: int, limits: InputLimits) -> int:
    """The tokens of the longest query, and so many fixed ones around it."""
    return limits.max_query_length + max(0, around - _COUNTED_TOKENS)


def _longest_first(
    query_lengths: Lengths, doc_lengths: Lengths, room: Lengths | int
) -> tuple[Lengths, Lengths]:
    """The shorter text stays whole up to half of the room; the odd token goes to the longer, or to
    the doc.
    """
    query, doc = np.broadcast_arrays(query_lengths, doc_lengths)
    shorter = np.minimum(query, doc)
    of_shorter = np.minimum(shorter, room // 2)
    of_longer = room - of_shorter
    fits = query + doc <= room
    query_is_longer = query > doc
    kept_query = np.where(query_is_longer, of_longer, of_shorter)
    kept_doc = np.where(query_is_longer, of_shorter, of_longer)
    return np.where(fits, query, kept_query), np.where(fits, doc, kept_doc)
