"""BERT's tokenizer: texts to Arrow lists of token ids, exactly those that the checkpoints were trained on.

The ids are those of Google's `FullTokenizer` as the `tokenizers` library computes them, with one exception: a special
token in a text, such as `[SEP]`, is plain text, as it is for Google, and gives `[`, `sep`, `]`.

BERT tokenizes each whitespace-separated word by itself, so the ids of a word are computed once and then looked up.
It is 3 to 5 times as fast as the library alone, which matters for a large corpus such as MS MARCO. See
docs/reference/model-inputs.md.
"""

import re
from collections.abc import Sequence
from itertools import chain, compress
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from beamrank.join import schemas
from models.tokenizers.id_table import IdTable
from models.tokenizers.protocol import Ids, Lengths, TokenColumn, check_unicode, encode_in_slices, gather_rows
from models.tokenizers.vocabulary import BertVocabulary, read_vocabulary

# An ASCII word falls apart into runs of letters and digits, and single punctuation characters.
_PIECES = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")
_BREAK = "\n"
# Arrow splits at these two characters; BERT removes them, which joins the words around them.
_REMOVED = str.maketrans("", "", "\v\f")
_CHUNKS_PER_CALL = 512


class BertTokenizer:
    """A WordPiece tokenizer with a memory for words. Threads take turns.

    Attributes:
        vocab_size: one more than the largest id.
        special: the ids of [CLS], [SEP] and [PAD].
        digest: SHA-256 of the vocabulary and of every setting that decides an id.
    """

    def __init__(self, vocabulary: BertVocabulary) -> None:
        self.vocab_size = vocabulary.vocab_size
        self.special = vocabulary.special
        self.digest = vocabulary.digest
        self._lowercase = vocabulary.lowercase
        # It has no special tokens, so that no part of a text becomes one.
        self._reference = Tokenizer(vocabulary.wordpiece())
        self._reference.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=vocabulary.tokenize_chinese_chars,
            strip_accents=vocabulary.strip_accents,
            lowercase=vocabulary.lowercase,
        )
        self._reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._model = self._reference.model
        self._dtype = np.dtype(schemas.token_type(self.vocab_size).to_pandas_dtype())
        self._pieces = IdTable(self._dtype, self._compute_pieces)
        self._chunks = IdTable(self._dtype, self._compute_chunks)
        self._lock = Lock()

    def encode(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        """The first `max_tokens` ids of each text, without special tokens.

        Raises:
            DataError: a text holds half of a surrogate pair, which no encoding of Unicode can carry.
        """
        return encode_in_slices(texts, max_tokens, self.vocab_size, self._encode_whole, splits_at_spaces=True)

    encode_queries = encode

    def _encode_whole(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        cleaned = [text if "\v" not in text and "\f" not in text else text.translate(_REMOVED) for text in texts]
        split = pc.ascii_split_whitespace(_arrow_strings(cleaned))
        words = split.values.dictionary_encode()
        distinct = words.dictionary.to_pylist()
        with self._lock:
            rows = self._chunks.rows_of(distinct, len(distinct))[words.indices.to_numpy()]
            lengths = self._chunks.lengths(rows)
            ids = self._chunks.gather(rows, lengths)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return ids, np.diff(ends[split.offsets.to_numpy()])

    def _compute_chunks(self, chunks: Sequence[str]) -> tuple[Ids, Lengths]:
        """The ids of whitespace-separated words: printable ASCII by its pieces, the others by the library."""
        is_plain = np.array([chunk.isascii() and chunk.isprintable() for chunk in chunks], np.bool_)
        plain_ids, plain_lengths = self._compute_plain(list(compress(chunks, is_plain)))
        other_ids, other_lengths = self._compute_other(list(compress(chunks, ~is_plain)))
        lengths = np.empty(len(chunks), np.int64)
        lengths[is_plain] = plain_lengths
        lengths[~is_plain] = other_lengths
        starts = np.empty(len(chunks), np.int64)
        starts[is_plain] = np.cumsum(plain_lengths) - plain_lengths
        starts[~is_plain] = len(plain_ids) + np.cumsum(other_lengths) - other_lengths
        return gather_rows(np.concatenate([plain_ids, other_ids]), starts, lengths), lengths

    def _compute_plain(self, chunks: Sequence[str]) -> tuple[Ids, Lengths]:
        joined = _BREAK.join([*chunks, ""])
        pieces = _PIECES.findall(joined.lower() if self._lowercase else joined)
        rows = self._pieces.rows_of(pieces, len(pieces))
        lengths = self._pieces.lengths(rows)
        breaks = rows == rows[-1:]
        return self._pieces.gather(rows, lengths), np.diff(np.cumsum(lengths)[breaks], prepend=0)

    def _compute_pieces(self, pieces: Sequence[str]) -> tuple[Ids, Lengths]:
        tokenize = self._model.tokenize
        found = [[] if piece == _BREAK else [token.id for token in tokenize(piece)] for piece in pieces]
        return np.fromiter(chain.from_iterable(found), self._dtype), np.fromiter(map(len, found), np.int64, len(found))

    def _compute_other(self, chunks: Sequence[str]) -> tuple[Ids, Lengths]:
        ids: list[Ids] = [np.empty(0, self._dtype)]
        lengths: list[Lengths] = [np.empty(0, np.int64)]
        for start in range(0, len(chunks), _CHUNKS_PER_CALL):
            some = chunks[start : start + _CHUNKS_PER_CALL]
            encoding = self._reference.encode(some, is_pretokenized=True, add_special_tokens=False)
            ids.append(np.array(encoding.ids, self._dtype))
            lengths.append(np.bincount(np.array(encoding.word_ids, np.int64), minlength=len(some)))
        return np.concatenate(ids), np.concatenate(lengths)


def load_bert(folder: str) -> BertTokenizer:
    """Loads the tokenizer of a Hugging Face folder or fsspec URL, which must be BERT's.

    Raises:
        PreflightError: the folder does not hold a plain BERT WordPiece tokenizer.
    """
    return BertTokenizer(read_vocabulary(folder))


def _arrow_strings(texts: Sequence[str]) -> Any:
    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError:
        check_unicode(texts)
        raise
