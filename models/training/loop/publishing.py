"""The model that a training publishes: first recorded by its hashes in the state, then moved to the output folder.

So a training that is killed in between completes the move when it resumes, and a damaged model is found.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from beamrank.errors import PreflightError
from models.checkpoints.files import CONFIG, SAFETENSORS
from models.tokenizers.files import TOKENIZER_FILES

# The weights last: where these are, the others are too.
_NAMES = (CONFIG, *TOKENIZER_FILES, SAFETENSORS)


def synced_hash(path: Path) -> str:
    """The SHA-256 of a file that was just written, in hex; its content is on the disk afterwards."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def checkpoint_hashes(folder: Path) -> dict[str, str]:
    """The hashes of a checkpoint's files, by name."""
    return {name: synced_hash(folder / name) for name in _NAMES if (folder / name).exists()}


def unpublished(source: Path, folder: Path, hashes: Mapping[str, str]) -> list[str]:
    """The files of a checkpoint that are still to be moved from its source to its folder, in this order.

    Raises:
        PreflightError: a file is in neither, or was changed.
    """
    missing = [name for name in _NAMES if name in hashes and not _is(folder / name, hashes[name])]
    for name in missing:
        if not _is(source / name, hashes[name]):
            raise PreflightError(
                f"{folder / name} is not as the training wrote it: it was changed, damaged or removed. Restore it, or "
                f"remove the folder {folder}, or give another output, to train again"
            )
    return missing


def publish_checkpoint(source: Path, folder: Path, hashes: Mapping[str, str]) -> None:
    """Moves a checkpoint's files over an earlier one's, each atomically; or the rest of them.

    Raises:
        PreflightError: see `unpublished`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in unpublished(source, folder, hashes):
        os.replace(source / name, folder / name)
    shutil.rmtree(source, ignore_errors=True)


def _is(path: Path, expected: str) -> bool:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == expected
    except OSError:
        return False
