"""The files of a tokenizer: tokenizer.json, and what the configurations and lists beside it add to it."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import StrictBool, TypeAdapter
from tokenizers import Tokenizer

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import parse_json, read_at_most, validated

FAST, VOCABULARY = "tokenizer.json", "vocab.txt"
_SETTINGS, _MAP, _ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
# The SentencePiece models of XLM-R and CamemBERT, T5, DeBERTa, and others; the byte-level BPE of RoBERTa.
_VOCABULARIES = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model", "vocab.json", "merges.txt")
TOKENIZER_FILES = (VOCABULARY, FAST, _SETTINGS, _MAP, _ADDED, *_VOCABULARIES)
MOST_BYTES = 1 << 28
ROLES = ("unk", "cls", "sep", "pad", "mask", "bos", "eos")
# The spellings of special tokens with a role, and the forms of those that language models are controlled with.
_CONTROL = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "<unk>", "<s>", "</s>", "<pad>", "<mask>"}
_CONTROL_FORMS = re.compile(r"<\|.*\|>|<extra_id_\d+>", re.DOTALL)

_T = TypeVar("_T")


@dataclass(frozen=True)
class _AddedToken:
    """A token as tokenizer_config.json may write it."""

    content: str


_Token = str | _AddedToken


@dataclass(frozen=True)
class TokenizerConfig:
    """tokenizer_config.json, or special_tokens_map.json, as far as it decides ids or the layout of a pair."""

    tokenizer_class: str | None = None
    do_lower_case: StrictBool | None = None
    tokenize_chinese_chars: StrictBool | None = None
    strip_accents: StrictBool | None = None
    add_prefix_space: StrictBool | None = None
    truncation_side: str | None = None
    model_input_names: list[str] | None = None
    unk_token: _Token | None = None
    cls_token: _Token | None = None
    sep_token: _Token | None = None
    pad_token: _Token | None = None
    mask_token: _Token | None = None
    bos_token: _Token | None = None
    eos_token: _Token | None = None
    additional_special_tokens: list[_Token] | None = None
    extra_special_tokens: list[_Token] | dict[str, _Token] | None = None
    added_tokens_decoder: dict[int, _AddedToken] | None = None

    @property
    def named(self) -> dict[str, str]:
        """The special tokens that it names, by role."""
        tokens = {role: getattr(self, f"{role}_token") for role in ROLES}
        return {role: _content(token) for role, token in tokens.items() if token}

    @property
    def added(self) -> set[str]:
        """The tokens that it adds to a vocabulary."""
        extra = self.extra_special_tokens or ()
        lists: tuple[Iterable[_Token], ...] = (
            self.additional_special_tokens or (),
            extra.values() if isinstance(extra, dict) else extra,
            (self.added_tokens_decoder or {}).values(),
        )
        return {_content(token) for tokens in lists for token in tokens}

    @property
    def kind(self) -> str | None:
        """The class of transformers; the fast one of two has the same name."""
        return None if self.tokenizer_class is None else self.tokenizer_class.removesuffix("Fast")


def _content(token: _Token) -> str:
    return token.content if isinstance(token, _AddedToken) else token


_CONFIG = TypeAdapter(TokenizerConfig)
_IDS = TypeAdapter(dict[str, int])


@dataclass(frozen=True)
class _ModelConfig:
    """config.json, as far as it decides the tokenizer."""

    tokenizer_class: str | None = None


_MODEL_CONFIG = TypeAdapter(_ModelConfig)


def read_config(folder: str) -> TokenizerConfig:
    """The configuration of a folder's tokenizer; config.json names its class where tokenizer_config.json does not.

    Raises:
        PreflightError: a file is damaged.
    """
    config = _read(folder, _SETTINGS, _CONFIG, TokenizerConfig())
    if config.tokenizer_class is not None:
        return config
    return replace(config, tokenizer_class=_read(folder, "config.json", _MODEL_CONFIG, _ModelConfig()).tokenizer_class)


def named_tokens(folder: str, config: TokenizerConfig) -> dict[str, str]:
    """The special tokens that a folder names, by role; tokenizer_config.json goes before special_tokens_map.json."""
    return _read(folder, _MAP, _CONFIG, TokenizerConfig()).named | config.named


def names_agree(folder: str, config: TokenizerConfig) -> bool:
    """Whether the two files do not name other tokens for a role; transformers prefers either, by its version."""
    named = _read(folder, _MAP, _CONFIG, TokenizerConfig()).named
    return all(named.get(role, token) == token for role, token in config.named.items())


def keeps_ends(folder: str) -> bool:
    """Whether a tokenizer cuts the beginnings of texts, where it is asked to cut them."""
    side, url = read_config(folder).truncation_side, storage.join(folder, FAST)
    if side is None and storage.exists(url):
        side = (read_fast(url)[0].truncation or {}).get("direction")
    return side == "left"


def added_tokens(folder: str, config: TokenizerConfig) -> set[str]:
    """The tokens without a role that the files beside a vocabulary add to it: each is an id of its own in a text."""
    listed = (
        _read(folder, _MAP, _CONFIG, TokenizerConfig()).added | config.added | _read(folder, _ADDED, _IDS, {}).keys()
    )
    named = named_tokens(folder, config).values()
    return {token for token in listed if not is_control(token, named)}


def is_control(token: str, named: Collection[str]) -> bool:
    """Whether a special token has a role in inputs, so that a text that spells it is text; others stand in texts."""
    return token in named or token in _CONTROL or _CONTROL_FORMS.fullmatch(token) is not None


def _read(folder: str, name: str, kind: TypeAdapter[_T], default: _T) -> _T:
    url = storage.join(folder, name)
    if not storage.exists(url):
        return default
    try:
        content = parse_json(read_at_most(url, MOST_BYTES))
    except ValueError as error:
        raise PreflightError(f"{url} is not valid JSON: {error}") from error
    try:
        return validated(kind, content)
    except ValueError as error:
        raise PreflightError(f"{url} is not a tokenizer's configuration: {error}") from error


def read_fast(url: str) -> tuple[Any, bytes]:
    """A tokenizer.json: the library's tokenizer, and the file's content.

    Raises:
        PreflightError: the library cannot read it.
    """
    try:
        content = read_at_most(url, MOST_BYTES)
        return Tokenizer.from_str(content.decode()), content
    # The library raises a bare Exception for a file that it cannot read.
    except Exception as error:
        raise PreflightError(f"cannot read the tokenizer {url}: {error}") from error
