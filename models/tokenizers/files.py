"""The files of a tokenizer: tokenizer.json, and what the configurations and lists beside it add to
it.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, StrictBool
from tokenizers import Tokenizer

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import read_at_most, read_usable

FAST, VOCABULARY = "tokenizer.json", "vocab.txt"
_SETTINGS, _MAP, _ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
# The SentencePiece models of XLM-R and CamemBERT, T5, DeBERTa, and others; the byte-level BPE of
# RoBERTa.
_VOCABULARIES = (
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
)
_CHAT = "chat_template.jinja"
# Files that make no tokenizer alone.
SETTINGS_FILES = (_SETTINGS, _MAP, _ADDED, _CHAT)
TOKENIZER_FILES = (VOCABULARY, FAST, *SETTINGS_FILES, *_VOCABULARIES)
MOST_BYTES = 1 << 28
ROLES = ("unk", "cls", "sep", "pad", "mask", "bos", "eos")
# The spellings of special tokens with a role, and the forms of the tokens that language models are
# controlled with.
_CONTROL = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "<unk>", "<s>", "</s>", "<pad>", "<mask>"}
_CONTROL_FORMS = re.compile(r"<\|.*\|>|<extra_id_\d+>", re.DOTALL)

_T = TypeVar("_T")
# A token, or an object that describes it.
_Token = Annotated[
    str, BeforeValidator(lambda token: token.get("content") if isinstance(token, dict) else token)
]


@dataclass(frozen=True)
class TokenizerConfig:
    """tokenizer_config.json, or special_tokens_map.json, as far as it decides ids or the layout of
    a pair.
    """

    tokenizer_class: str | None = None
    do_lower_case: StrictBool | None = None
    tokenize_chinese_chars: StrictBool | None = None
    strip_accents: StrictBool | None = None
    add_prefix_space: StrictBool | None = None
    truncation_side: str | None = None
    model_max_length: float | None = None
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
    added_tokens_decoder: dict[int, _Token] | None = None
    chat_template: Any = None

    @property
    def named(self) -> dict[str, str]:
        """The special tokens that it names, by role."""
        tokens = {role: getattr(self, f"{role}_token") for role in ROLES}
        return {role: token for role, token in tokens.items() if token}

    @property
    def added(self) -> set[str]:
        """The tokens that it adds to a vocabulary."""
        extra = self.extra_special_tokens or ()
        return {
            *(self.additional_special_tokens or ()),
            *(extra.values() if isinstance(extra, dict) else extra),
            *(self.added_tokens_decoder or {}).values(),
        }

    @property
    def kind(self) -> str | None:
        """The class of transformers; the fast one of two has the same name."""
        return None if self.tokenizer_class is None else self.tokenizer_class.removesuffix("Fast")


@dataclass(frozen=True)
class _ModelConfig:
    """config.json, as far as it decides the tokenizer."""

    tokenizer_class: str | None = None


class TokenizerFiles:
    """The files of a folder about its tokenizer.

    Attributes:
        config: tokenizer_config.json; config.json names its class where that does not.
        url: of tokenizer.json, which need not exist.
        named: the special tokens by role; tokenizer_config.json goes before
            special_tokens_map.json.
        names_agree: whether the two files name the same; transformers prefers either, by its
            version.
        added: the tokens without a role that the files beside a vocabulary add to it: each is an id
            of its own in a text.
    """

    def __init__(self, folder: str) -> None:
        """Reads them, except for tokenizer.json; raises PreflightError where one is damaged."""
        self.folder, self.url = folder, storage.join(folder, FAST)
        config = self._read(_SETTINGS, TokenizerConfig) or TokenizerConfig()
        mapped = self._read(_MAP, TokenizerConfig) or TokenizerConfig()
        if config.tokenizer_class is None:
            model = self._read("config.json", _ModelConfig) or _ModelConfig()
            config = replace(config, tokenizer_class=model.tokenizer_class)
        self.config, self.named = config, mapped.named | config.named
        self.names_agree = all(
            mapped.named.get(role, token) == token for role, token in config.named.items()
        )
        listed = mapped.added | config.added | {*(self._read(_ADDED, dict[str, int]) or ())}
        self.added = {token for token in listed if not is_control(token, self.named.values())}

    def settings(self) -> dict[str, Any]:
        """Everything in tokenizer_config.json."""
        return self._read(_SETTINGS, dict[str, Any]) or {}

    def read_fast(self) -> tuple[Any, bytes] | None:
        """tokenizer.json: the library's tokenizer, and the file's content; None where there is
        none.
        """
        if not storage.exists(self.url):
            return None
        try:
            content = read_at_most(self.url, MOST_BYTES)
            return Tokenizer.from_str(content.decode()), content
        # The library raises a bare Exception for a file that it cannot read.
        except Exception as error:
            raise PreflightError(f"cannot read the tokenizer {self.url}: {error}") from error

    def has(self, *names: str) -> list[str]:
        """The names of the files that exist."""
        return [name for name in names if storage.exists(storage.join(self.folder, name))]

    @property
    def has_chat_template(self) -> bool:
        """Whether it has a template for chats."""
        return bool(self.config.chat_template or self.has(_CHAT))

    @property
    def keeps_ends(self) -> bool:
        """Whether the tokenizer cuts the beginnings of texts, where it cuts them."""
        side = self.config.truncation_side
        if side is None and (fast := self.read_fast()) is not None:
            side = (fast[0].truncation or {}).get("direction")
        return side == "left"

    def _read(self, name: str, kind: type[_T]) -> _T | None:
        url = storage.join(self.folder, name)
        return read_usable(kind, url, MOST_BYTES) if storage.exists(url) else None


def is_control(token: str, named: Collection[str]) -> bool:
    """Whether a special token has a role in inputs, so that a text that spells it is text; others
    stand in texts.
    """
    return token in named or token in _CONTROL or _CONTROL_FORMS.fullmatch(token) is not None
