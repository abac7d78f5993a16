"""The interface of a tokenizer, and the column of tokens that it makes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.commit import schemas
from beamrank.commit.schemas import Vocabulary
from beamrank.errors import DataError

Ids: TypeAlias = NDArray[Any]
Lengths: TypeAlias = NDArray[np.int64]

# The library takes 50 to 160 bytes for each character of a call.
_SLICE_TEXTS, _SLICE_CHARS = 2048, 1 << 21
# English has 4 to 5 characters a token. At first this many are read for each token of a long text.
_CHARS_PER_TOKEN = 8


@dataclass(frozen=True)
class TokenColumn:
    """The tokens of a batch of texts.

    Attributes:
        ids: list<uint16>[n], or list<uint32> for a larger vocabulary, without special tokens.
        truncated: bool[n], whether a text had more.
    """

    ids: pa.ListArray
    truncated: NDArray[np.bool_]


class Tokenizer(Vocabulary, Protocol):
    """Texts to token ids. No text, whatever it spells, gives a special token. Threads can share
    one.
    """

    def encode(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        """The first `max_tokens` ids of each text, without special tokens.

        Raises:
            DataError: a text holds half of a surrogate pair, which no encoding of Unicode can
                carry.
        """

    def encode_queries(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        """`encode` for queries, which may stand beside other text of a prompt than docs."""


@runtime_checkable
class InstructedTokenizer(Tokenizer, Protocol):
    """The tokenizer of a model whose prompt can hold an instruction."""

    def encode_instructions(self, texts: Sequence[str]) -> TokenColumn:
        """`encode` for whole instructions."""


def gather_rows(ids: Ids, starts: Lengths, lengths: Lengths) -> Ids:
    """The slices `ids[start : start + length]`, one after the other."""
    ends = np.cumsum(lengths)
    count = int(ends[-1]) if len(ends) else 0
    return np.take(ids, np.repeat(starts - (ends - lengths), lengths) + np.arange(count))


def encode_in_slices(
    texts: Sequence[str],
    max_tokens: int,
    vocab_size: int,
    encode: Callable[[Sequence[str]], tuple[Ids, Lengths]],
    *,
    splits_at_spaces: bool,
) -> TokenColumn:
    """Encodes texts a few thousand at a time and keeps the first `max_tokens` ids of each.

    `encode` gives the ids of some texts, one after the other, and how many each text has. Where
    `splits_at_spaces`, the ids of a word depend on no word after it, so that the beginning of a
    long text is enough.
    """
    token_type = schemas.token_type(vocab_size)
    ids: list[Ids] = [np.empty(0, token_type.to_pandas_dtype())]
    counts: list[Lengths] = [np.zeros(1, np.int64)]
    truncated: list[NDArray[np.bool_]] = [np.empty(0, np.bool_)]
    limit = max_tokens * _CHARS_PER_TOKEN
    heads = [_head(text, limit) for text in texts] if splits_at_spaces else texts
    for part in _slices(heads):
        slice_ids, slice_counts = encode(heads[part])
        short = [
            len(head) < len(text) and count <= max_tokens
            for text, head, count in zip(texts[part], heads[part], slice_counts, strict=True)
        ]
        if any(short):
            parts = zip(texts[part], heads[part], short, strict=True)
            slice_ids, slice_counts = encode(
                [text if is_short else head for text, head, is_short in parts]
            )
        kept = np.minimum(slice_counts, max_tokens)
        if kept.sum() < len(slice_ids):
            slice_ids = gather_rows(slice_ids, np.cumsum(slice_counts) - slice_counts, kept)
        ids.append(slice_ids)
        counts.append(kept)
        truncated.append(slice_counts > max_tokens)
    offsets = np.cumsum(np.concatenate(counts))
    return TokenColumn(
        ids=pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(np.concatenate(ids), token_type)
        ),
        truncated=np.concatenate(truncated),
    )


def _head(text: str, limit: int) -> str:
    """About the first `limit` characters, up to a space that follows a letter or digit."""
    end = len(text)
    if end > limit:
        end = text.rfind(" ", 0, limit)
        while end > 0 and not text[end - 1].isalnum():
            end = text.rfind(" ", 0, end)
    return text[:end] if end > 0 else text


def _slices(texts: Sequence[str]) -> Iterator[slice]:
    """Slices of some texts, and of some characters if more than one text has them."""
    start = chars = 0
    for place, text in enumerate(texts):
        if place > start and (place - start == _SLICE_TEXTS or chars + len(text) > _SLICE_CHARS):
            yield slice(start, place)
            start, chars = place, 0
        chars += len(text)
    if texts:
        yield slice(start, len(texts))


def check_unicode(texts: Sequence[str]) -> None:
    """Raises DataError where a text holds half of a surrogate pair, which UTF-8 cannot encode."""
    for place, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"text {place} of this batch holds U+{ord(text[error.start]):04X}, half of a "
                f"surrogate pair, at character {error.start}: it is not Unicode text and has no "
                "tokens. Repair the input; a JSON escape that was cut in two is a common cause"
            ) from error
