"""The tokenizer of a folder: BERT's from a table of words, any other (Unigram, byte-level BPE) from
the library.

The library finds special tokens in a text by their spelling, and a document could end its own
segment or speak for a model's user. Its `encode_special_tokens` stops that search, but a model may
still know the spelling as a piece of its vocabulary: a Unigram model takes `</s>` for the best
piece of all. So special tokens get names here that no text can reach, in the vocabulary and among
the added tokens. Their ids stay, and so do the ids of all other text. Special tokens without a role
in an input were added for texts, and are found there, as in transformers.
"""

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Library

from beamrank.commit import schemas
from beamrank.errors import PreflightError
from beamrank.records import NO_TOKEN, SpecialTokens
from beamrank.storage.documents import digest
from models.tokenizers.base import (
    Ids,
    Lengths,
    TokenColumn,
    Tokenizer,
    check_unicode,
    encode_in_slices,
)
from models.tokenizers.bert import BertTokenizer, load_bert, names_bert, why_not_bert
from models.tokenizers.files import (
    FAST,
    ROLES,
    SETTINGS_FILES,
    TOKENIZER_FILES,
    VOCABULARY,
    TokenizerFiles,
    is_control,
)

# The usual special tokens of an input, where no file names them.
_USUAL = {"cls": ("[CLS]", "<s>"), "sep": ("[SEP]", "</s>"), "pad": ("[PAD]", "<pad>")}
# Pre-tokenizers that split at spaces, and the setting without which they do not.
_SPLITTERS = {
    "BertPreTokenizer": "",
    "Whitespace": "",
    "WhitespaceSplit": "",
    "ByteLevel": "use_regex",
}
_SPLITTERS |= {"Metaspace": "split"}
_SPACES = " {2,}"
# The classes of transformers whose add_prefix_space, by default off, replaces tokenizer.json's.
_SET_PREFIX_SPACE = (
    "RobertaTokenizer",
    "BartTokenizer",
    "GPT2Tokenizer",
    "DebertaTokenizer",
    "LongformerTokenizer",
)
_ADVICE = (
    "save its tokenizer.json where it can be loaded "
    "(`AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)`) and add it to the checkpoint"
)

_DECIDES_IDS = ("normalizer", "pre_tokenizer", "model", "added_tokens")


def load_tokenizer(folder: str) -> Tokenizer:
    """Loads the tokenizer of a Hugging Face folder. No code of the folder is run."""
    files = TokenizerFiles(folder)
    if (fast := files.read_fast()) is not None:
        original, content = fast
        if files.added <= {token.content for token in original.get_added_tokens_decoder().values()}:
            if why_not_bert(original, files.named) is None:
                return BertTokenizer(folder, original, files.config, files.named)
            return LibraryTokenizer(files.url, original, content, files.named)
    present = files.has(*TOKENIZER_FILES)
    if fast is None and VOCABULARY in present and names_bert(files.config) and not files.added:
        return load_bert(folder)
    if not set(present) - {*SETTINGS_FILES}:
        raise PreflightError(
            f"{folder} has no tokenizer: neither {FAST} nor a vocabulary ({VOCABULARY}, a "
            "SentencePiece model, or vocab.json with merges.txt). Give a checkpoint with its "
            "tokenizer's files",
            kind="no-tokenizer",
        )
    return LibraryTokenizer(*_convert(folder))


def load_with_transformers(folder: str, reference: str | None = None) -> Any:
    """The tokenizer of a local folder as transformers loads it; neither code of the folder nor the
    network is used.
    """
    from transformers import AutoTokenizer

    provide_sentencepiece_format()
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # The errors of damaged files are of any type.
    except Exception as error:
        problem = f"{type(error).__name__}: {error!s:.400}"
        if _has_fast(folder):
            name = reference or folder
            raise PreflightError(
                f"transformers cannot load the tokenizer of the checkpoint {name}: {problem}",
                kind="tokenizer",
            ) from error
        raise PreflightError(
            f"{folder} has no {FAST}, and transformers cannot make one of its other files: "
            f"{problem}; {_ADVICE}",
            kind="no-tokenizer",
        ) from error


def load_fast(folder: str, reference: str | None = None) -> Any:
    """`load_with_transformers` for a tokenizer that the library computes, of all its files."""
    tokenizer = load_with_transformers(folder, reference)
    kind, fast = type(tokenizer).__name__, _has_fast(folder)
    refusal = f"{reference or folder} has {'a' if fast else 'no'} {FAST}, and its {kind}"
    if not tokenizer.is_fast:
        raise PreflightError(
            f"{refusal} is Python code without a counterpart in the tokenizers library: "
            + (
                f"the {FAST} belongs to another tokenizer. Give the checkpoint its own"
                if fast
                else _ADVICE
            ),
            kind="no-tokenizer",
        )
    needed = [
        name
        for key, name in tokenizer.vocab_files_names.items()
        if key != "tokenizer_file" and not fast
    ]
    missing = [name for name in needed if not os.path.isfile(os.path.join(folder, name))]
    # transformers makes a tokenizer without words where it finds none.
    if missing or tokenizer.vocab_size <= len(tokenizer.all_special_ids):
        problem = (
            f"lacks {' and '.join(missing)}"
            if missing
            else f"has no words in {' and '.join(needed) or FAST}"
        )
        raise PreflightError(f"{refusal} {problem}: {_ADVICE}", kind="no-tokenizer")
    return tokenizer


def _has_fast(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, FAST))


def read_library(folder: str) -> tuple[str, Any, bytes | str, dict[str, str]]:
    """The arguments of `LibraryTokenizer`: by tokenizer.json, else by the other files as
    transformers converts them.
    """
    files = TokenizerFiles(folder)
    fast = files.read_fast()
    return _convert(folder) if fast is None else (files.url, *fast, files.named)


def _convert(folder: str) -> tuple[str, Any, str, dict[str, str]]:
    """`read_library` with the special tokens that transformers names."""
    tokenizer = load_fast(folder)
    library = tokenizer.backend_tokenizer
    named = {role: getattr(tokenizer, f"{role}_token") for role in ROLES}
    return (
        folder,
        library,
        library.to_str(),
        {role: token for role, token in named.items() if token},
    )


def provide_sentencepiece_format() -> None:
    """Lets transformers read SentencePiece models with its own description of their format.

    It prefers sentencepiece's, which may need a newer protobuf than Beam allows.
    """
    name = "sentencepiece.sentencepiece_model_pb2"
    try:
        importlib.import_module(name)
    # protobuf's error for this is not an ImportError.
    except Exception:
        sys.modules[name] = importlib.import_module(
            "transformers.utils.sentencepiece_model_pb2_new"
        )


class LibraryTokenizer:
    """A `Tokenizer` that the library computes, on all cores. Threads share it.

    Attributes:
        splits_at_spaces: whether no token crosses a space that follows a letter or digit, so that
            the ids before it do not depend on what follows.
    """

    def __init__(
        self,
        source: str,
        original: Any,
        content: bytes | str,
        named: Mapping[str, str],
        all_special: bool = False,
    ) -> None:
        """Makes the tokenizer of a tokenizer.json, whose special tokens must be told from text.

        Args:
            source: names it in errors.
            original: the library's tokenizer.
            content: the JSON.
            named: the special tokens that its configuration names, by role.
            all_special: whether no special token stands in texts, also none without a role.
        """
        roles = _by_role(source, original, named).values()
        self.special = special_ids(source, original, named)
        added = {
            token.content: (token_id, token)
            for token_id, token in original.get_added_tokens_decoder().items()
        }
        in_texts = {
            content: token_id
            for content, (token_id, token) in added.items()
            if not (token.special and (all_special or is_control(content, named.values())))
        }
        spelled = {*added} - {*in_texts} | {token for token in (named.get("unk"), *roles) if token}
        control = {original.token_to_id(token): token for token in spelled}
        try:
            # The library also reads what is not quite JSON.
            definition = json.loads(content)
            plain = _without_special(
                definition, {token: f" \0{place}" for place, token in enumerate(sorted(spelled))}
            )
            model = definition["model"]
            unknown = model.get("unk_id", original.token_to_id(model.get("unk_token") or ""))
            self._library = Library.from_str(json.dumps(plain))
            self._library.encode_special_tokens = True
            _check_spelling(
                source,
                self._library,
                {name: token for name, token in control.items() if name != unknown},
            )
        except PreflightError:
            raise
        except Exception as error:
            raise PreflightError(
                f"{source}: its special tokens cannot be told from its text: {error}"
            ) from error
        vocabulary = original.get_vocab(with_added_tokens=False)
        self.vocab_size = max(chain(vocabulary.values(), self.special, in_texts.values())) + 1
        self.digest = digest([{part: plain.get(part) for part in _DECIDES_IDS}, self.special])
        self.splits_at_spaces = _splits_at_spaces(plain)
        self._dtype = np.dtype(schemas.token_type(self.vocab_size).to_pandas_dtype())

    def encode(self, texts: Sequence[str], max_tokens: int) -> TokenColumn:
        return encode_in_slices(
            texts,
            max_tokens,
            self.vocab_size,
            self._compute,
            splits_at_spaces=self.splits_at_spaces,
        )

    encode_queries = encode

    def _compute(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        try:
            encodings = self._library.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            check_unicode(texts)
            raise
        ids = [encoding.ids for encoding in encodings]
        return np.fromiter(chain.from_iterable(ids), self._dtype), np.fromiter(
            map(len, ids), np.int64, len(ids)
        )


def check_prefix_space(folder: str) -> None:
    """Raises PreflightError where a byte-level tokenizer's class puts a space before a text, and
    its file does not.

    Or the other way round: the class takes the setting of tokenizer_config.json, not of
    tokenizer.json.
    """
    files = TokenizerFiles(folder)
    config, fast = files.config, files.read_fast()
    if config.kind not in _SET_PREFIX_SPACE or fast is None:
        return
    prefixed, definition = bool(config.add_prefix_space), json.loads(fast[1])
    for part in _parts(definition.get("pre_tokenizer"), "pretokenizers"):
        if part["type"] == "ByteLevel" and part["add_prefix_space"] != prefixed:
            raise PreflightError(
                f"{folder} contradicts itself: tokenizer.json has add_prefix_space "
                f"{not prefixed}, and its class, {config.tokenizer_class}, reads {prefixed} from "
                "tokenizer_config.json, so the ids that the model was trained on are not known. "
                "Set add_prefix_space in tokenizer_config.json and in tokenizer.json to one"
            )


def special_ids(source: str, original: Any, named: Mapping[str, str]) -> SpecialTokens:
    """The special tokens of a tokenizer of the library; arguments as for `LibraryTokenizer`."""
    tokens = _by_role(source, original, named).values()
    cls_id, sep_id, pad_id = (
        NO_TOKEN if token is None else original.token_to_id(token) for token in tokens
    )
    return SpecialTokens(cls_id, sep_id, pad_id)


def _by_role(source: str, original: Any, named: Mapping[str, str]) -> dict[str, str | None]:
    tokens: dict[str, str | None] = {}
    for role, usual in _USUAL.items():
        token = named.get(role)
        if token is not None and original.token_to_id(token) is None:
            raise PreflightError(
                f"{source}: the vocabulary has no {token!r}, its {role}_token: give the "
                "checkpoint the tokenizer that its model was trained with"
            )
        tokens[role] = token or next(
            (default for default in usual if original.token_to_id(default) is not None), None
        )
    return tokens


_UNKNOWN: dict[str, Any] = {"type": None}


def _splits_at_spaces(definition: Mapping[str, Any]) -> bool:
    """Knows the usual parts, and takes no other for one that does."""
    if any(" " in token["content"].lstrip() for token in definition["added_tokens"]):
        return False
    normalizers = list(_parts(definition.get("normalizer"), "normalizers"))
    replaced = [normalizer["pattern"] for normalizer in normalizers if "pattern" in normalizer]
    if _UNKNOWN in normalizers or any(
        " " in pattern.get("String", "") or pattern.get("Regex", _SPACES) != _SPACES
        for pattern in replaced
    ):
        return False
    first = next(_parts(definition.get("pre_tokenizer"), "pretokenizers"), _UNKNOWN)
    return first["type"] in _SPLITTERS and bool(first.get(_SPLITTERS[first["type"]], True))


def _parts(part: Any, key: str) -> Iterator[Any]:
    """The parts of a sequence, or one part; the library also takes parts without a type."""
    if not isinstance(part, dict) or "type" not in part:
        yield from () if part is None else (_UNKNOWN,)
    elif part["type"] == "Sequence":
        yield from chain.from_iterable(_parts(member, key) for member in part[key])
    else:
        yield part


def _without_special(definition: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The definition with new names for special tokens, and without what adds or removes tokens."""
    model = dict(definition["model"])
    pieces = model["vocab"]
    if isinstance(pieces, dict):
        model["vocab"] = {names.get(piece, piece): token_id for piece, token_id in pieces.items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in pieces]
    if model.get("unk_token") is not None:
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    if "dropout" in model:
        # It is for training: the same text would give other ids each time.
        model["dropout"] = None
    added = [
        {**token, "content": names[token["content"]], "special": True, "normalized": False}
        if token["content"] in names
        else {**token, "special": False}
        for token in definition.get("added_tokens", [])
    ]
    ignored = dict.fromkeys(("truncation", "padding", "post_processor", "decoder"))
    return {**definition, **ignored, "added_tokens": added, "model": model}


def _check_spelling(source: str, library: Any, special: Mapping[int, str]) -> None:
    """Raises PreflightError where a special token's spelling still gives its id; any error for an
    unknown character.
    """
    texts = [text for token in special.values() for text in (token, f"a{token}a", f"a {token} a")]
    texts.append("\U0010fffd")
    for encoding in library.encode_batch_fast(texts, add_special_tokens=False):
        for token_id in special.keys() & set(encoding.ids):
            raise PreflightError(
                f"{source}: a text that spells {special[token_id]!r} gives this special token, so "
                "that a document could end its own part of an input. Such a tokenizer is not "
                "supported"
            )
