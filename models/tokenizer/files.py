"""The files of a tokenizer: tokenizer.json, and what tokenizer_config.json and special_tokens_map.json add to it."""

from dataclasses import dataclass
from typing import Any

from pydantic import StrictBool, TypeAdapter
from tokenizers import Tokenizer

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import parse_json, read_at_most, validated

FAST, VOCABULARY = "tokenizer.json", "vocab.txt"
MOST_BYTES = 1 << 28
_ROLES = ("unk", "cls", "sep", "pad")


@dataclass(frozen=True)
class _AddedToken:
    """A special token as tokenizer_config.json may write it."""

    content: str


@dataclass(frozen=True)
class TokenizerConfig:
    """tokenizer_config.json, or special_tokens_map.json, as far as it decides ids."""

    tokenizer_class: str | None = None
    do_lower_case: StrictBool | None = None
    tokenize_chinese_chars: StrictBool | None = None
    strip_accents: StrictBool | None = None
    unk_token: str | _AddedToken | None = None
    cls_token: str | _AddedToken | None = None
    sep_token: str | _AddedToken | None = None
    pad_token: str | _AddedToken | None = None

    @property
    def named(self) -> dict[str, str]:
        """The special tokens that it names, by role."""
        tokens = {role: getattr(self, f"{role}_token") for role in _ROLES}
        return {
            role: token.content if isinstance(token, _AddedToken) else token for role, token in tokens.items() if token
        }


_CONFIG = TypeAdapter(TokenizerConfig)


def read_config(folder: str, name: str = "tokenizer_config.json") -> TokenizerConfig:
    """The configuration of a folder's tokenizer; without the file, an empty one.

    Raises:
        PreflightError: it is damaged.
    """
    url = storage.join(folder, name)
    if not storage.exists(url):
        return TokenizerConfig()
    try:
        config = parse_json(read_at_most(url, MOST_BYTES))
    except ValueError as error:
        raise PreflightError(f"{url} is not valid JSON: {error}") from error
    try:
        return validated(_CONFIG, config)
    except ValueError as error:
        raise PreflightError(f"{url} is not a tokenizer's configuration: {error}") from error


def named_tokens(folder: str, config: TokenizerConfig) -> dict[str, str]:
    """The special tokens that a folder names, by role; tokenizer_config.json goes before special_tokens_map.json."""
    return read_config(folder, "special_tokens_map.json").named | config.named


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
