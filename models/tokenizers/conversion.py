"""Loads tokenizers with transformers, and makes a tokenizer.json of the other files that one may come as."""

import os
from typing import Any

from beamrank.errors import PreflightError
from models.sentencepiece_format import provide_sentencepiece_format
from models.tokenizers.files import FAST, ROLES

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


def convert(folder: str) -> tuple[Any, str, dict[str, str]]:
    """Converts the tokenizer of a local folder.

    Returns:
        The library's tokenizer, its JSON, and the special tokens that transformers names, by role.

    Raises:
        PreflightError: transformers cannot convert it.
    """
    tokenizer = load_fast(folder)
    library = tokenizer.backend_tokenizer
    named = {role: getattr(tokenizer, f"{role}_token") for role in ROLES}
    return library, library.to_str(), {role: token for role, token in named.items() if token}
