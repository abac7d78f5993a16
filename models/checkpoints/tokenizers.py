"""The tokenizer of a checkpoint."""

import os
from dataclasses import dataclass

from pydantic import StrictBool, TypeAdapter

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import Prompt
from beamrank.storage.documents import validated
from models.checkpoints.check import Checkpoint
from models.checkpoints.files import CONFIG, SENTENCE_TRANSFORMERS, TRANSFORMER, read_json
from models.checkpoints.sources import locate
from models.tokenizers.definition import check_prefix_space
from models.tokenizers.files import TOKENIZER_FILES
from models.tokenizers.protocol import Tokenizer
from models.tokenizers.registry import load_tokenizer


@dataclass(frozen=True)
class _Transformer:
    """The key of sentence-transformers' configuration of a model that changes texts."""

    do_lower_case: StrictBool = False


_TRANSFORMER = TypeAdapter(_Transformer)


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """A checkpoint's tokenizer.

    Raises:
        PreflightError: it cannot be used, or does not fit the checkpoint's model.
    """
    tokenizer = load_tokenizer(checkpoint.folder, checkpoint.architecture.prompt)
    checkpoint.check_tokenizer(tokenizer.vocab_size, tokenizer.special)
    check_prefix_space(checkpoint.folder)
    _check_case(checkpoint, tokenizer)
    return tokenizer


def warnings_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """What the user of a checkpoint should know about its model, and about how its tokenizer fits it.

    Raises:
        PreflightError: as `tokenizer_of`.
    """
    tokenizer = tokenizer_of(checkpoint)
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


def _check_case(checkpoint: Checkpoint, tokenizer: Tokenizer) -> None:
    """Raises PreflightError where sentence-transformers writes texts in lower case and the tokenizer does not."""
    path = os.path.join(checkpoint.folder, TRANSFORMER)
    if not os.path.isfile(path) or not os.path.isfile(os.path.join(checkpoint.folder, SENTENCE_TRANSFORMERS)):
        return
    try:
        lowers = validated(_TRANSFORMER, read_json(path)).do_lower_case
    except ValueError as error:
        raise PreflightError(f"{path} cannot be used: {error}") from error
    text = "The Quick BROWN Fox É"
    upper, lower = tokenizer.encode([text, text.lower()], 512).ids.to_pylist()
    if lowers and upper != lower:
        raise PreflightError(
            f"the checkpoint {checkpoint.reference} reads texts in lower case (do_lower_case in {TRANSFORMER}), and "
            "its tokenizer keeps capitals: its scores would be others. Give tokenizer.json a Lowercase normalizer"
        )
