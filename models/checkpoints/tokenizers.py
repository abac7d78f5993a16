"""The tokenizer of a checkpoint."""

from beamrank.ranking.input_layout import Prompt
from models.checkpoints.check import Checkpoint
from models.checkpoints.files import CONFIG
from models.checkpoints.sources import locate
from models.tokenizer.files import TOKENIZER_FILES
from models.tokenizer.protocol import Tokenizer
from models.tokenizer.registry import load_tokenizer


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
