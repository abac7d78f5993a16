"""What a tokenizer offers, and the column of tokens that it makes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.errors import DataError
from beamrank.records import SpecialTokens
from beamrank.tables import schemas

Ids: TypeAlias = NDArray[Any]
Lengths: TypeAlias = NDArray[np.int64]

_SLICE_TEXTS = 2048


@dataclass(frozen=True)
class TokenColumn:
    """The tokens of a batch of texts.

    Attributes:
        ids: list<uint16>[n], or list<uint32> for a larger vocabulary, without special tokens.
        truncated: bool[n], whether a text had more.
    """

    ids: pa.ListArray
    truncated: NDArray[np.bool_]


class Tokenizer(Protocol):
    """Texts to token ids. No text, whatever it spells, gives a special token. Threads can share one."""

    @property
    def vocab_size(self) -> int:
        """One more than the largest id of an input."""

    @property
    def special(self) -> SpecialTokens:
        """The special tokens that go around texts."""

    @property
    def digest(self) -> str:
        """SHA-256 of the vocabulary and of every setting that decides an id."""

    def encode(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        """The first `max_tokens` ids of each text, without special tokens.

        Raises:
            DataError: a text holds half of a surrogate pair, which no encoding of Unicode can carry.
        """

    def encode_queries(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        """`encode` for queries, which may stand beside other text of a prompt than docs."""


def gather_rows(ids: Ids, starts: Lengths, lengths: Lengths) -> Ids:
    """The slices `ids[start : start + length]`, one after the other."""
    ends = np.cumsum(lengths)
    count = int(ends[-1]) if len(ends) else 0
    return np.take(ids, np.repeat(starts - (ends - lengths), lengths) + np.arange(count))


def encode_in_slices(
    texts: Sequence[str], max_tokens: int, vocab_size: int, encode: Callable[[Sequence[str]], tuple[Ids, Lengths]]
) -> TokenColumn:
    """Encodes texts a few thousand at a time and cuts their ids.

    Args:
        texts: the texts.
        max_tokens: how many ids of a text are kept.
        vocab_size: one more than the largest id.
        encode: at least the first `max_tokens` ids of each text, and one more where there are more: all one after the
            other, and how many each text has.
    """
    token_type = schemas.token_type(vocab_size)
    ids: list[Ids] = [np.empty(0, token_type.to_pandas_dtype())]
    counts: list[Lengths] = [np.zeros(1, np.int64)]
    truncated: list[NDArray[np.bool_]] = [np.empty(0, np.bool_)]
    for some in _slices(texts):
        slice_ids, slice_counts = encode(some)
        kept = np.minimum(slice_counts, max_tokens)
        if kept.sum() < len(slice_ids):
            slice_ids = gather_rows(slice_ids, np.cumsum(slice_counts) - slice_counts, kept)
        ids.append(slice_ids)
        counts.append(kept)
        truncated.append(slice_counts > max_tokens)
    offsets = np.cumsum(np.concatenate(counts))
    return TokenColumn(
        ids=pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(np.concatenate(ids), token_type)),
        truncated=np.concatenate(truncated),
    )


def _slices(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[start : start + _SLICE_TEXTS] for start in range(0, len(texts), _SLICE_TEXTS))


def check_unicode(texts: Sequence[str]) -> None:
    """Raises DataError where a text holds half of a surrogate pair, which UTF-8 cannot encode."""
    for place, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"text {place} of this batch holds U+{ord(text[error.start]):04X}, half of a surrogate pair, at "
                f"character {error.start}: it is not Unicode text and has no tokens. Repair the input; a JSON escape "
                "that was cut in two is a common cause"
            ) from error
