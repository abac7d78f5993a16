"""Reads the vocabulary and the settings of a BERT tokenizer from a Hugging Face folder."""

import io
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import models, normalizers, pre_tokenizers

from beamrank.errors import PreflightError
from beamrank.records import SpecialTokens
from beamrank.storage import files as storage
from beamrank.storage.documents import read_at_most, sha256
from models.tokenizers.files import FAST, MOST_BYTES, VOCABULARY, TokenizerConfig, TokenizerFiles, is_control

_WANTED = "give a checkpoint with a plain BERT WordPiece tokenizer"
_SPECIAL = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]"}
BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")


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
    def special(self) -> SpecialTokens:
        """The ids of the tokens that start an input, end a text of it and fill a batch."""
        ids = self.token_ids
        return SpecialTokens(ids[self.cls_token], ids[self.sep_token], ids[self.pad_token])

    @property
    def digest(self) -> str:
        """SHA-256 of the vocabulary and of every setting that decides an id; names of files do not count."""
        content = [
            sorted((token_id, token) for token, token_id in self.token_ids.items()),
            [self.lowercase, self.strip_accents, self.tokenize_chinese_chars],
            [self.unk_token, self.continuing_subword_prefix, self.max_input_chars_per_word],
            list(self.special[:3]),
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
    files = TokenizerFiles(folder)
    config, named = files.config, files.named
    if files.added:
        raise PreflightError(f"{folder}: {_adds(files.added)}: {_WANTED}")
    if (fast := files.read_fast()) is not None:
        settings = _from_tokenizer_json(files.url, fast[0], named)
    elif files.has(VOCABULARY):
        settings = _from_vocab_txt(storage.join(folder, VOCABULARY), config)
    else:
        raise PreflightError(f"{folder} has no tokenizer.json and no vocab.txt: {_WANTED}")
    settings["lowercase"] = _first(config.do_lower_case, settings["lowercase"])
    settings["tokenize_chinese_chars"] = _first(config.tokenize_chinese_chars, settings["tokenize_chinese_chars"])
    settings["strip_accents"] = _first(config.strip_accents, settings["strip_accents"], settings["lowercase"])
    roles = {"unk": settings["unk_token"], **_SPECIAL}
    settings |= {f"{role}_token": named.get(role, token) for role, token in roles.items()}
    _check_special_tokens(folder, settings)
    return BertVocabulary(**settings)


def names_bert(config: TokenizerConfig) -> bool:
    """Whether a vocab.txt with this configuration is BERT's."""
    return config.kind is None or config.kind in BERT_CLASSES


def why_not_bert(tokenizer: Any, named: Mapping[str, str]) -> str | None:
    """What makes a tokenizer of the library another one than plain BERT's; None if it is BERT's.

    Args:
        tokenizer: of the library.
        named: the special tokens that its configuration names, by role.
    """
    model, normalizer = tokenizer.model, tokenizer.normalizer
    for part, found, expected in (
        ("model", model, models.WordPiece),
        ("normalizer", normalizer, normalizers.BertNormalizer),
        ("pre-tokenizer", tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer),
    ):
        if not isinstance(found, expected):
            return f"its {part} is {'none' if found is None else type(found).__name__}, not {expected.__name__}"
    if not normalizer.clean_text:
        return "its normalizer has clean_text off, which BERT has on"
    added = tokenizer.get_added_tokens_decoder().values()
    extra = [token.content for token in added if not (token.special and is_control(token.content, named.values()))]
    return _adds(extra) if extra else None


def _adds(tokens: Collection[str]) -> str:
    return f"it adds tokens to BERT's vocabulary ({', '.join(map(repr, sorted(tokens)[:5]))})"


def _from_tokenizer_json(url: str, tokenizer: Any, named: Mapping[str, str]) -> dict[str, Any]:
    reason = why_not_bert(tokenizer, named)
    if reason is not None:
        raise PreflightError(f"{url}: {reason}: {_WANTED}")
    return {
        "token_ids": tokenizer.get_vocab(with_added_tokens=False),
        "lowercase": tokenizer.normalizer.lowercase,
        "strip_accents": tokenizer.normalizer.strip_accents,
        "tokenize_chinese_chars": tokenizer.normalizer.handle_chinese_chars,
        "unk_token": tokenizer.model.unk_token,
        "continuing_subword_prefix": tokenizer.model.continuing_subword_prefix,
        "max_input_chars_per_word": tokenizer.model.max_input_chars_per_word,
    }


def _from_vocab_txt(url: str, config: TokenizerConfig) -> dict[str, Any]:
    if not names_bert(config):
        raise PreflightError(f"{url} belongs to a {config.tokenizer_class} without a {FAST}: {_WANTED}")
    try:
        lines = io.StringIO(read_at_most(url, MOST_BYTES).decode(), newline=None).readlines()
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


def _check_special_tokens(folder: str, settings: dict[str, Any]) -> None:
    for role in ("unk", "cls", "sep", "pad"):
        token = settings[f"{role}_token"]
        if token not in settings["token_ids"]:
            raise PreflightError(f"{folder}: the vocabulary has no {token!r}, its {role}_token: {_WANTED}")


def _first(*values: bool | None) -> bool:
    return bool(next(value for value in values if value is not None))
