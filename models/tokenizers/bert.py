"""BERT's tokenizer: texts to Arrow lists of token ids, exactly those that the checkpoints were
trained on.

The `tokenizers` library computes the ids of Google's `FullTokenizer`, with one exception: a special
token in a text, such as `[SEP]`, is plain text, as it is for Google, and gives `[`, `sep`, `]`.

BERT tokenizes each whitespace-separated word by itself, so the ids of a word are computed once and
then looked up. It is 3 to 5 times as fast as the library, which matters for a large corpus such as
MS MARCO. See docs/reference/model-inputs.md.
"""

import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, compress, islice
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from beamrank.commit import schemas
from beamrank.errors import PreflightError
from beamrank.records import SpecialTokens
from beamrank.storage import files as storage
from beamrank.storage.documents import read_at_most, sha256
from models.tokenizers.base import (
    Ids,
    Lengths,
    TokenColumn,
    check_unicode,
    encode_in_slices,
    gather_rows,
)
from models.tokenizers.files import (
    FAST,
    MOST_BYTES,
    VOCABULARY,
    TokenizerConfig,
    TokenizerFiles,
    is_control,
)

BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
_WANTED = "give a checkpoint with a plain BERT WordPiece tokenizer"
# An ASCII word falls apart into runs of letters and digits, and single punctuation characters.
_PIECES = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")
_BREAK = "\n"
# Arrow splits at these two characters; BERT removes them, which joins the words around them.
_REMOVED = str.maketrans("", "", "\v\f")
_CHUNKS_PER_CALL = 512
_LONGEST_KEPT_CHARS = 40


class IdTable:
    """Token ids by text. Missing texts are computed once, all new texts of a call together.

    A full table keeps, of the first half of its rows, the short ones: frequent words come early and
    are rarely long. So it never holds more than `max_rows` texts of `max_chars` characters in all,
    and one call's new texts. With the defaults and English words a full table takes about 60 MB.
    `compute` gives the ids of new texts one after the other and how many each has.
    """

    def __init__(
        self,
        dtype: np.dtype[Any],
        compute: Callable[[Sequence[str]], tuple[Ids, Lengths]],
        max_rows: int = 1 << 18,
        max_chars: int = 1 << 23,
    ) -> None:
        self._dtype = dtype
        self._compute = compute
        self._max_rows = max_rows
        self._max_chars = max_chars
        self._clear()

    def __len__(self) -> int:
        return len(self._rows)

    def rows_of(self, texts: Iterable[str], count: int) -> npt.NDArray[np.int32]:
        """The row of each of `count` texts. Rows are valid until the next call of this method."""
        if len(self._rows) > self._max_rows or self._chars > self._max_chars:
            self._forget()
        before = len(self._rows)
        try:
            rows = np.fromiter(map(self._rows.__getitem__, texts), np.int32, count=count)
            new = list(islice(reversed(self._rows), len(self._rows) - before))[::-1]
            if new:
                self._append(new, *self._compute(new))
        except BaseException:
            # Rows without ids must not outlive this call.
            self._clear()
            raise
        return rows

    def lengths(self, rows: npt.NDArray[np.int32]) -> Lengths:
        """The number of ids of each of these rows."""
        return self._ends[rows + 1] - self._ends[rows]

    def gather(self, rows: npt.NDArray[np.int32], lengths: Lengths) -> Ids:
        """The ids of these rows, one after the other; `lengths` is what `lengths(rows)` gave."""
        return gather_rows(self._ids, self._ends[rows], lengths)

    def _clear(self) -> None:
        # A missing text gets the next row inside the dictionary's own C code.
        self._rows: defaultdict[str, int] = defaultdict()
        self._rows.default_factory = self._rows.__len__
        self._chars = 0
        self._ids = np.empty(1024, self._dtype)
        self._ends = np.zeros(1024, np.int64)

    def _append(self, new: Sequence[str], ids: Ids, lengths: Lengths) -> None:
        count = len(self._rows)
        first = count - len(new)
        start = int(self._ends[first])
        self._ends = _with_room(self._ends, first + 1, count + 1)
        self._ends[first + 1 : count + 1] = start + np.cumsum(lengths)
        self._ids = _with_room(self._ids, start, start + len(ids))
        self._ids[start : start + len(ids)] = ids
        self._chars += sum(map(len, new))

    def _forget(self) -> None:
        half = list(islice(self._rows, self._max_rows // 2))
        rows = np.array(
            [row for row, text in enumerate(half) if len(text) <= _LONGEST_KEPT_CHARS], np.int32
        )
        lengths = self.lengths(rows)
        ids = self.gather(rows, lengths)
        self._clear()
        kept = [half[row] for row in rows]
        for text in kept:
            self._rows[text]
        self._append(kept, ids, lengths)


def _with_room(buffer: Ids, used: int, size: int) -> Ids:
    if size <= len(buffer):
        return buffer
    grown = np.empty(max(size, 2 * len(buffer)), buffer.dtype)
    grown[:used] = buffer[:used]
    return grown


class BertTokenizer:
    """A WordPiece `Tokenizer` with a memory for words. Threads take turns.

    Attributes:
        token_ids: the vocabulary.
    """

    def __init__(
        self, folder: str, library: Any, config: TokenizerConfig, named: Mapping[str, str]
    ) -> None:
        """Makes it of the library's; `config` and `named` override what its files say."""
        model, normalizer = library.model, library.normalizer
        self.token_ids: dict[str, int] = library.get_vocab(with_added_tokens=False)
        tokens = {"unk": model.unk_token, "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]"}
        tokens = {role: named.get(role, token) for role, token in tokens.items()}
        for role, token in tokens.items():
            if token not in self.token_ids:
                raise PreflightError(
                    f"{folder}: the vocabulary has no {token!r}, its {role}_token: {_WANTED}"
                )
        self._lowercase = _first(config.do_lower_case, normalizer.lowercase)
        chinese = _first(config.tokenize_chinese_chars, normalizer.handle_chinese_chars)
        accents = _first(config.strip_accents, normalizer.strip_accents, self._lowercase)
        wordpiece = (tokens["unk"], model.continuing_subword_prefix, model.max_input_chars_per_word)
        self.special = SpecialTokens(
            *(self.token_ids[tokens[role]] for role in ("cls", "sep", "pad"))
        )
        self.vocab_size = max(self.token_ids.values()) + 1
        # SHA-256 of the vocabulary and of every setting that decides an id; names of files do not
        # count.
        content = [
            sorted((token_id, token) for token, token_id in self.token_ids.items()),
            [self._lowercase, accents, chinese],
            wordpiece,
            list(self.special),
        ]
        self.digest = sha256(json.dumps(content).encode())
        # It has no special tokens, so that no part of a text becomes one.
        self._reference = Tokenizer(_wordpiece(self.token_ids, *wordpiece))
        self._reference.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=chinese,
            strip_accents=accents,
            lowercase=self._lowercase,
        )
        self._reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._model = self._reference.model
        self._dtype = np.dtype(schemas.token_type(self.vocab_size).to_pandas_dtype())
        self._pieces = IdTable(self._dtype, self._compute_pieces)
        self._chunks = IdTable(self._dtype, self._compute_chunks)
        self._lock = Lock()

    def encode(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        return encode_in_slices(
            texts, max_tokens, self.vocab_size, self._encode_whole, splits_at_spaces=True
        )

    encode_queries = encode

    def _encode_whole(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        cleaned = [
            text if "\v" not in text and "\f" not in text else text.translate(_REMOVED)
            for text in texts
        ]
        try:
            split = pc.ascii_split_whitespace(pa.array(cleaned, pa.large_string()))
        except UnicodeEncodeError:
            check_unicode(cleaned)
            raise
        words = split.values.dictionary_encode()
        distinct = words.dictionary.to_pylist()
        with self._lock:
            rows = self._chunks.rows_of(distinct, len(distinct))[words.indices.to_numpy()]
            lengths = self._chunks.lengths(rows)
            ids = self._chunks.gather(rows, lengths)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return ids, np.diff(ends[split.offsets.to_numpy()])

    def _compute_chunks(self, chunks: Sequence[str]) -> tuple[Ids, Lengths]:
        """The ids of whitespace-separated words: printable ASCII by its pieces, the others by the
        library.
        """
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
        # The last piece is a break: all breaks have its row.
        breaks = rows == rows[-1:]
        return self._pieces.gather(rows, lengths), np.diff(np.cumsum(lengths)[breaks], prepend=0)

    def _compute_pieces(self, pieces: Sequence[str]) -> tuple[Ids, Lengths]:
        tokenize = self._model.tokenize
        ids = [
            [] if piece == _BREAK else [token.id for token in tokenize(piece)] for piece in pieces
        ]
        return np.fromiter(chain.from_iterable(ids), self._dtype), np.fromiter(
            map(len, ids), np.int64, len(ids)
        )

    def _compute_other(self, chunks: Sequence[str]) -> tuple[Ids, Lengths]:
        ids: list[Ids] = [np.empty(0, self._dtype)]
        lengths: list[Lengths] = [np.empty(0, np.int64)]
        for start in range(0, len(chunks), _CHUNKS_PER_CALL):
            batch = chunks[start : start + _CHUNKS_PER_CALL]
            encoding = self._reference.encode(batch, is_pretokenized=True, add_special_tokens=False)
            ids.append(np.array(encoding.ids, self._dtype))
            lengths.append(np.bincount(np.array(encoding.word_ids, np.int64), minlength=len(batch)))
        return np.concatenate(ids), np.concatenate(lengths)


def load_bert(folder: str) -> BertTokenizer:
    """Loads the tokenizer of a Hugging Face folder or fsspec URL, by `tokenizer.json`, else
    `vocab.txt`.
    """
    files = TokenizerFiles(folder)
    if files.added:
        raise PreflightError(f"{folder}: {_adds(files.added)}: {_WANTED}")
    if (fast := files.read_fast()) is not None:
        if reason := why_not_bert(fast[0], files.named):
            raise PreflightError(f"{files.url}: {reason}: {_WANTED}")
        library = fast[0]
    elif files.has(VOCABULARY):
        library = _read_vocab_txt(storage.join(folder, VOCABULARY), files.config)
    else:
        raise PreflightError(f"{folder} has no tokenizer.json and no vocab.txt: {_WANTED}")
    return BertTokenizer(folder, library, files.config, files.named)


def names_bert(config: TokenizerConfig) -> bool:
    """Whether a vocab.txt with this configuration is BERT's."""
    return config.kind is None or config.kind in BERT_CLASSES


def why_not_bert(tokenizer: Any, named: Mapping[str, str]) -> str | None:
    """Why a tokenizer of the library, whose files name these special tokens, is not plain BERT's;
    None if it is.
    """
    for part, component, expected in (
        ("model", tokenizer.model, models.WordPiece),
        ("normalizer", tokenizer.normalizer, normalizers.BertNormalizer),
        ("pre-tokenizer", tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer),
    ):
        if not isinstance(component, expected):
            return (
                f"its {part} is {'none' if component is None else type(component).__name__}, not "
                f"{expected.__name__}"
            )
    if not tokenizer.normalizer.clean_text:
        return "its normalizer has clean_text off, which BERT has on"
    added = tokenizer.get_added_tokens_decoder().values()
    extra = [
        token.content
        for token in added
        if not (token.special and is_control(token.content, named.values()))
    ]
    return _adds(extra) if extra else None


def _adds(tokens: Collection[str]) -> str:
    return f"it adds tokens to BERT's vocabulary ({', '.join(map(repr, sorted(tokens)[:5]))})"


def _read_vocab_txt(url: str, config: TokenizerConfig) -> Any:
    if not names_bert(config):
        raise PreflightError(
            f"{url} belongs to a {config.tokenizer_class} without a {FAST}: {_WANTED}"
        )
    try:
        lines = io.StringIO(read_at_most(url, MOST_BYTES).decode(), newline=None).readlines()
    except UnicodeDecodeError as error:
        raise PreflightError(f"{url} is not UTF-8 text: {error}") from error
    except ValueError as error:
        raise PreflightError(f"{url} is not a vocabulary: {error}") from error
    library = Tokenizer(
        _wordpiece({line.rstrip("\n"): number for number, line in enumerate(lines)}, "[UNK]")
    )
    library.normalizer = normalizers.BertNormalizer()
    return library


def _wordpiece(
    token_ids: dict[str, int], unknown: str, prefix: str = "##", most_chars: int = 100
) -> Any:
    return models.WordPiece(
        token_ids,
        unk_token=unknown,
        continuing_subword_prefix=prefix,
        max_input_chars_per_word=most_chars,
    )


def _first(*values: bool | None) -> bool:
    return bool(next(value for value in values if value is not None))
