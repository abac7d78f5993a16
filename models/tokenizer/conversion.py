"""Makes a tokenizer.json of the other files that a tokenizer may come as, with transformers."""

import os
from typing import Any

from beamrank.errors import PreflightError
from models.sentencepiece_format import provide_sentencepiece_format


def convert(folder: str) -> tuple[Any, str, dict[str, str]]:
    """Converts the tokenizer of a local folder; neither code of the folder nor the network is used.

    Returns:
        The library's tokenizer, its JSON, and the special tokens that transformers names, by role.

    Raises:
        PreflightError: transformers cannot convert it.
    """
    from transformers import AutoTokenizer

    advice = (
        "save its tokenizer.json where it can be loaded (`AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)`) "
        "and add it to the checkpoint"
    )
    refusal = f"{folder} has no tokenizer.json, and"
    provide_sentencepiece_format()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # The errors of damaged files are of any type.
    except Exception as error:
        raise PreflightError(
            f"{refusal} transformers cannot make one of its other files: "
            f"{type(error).__name__}: {error!s:.400}; {advice}"
        ) from error
    if not tokenizer.is_fast:
        raise PreflightError(
            f"{refusal} its {type(tokenizer).__name__} is Python code without a counterpart "
            f"in the tokenizers library: {advice}"
        )
    needed = [name for kind, name in tokenizer.vocab_files_names.items() if kind != "tokenizer_file"]
    missing = [name for name in needed if not os.path.isfile(os.path.join(folder, name))]
    # transformers makes a tokenizer without words where it finds none.
    if missing or tokenizer.vocab_size <= len(tokenizer.all_special_ids):
        found = f"lacks {' and '.join(missing)}" if missing else f"has no words in {' and '.join(needed)}"
        raise PreflightError(f"{refusal} its {type(tokenizer).__name__} {found}: {advice}")
    library = tokenizer.backend_tokenizer
    named = {role: getattr(tokenizer, f"{role}_token") for role in ("unk", "cls", "sep", "pad")}
    return library, library.to_str(), {role: token for role, token in named.items() if token}
