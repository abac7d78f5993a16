"""Finds the tokenizer of a folder: BERT's from a table of words, any other from the library."""

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import Prompt
from beamrank.storage import files as storage
from models.tokenizers.bert import load_bert
from models.tokenizers.conversion import convert
from models.tokenizers.definition import read_definition
from models.tokenizers.files import (
    FAST,
    TOKENIZER_FILES,
    VOCABULARY,
    added_tokens,
    named_tokens,
    read_config,
    read_fast,
)
from models.tokenizers.library import LibraryTokenizer
from models.tokenizers.protocol import Tokenizer
from models.tokenizers.vocabulary import names_bert, why_not_bert


def load_tokenizer(folder: str, prompt: Prompt | None = None) -> Tokenizer:
    """Loads the tokenizer of a Hugging Face folder. No code of the folder is run.

    Args:
        folder: the folder.
        prompt: the fixed text around texts, if the model reads one.

    Raises:
        PreflightError: the folder has no tokenizer, or one that cannot be used.
    """
    config, url = read_config(folder), storage.join(folder, FAST)
    named, added = named_tokens(folder, config), added_tokens(folder, config)
    if storage.exists(url):
        original, content = read_fast(url)
        if prompt is not None or added <= {token.content for token in original.get_added_tokens_decoder().values()}:
            if prompt is None and why_not_bert(original, named) is None:
                return load_bert(folder)
            return LibraryTokenizer(read_definition(url, original, content, named, prompt))
    present = [name for name in TOKENIZER_FILES if storage.exists(storage.join(folder, name))]
    if prompt is None and FAST not in present and VOCABULARY in present and names_bert(config) and not added:
        return load_bert(folder)
    if not set(present) - {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}:
        raise PreflightError(
            f"{folder} has no tokenizer: neither {FAST} nor a vocabulary ({VOCABULARY}, a SentencePiece model, or "
            "vocab.json with merges.txt). Give a checkpoint with its tokenizer's files"
        )
    return LibraryTokenizer(read_definition(folder, *convert(folder), prompt))
