"""Finds the tokenizer of a folder: BERT's from a table of words, any other from the library."""

import importlib
import os
import sys
from typing import Any

from beamrank.errors import PreflightError
from models.tokenizers.base import Tokenizer
from models.tokenizers.bert import load_bert
from models.tokenizers.files import FAST, ROLES, TOKENIZER_FILES, VOCABULARY, TokenizerFiles
from models.tokenizers.library import LibraryTokenizer
from models.tokenizers.vocabulary import names_bert, why_not_bert


def load_tokenizer(folder: str) -> Tokenizer:
    """Loads the tokenizer of a Hugging Face folder. No code of the folder is run.

    Raises:
        PreflightError: the folder has no tokenizer, or one that cannot be used.
    """
    files = TokenizerFiles(folder)
    if (fast := files.read_fast()) is not None:
        original, content = fast
        if files.added <= {token.content for token in original.get_added_tokens_decoder().values()}:
            if why_not_bert(original, files.named) is None:
                return load_bert(folder)
            return LibraryTokenizer(files.url, original, content, files.named)
    present = files.has(*TOKENIZER_FILES)
    if fast is None and VOCABULARY in present and names_bert(files.config) and not files.added:
        return load_bert(folder)
    if not set(present) - {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}:
        raise PreflightError(
            f"{folder} has no tokenizer: neither {FAST} nor a vocabulary ({VOCABULARY}, a SentencePiece model, or "
            "vocab.json with merges.txt). Give a checkpoint with its tokenizer's files"
        )
    return LibraryTokenizer(*_convert(folder))


_ADVICE = (
    "save its tokenizer.json where it can be loaded (`AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)`) "
    "and add it to the checkpoint"
)


def load_with_transformers(folder: str, reference: str | None = None) -> Any:
    """The tokenizer of a local folder as transformers loads it; neither code of the folder nor the network is used.

    Args:
        folder: has the tokenizer's files.
        reference: names the checkpoint in errors.

    Raises:
        PreflightError: it cannot be loaded.
    """
    from transformers import AutoTokenizer

    provide_sentencepiece_format()
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # The errors of damaged files are of any type.
    except Exception as error:
        found = f"{type(error).__name__}: {error!s:.400}"
        if _has_fast(folder):
            name = reference or folder
            raise PreflightError(f"transformers cannot load the tokenizer of the checkpoint {name}: {found}") from error
        raise PreflightError(
            f"{folder} has no {FAST}, and transformers cannot make one of its other files: {found}; {_ADVICE}"
        ) from error


def load_fast(folder: str, reference: str | None = None) -> Any:
    """`load_with_transformers` for a tokenizer that the library computes.

    Raises:
        PreflightError: it cannot be loaded, is Python code, or lacks files.
    """
    tokenizer = load_with_transformers(folder, reference)
    kind, fast = type(tokenizer).__name__, _has_fast(folder)
    refusal = f"{reference or folder} has {'a' if fast else 'no'} {FAST}, and its {kind}"
    if not tokenizer.is_fast:
        raise PreflightError(
            f"{refusal} is Python code without a counterpart in the tokenizers library: "
            + (f"the {FAST} is that of another tokenizer. Give the checkpoint its own" if fast else _ADVICE)
        )
    needed = [name for key, name in tokenizer.vocab_files_names.items() if key != "tokenizer_file" and not fast]
    missing = [name for name in needed if not os.path.isfile(os.path.join(folder, name))]
    # transformers makes a tokenizer without words where it finds none.
    if missing or tokenizer.vocab_size <= len(tokenizer.all_special_ids):
        found = f"lacks {' and '.join(missing)}" if missing else f"has no words in {' and '.join(needed) or FAST}"
        raise PreflightError(f"{refusal} {found}: {_ADVICE}")
    return tokenizer


def _has_fast(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, FAST))


def read_library(folder: str) -> tuple[str, Any, bytes | str, dict[str, str]]:
    """The arguments of `LibraryTokenizer`: by tokenizer.json, else by the other files as transformers converts them.

    Raises:
        PreflightError: the folder has no tokenizer that can be used.
    """
    files = TokenizerFiles(folder)
    fast = files.read_fast()
    return _convert(folder) if fast is None else (files.url, *fast, files.named)


def _convert(folder: str) -> tuple[str, Any, str, dict[str, str]]:
    """`read_library` with the special tokens that transformers names."""
    tokenizer = load_fast(folder)
    library = tokenizer.backend_tokenizer
    named = {role: getattr(tokenizer, f"{role}_token") for role in ROLES}
    return folder, library, library.to_str(), {role: token for role, token in named.items() if token}


def provide_sentencepiece_format() -> None:
    """Lets transformers read SentencePiece models with its own description of their format.

    It prefers sentencepiece's, which may need a newer protobuf than Beam allows.
    """
    name = "sentencepiece.sentencepiece_model_pb2"
    try:
        importlib.import_module(name)
    # protobuf's error for this is not an ImportError.
    except Exception:
        sys.modules[name] = importlib.import_module("transformers.utils.sentencepiece_model_pb2_new")
