"""Any tokenizer of the `tokenizers` library: Unigram, byte-level BPE, and WordPiece other than plain BERT's."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from beamrank.join import schemas
from models.tokenizers.definition import Definition
from models.tokenizers.protocol import Ids, Lengths, TokenColumn, check_unicode, encode_in_slices


class LibraryTokenizer:
    """A tokenizer that the library computes, on all cores. Threads share it.

    What a prompt joins to a text is tokenized with it, and counts among its ids.

    Attributes:
        vocab_size: one more than the largest id of an input.
        special: the special tokens around the texts of an input.
        digest: SHA-256 of the vocabulary and of every setting that decides an id.
        splits_at_spaces: whether the beginning of a long text is enough for its first ids.
    """

    def __init__(self, definition: Definition) -> None:
        self.vocab_size = definition.vocab_size
        self.special = definition.special
        self.digest = definition.digest
        self._library = definition.library
        self._prompt = definition.prompt
        self.splits_at_spaces = definition.splits_at_spaces
        self._dtype = np.dtype(schemas.token_type(self.vocab_size).to_pandas_dtype())

    def encode(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        """The first `max_tokens` ids of each text, without special tokens.

        Raises:
            DataError: a text holds half of a surrogate pair, which no encoding of Unicode can carry.
        """
        return self._encode(texts, max_tokens, self._prompt.doc)

    def encode_queries(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        """`encode` for queries."""
        return self._encode(texts, max_tokens, self._prompt.query)

    def _encode(self, texts: Sequence[str], max_tokens: int, joined: tuple[str, str]) -> TokenColumn:
        before, after = joined
        whole = [f"{before}{text}{after}" for text in texts] if before or after else texts
        return encode_in_slices(
            whole, max_tokens, self.vocab_size, self._compute, splits_at_spaces=self.splits_at_spaces
        )

    def _compute(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        try:
            encodings = self._library.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            check_unicode(texts)
            raise
        found = [encoding.ids for encoding in encodings]
        return np.fromiter(chain.from_iterable(found), self._dtype), np.fromiter(map(len, found), np.int64, len(found))
