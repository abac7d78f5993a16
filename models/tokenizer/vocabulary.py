"""Reads the vocabulary and the settings of a BERT tokenizer from a Hugging Face folder."""

import io
import json
from dataclasses import dataclass
from typing import Any

from pydantic import StrictBool, TypeAdapter
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from beamrank.digests import sha256
from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import parse_json, read_at_most, validated

_WANTED = "beamrank's models are BERT: give a checkpoint with a plain BERT WordPiece tokenizer"
_MOST_BYTES = 1 << 28
_BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")


@dataclass(frozen=True)
class BertVocabulary:
    """A WordPiece vocabulary with the settings of BERT's normaliser."""

    token_ids: dict[str, int]
    lowercase: bool
    strip_accents: bool
    tokenize_chinese_chars: bool
    unk_token: str
    cls_token: str
    sep_token: str
    pad_token: str
    continuing_subword_prefix: str = "##"
    max_input_chars_per_word: int = 100

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self.token_ids.values()) + 1

    @property
    def cls_id(self) -> int:
        """The id of the token that starts an input."""
        return self.token_ids[self.cls_token]

    @property
    def sep_id(self) -> int:
        """The id of the token that ends a text of an input."""
        return self.token_ids[self.sep_token]

    @property
    def pad_id(self) -> int:
        """The id that fills a batch."""
        return self.token_ids[self.pad_token]

    @property
    def digest(self) -> str:
        """SHA-256 of the vocabulary and of every setting that decides an id; names of files do not count."""
        content = [
            sorted((token_id, token) for token, token_id in self.token_ids.items()),
            [self.lowercase, self.strip_accents, self.tokenize_chinese_chars],
            [self.unk_token, self.continuing_subword_prefix, self.max_input_chars_per_word],
            [self.cls_id, self.sep_id, self.pad_id],
        ]
        return sha256(json.dumps(content).encode())

    def wordpiece(self) -> Any:
        """The library's WordPiece model over this vocabulary."""
        return models.WordPiece(
            self.token_ids,
            unk_token=self.unk_token,
            continuing_subword_prefix=self.continuing_subword_prefix,
            max_input_chars_per_word=self.max_input_chars_per_word,
        )


def read_vocabulary(folder: str) -> BertVocabulary:
    """Reads `tokenizer.json`, else `vocab.txt`; settings in `tokenizer_config.json` override theirs.

    Raises:
        PreflightError: both are missing, a file is damaged, or it is another kind of tokenizer.
    """
    config = _read_config(storage.join(folder, "tokenizer_config.json"))
    fast_url = storage.join(folder, "tokenizer.json")
    slow_url = storage.join(folder, "vocab.txt")
    if storage.exists(fast_url):
        settings = _from_tokenizer_json(fast_url)
    elif storage.exists(slow_url):
        settings = _from_vocab_txt(slow_url, config)
    else:
        raise PreflightError(f"{folder} has no tokenizer.json and no vocab.txt: {_WANTED}")
    settings["lowercase"] = _first(config.do_lower_case, settings["lowercase"])
    settings["tokenize_chinese_chars"] = _first(config.tokenize_chinese_chars, settings["tokenize_chinese_chars"])
    settings["strip_accents"] = _first(config.strip_accents, settings["strip_accents"], settings["lowercase"])
    settings["unk_token"] = _content(config.unk_token) or settings["unk_token"]
    settings["cls_token"] = _content(config.cls_token) or "[CLS]"
    settings["sep_token"] = _content(config.sep_token) or "[SEP]"
    settings["pad_token"] = _content(config.pad_token) or "[PAD]"
    _check_special_tokens(folder, settings)
    return BertVocabulary(**settings)


@dataclass(frozen=True)
class _AddedToken:
    """A special token as tokenizer_config.json may write it."""

    content: str


@dataclass(frozen=True)
class _Config:
    """tokenizer_config.json, as far as it decides ids."""

    tokenizer_class: str | None = None
    do_lower_case: StrictBool | None = None
    tokenize_chinese_chars: StrictBool | None = None
    strip_accents: StrictBool | None = None
    unk_token: str | _AddedToken | None = None
    cls_token: str | _AddedToken | None = None
    sep_token: str | _AddedToken | None = None
    pad_token: str | _AddedToken | None = None


_CONFIG = TypeAdapter(_Config)


def _read_config(url: str) -> _Config:
    if not storage.exists(url):
        return _Config()
    try:
        config = parse_json(read_at_most(url, _MOST_BYTES))
    except ValueError as error:
        raise PreflightError(f"{url} is not valid JSON: {error}") from error
    try:
        return validated(_CONFIG, config)
    except ValueError as error:
        raise PreflightError(f"{url} is not a tokenizer's configuration: {error}") from error


def _from_tokenizer_json(url: str) -> dict[str, Any]:
    try:
        tokenizer = Tokenizer.from_str(read_at_most(url, _MOST_BYTES).decode())
    # The library raises a bare Exception for a file that it cannot read.
    except Exception as error:
        raise PreflightError(f"cannot read the tokenizer {url}: {error}") from error
    model, normalizer = tokenizer.model, tokenizer.normalizer
    _check_part(url, "model", model, models.WordPiece)
    _check_part(url, "normalizer", normalizer, normalizers.BertNormalizer)
    _check_part(url, "pre-tokenizer", tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
    if not normalizer.clean_text:
        raise PreflightError(f"{url}: its normalizer has clean_text off, which BERT has on: {_WANTED}")
    extra = sorted(token.content for token in tokenizer.get_added_tokens_decoder().values() if not token.special)
    if extra:
        raise PreflightError(f"{url} adds tokens to BERT's vocabulary ({', '.join(map(repr, extra[:5]))}): {_WANTED}")
    return {
        "token_ids": tokenizer.get_vocab(with_added_tokens=False),
        "lowercase": normalizer.lowercase,
        "strip_accents": normalizer.strip_accents,
        "tokenize_chinese_chars": normalizer.handle_chinese_chars,
        "unk_token": model.unk_token,
        "continuing_subword_prefix": model.continuing_subword_prefix,
        "max_input_chars_per_word": model.max_input_chars_per_word,
    }


def _from_vocab_txt(url: str, config: _Config) -> dict[str, Any]:
    tokenizer_class = config.tokenizer_class or "BertTokenizer"
    if tokenizer_class not in _BERT_CLASSES:
        raise PreflightError(f"{url} belongs to a {tokenizer_class} without a tokenizer.json: {_WANTED}")
    try:
        lines = io.StringIO(read_at_most(url, _MOST_BYTES).decode(), newline=None).readlines()
    except UnicodeDecodeError as error:
        raise PreflightError(f"{url} is not UTF-8 text: {error}") from error
    except ValueError as error:
        raise PreflightError(f"{url} is not a vocabulary: {error}") from error
    return {
        "token_ids": {line.rstrip("\n"): token_id for token_id, line in enumerate(lines)},
        "lowercase": True,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "unk_token": "[UNK]",
    }


def _check_part(url: str, part: str, found: Any, wanted: type) -> None:
    if not isinstance(found, wanted):
        name = "none" if found is None else type(found).__name__
        raise PreflightError(f"{url}: its {part} is {name}, not {wanted.__name__}: {_WANTED}")


def _check_special_tokens(folder: str, settings: dict[str, Any]) -> None:
    for role in ("unk", "cls", "sep", "pad"):
        token = settings[f"{role}_token"]
        if token not in settings["token_ids"]:
            raise PreflightError(f"{folder}: the vocabulary has no {token!r}, its {role}_token: {_WANTED}")


def _content(token: str | _AddedToken | None) -> str | None:
    return token.content if isinstance(token, _AddedToken) else token


def _first(*values: bool | None) -> bool:
    return bool(next(value for value in values if value is not None))
