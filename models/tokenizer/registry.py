"""Finds the tokenizer of a checkpoint's folder: BERT's from a table of words, any other from the library."""

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import Prompt
from beamrank.storage import files as storage
from models.checkpoints.check import Checkpoint
from models.checkpoints.files import CONFIG, TOKENIZER_FILES
from models.checkpoints.sources import locate
from models.tokenizer.bert import load_bert
from models.tokenizer.conversion import convert
from models.tokenizer.definition import read_definition
from models.tokenizer.files import FAST, VOCABULARY, named_tokens, read_config, read_fast
from models.tokenizer.library import LibraryTokenizer
from models.tokenizer.protocol import Tokenizer
from models.tokenizer.vocabulary import names_bert, why_not_bert


def load_tokenizer(folder: str, prompt: Prompt | None = None) -> Tokenizer:
    """Loads the tokenizer of a Hugging Face folder. No code of the folder is run.

    Args:
        folder: the folder.
        prompt: the fixed text around texts, if the model reads one.

    Raises:
        PreflightError: the folder has no tokenizer, or one that cannot be used.
    """
    config, url = read_config(folder), storage.join(folder, FAST)
    if storage.exists(url):
        original, content = read_fast(url)
        if prompt is None and why_not_bert(original) is None:
            return load_bert(folder)
        return LibraryTokenizer(read_definition(url, original, content, named_tokens(folder, config), prompt))
    present = [name for name in TOKENIZER_FILES if storage.exists(storage.join(folder, name))]
    if prompt is None and VOCABULARY in present and names_bert(config):
        return load_bert(folder)
    if not set(present) - {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}:
        raise PreflightError(
            f"{folder} has no tokenizer: neither {FAST} nor a vocabulary ({VOCABULARY}, a SentencePiece model, or "
            "vocab.json with merges.txt). Give a checkpoint with its tokenizer's files"
        )
    return LibraryTokenizer(read_definition(folder, *convert(folder), prompt))


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """A checkpoint's tokenizer.

    Raises:
        PreflightError: it cannot be used, or does not fit the checkpoint's model.
    """
    tokenizer = load_tokenizer(checkpoint.folder, checkpoint.architecture.prompt)
    checkpoint.check_tokenizer(tokenizer.vocab_size, tokenizer.special)
    return tokenizer


def warnings_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """What the user of a checkpoint should know about its model, and about how its tokenizer fits it.

    Raises:
        PreflightError: as `tokenizer_of`.
    """
    tokenizer = load_tokenizer(checkpoint.folder, checkpoint.architecture.prompt)
    fit = checkpoint.check_tokenizer(tokenizer.vocab_size, tokenizer.special)
    return (*checkpoint.architecture.warnings, *fit)


def fetch_tokenizer(reference: str, prompt: Prompt | None = None) -> Tokenizer:
    """The tokenizer of a checkpoint, of which only the small files are brought to this machine.

    Args:
        reference: names the checkpoint.
        prompt: as for `load_tokenizer`.

    Raises:
        ConfigError: the reference can carry a credential.
        PreflightError: the checkpoint cannot be reached, or its tokenizer not be used.
    """
    folder, _ = locate(reference, (CONFIG, *TOKENIZER_FILES))
    return load_tokenizer(folder, prompt)
