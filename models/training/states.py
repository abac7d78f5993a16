"""The states that a training writes to resume from, and the model that it publishes.

A state is a checkpoint of transformers' Trainer, complete where it holds state.json, which is
written last and has the hash of each other file: all are hashed before any is opened. A model is
first recorded by its hashes in a state, then moved to the output folder, so that a training that is
killed in between completes the move when it resumes.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beamrank.commit.listing import TRAINING
from beamrank.errors import ConfigError, PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import Document
from models.checkpoints.files import CONFIG, SAFETENSORS
from models.tokenizers.files import TOKENIZER_FILES

_PREFIX, _STATE = "checkpoint-", "state.json"
# A pickle that Trainer writes, and that nothing reads.
_UNREAD = "training_args.bin"
# The weights last: where these are, the others are too.
_PUBLISHED = (CONFIG, *TOKENIZER_FILES, SAFETENSORS)


@dataclass
class TrainState:
    """The progress of a training.

    Attributes:
        step: how many steps are done.
        position: the position in the data.
        best_step: the step after which the best model was measured; 0 if none was.
        best_value: the dev measure of that model.
        seconds: the duration of the training so far.
        finished: whether the training is complete.
        data: a digest of the data.
        published: the hashes of the files of the model that was published, by name.
    """

    step: int = 0
    position: int = 0
    best_step: int = 0
    best_value: float = -1.0
    seconds: float = 0.0
    finished: bool = False
    data: str = ""
    published: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Document(Document):
    """state.json: the identity of the training, its progress, and the hashes of the other files by
    name.
    """

    identity: dict[str, Any]
    progress: TrainState
    files: dict[str, str]


class StateFolder:
    """The states of one training, in a folder."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        """`identity` is what a training must share with the one that it resumes."""
        self.path, self._identity = folder, identity

    def read(self) -> TrainState:
        """The progress of the training; step 0 if there is no state. Every file of the state is
        checked.
        """
        newest = self.newest()
        if newest is None:
            return TrainState()
        document = _Document.from_json((newest / _STATE).read_bytes())
        expected = {} if document is None else document.files
        names = {path.name for path in newest.iterdir()} - {_STATE} | expected.keys()
        wrong = [name for name in sorted(names) if not _has_hash(newest / name, expected.get(name))]
        if document is None or wrong:
            raise PreflightError(
                f"the training cannot resume: {newest / (wrong[0] if document else _STATE)} "
                "cannot be used (it is missing, damaged, or was changed or added after the state "
                f"was written). Restore it, or remove {newest} to start over"
            )
        stored, now = document.identity, self._identity
        different = sorted(
            key for key in stored.keys() | now.keys() if stored.get(key) != now.get(key)
        )
        if different:
            listed = "".join(
                f"\n  {key}: {stored.get(key)!r} in the state, {now.get(key)!r} now"
                for key in different
            )
            raise ConfigError(
                f"{newest} is the state of another training:{listed}\nGive another output, or "
                "remove the folder to start over"
            )
        return document.progress

    def newest(self) -> Path | None:
        """The newest complete state."""
        steps = {
            int(number): path
            for path in self._states()
            if (number := path.name.removeprefix(_PREFIX)).isdigit() and (path / _STATE).exists()
        }
        return steps.get(max(steps, default=0))

    def is_unfinished(self) -> bool:
        """Whether there are files of a state that was not completed, or lost its state.json, and no
        complete one.
        """
        return self.newest() is None and bool(self._states())

    def complete(self, state: TrainState) -> None:
        """Completes the checkpoint of a step, and removes all others; of a finished training it is
        without weights.
        """
        folder = self.path / f"{_PREFIX}{state.step}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _UNREAD).unlink(missing_ok=True)
        hashes = {
            path.name: synced_hash(path) for path in sorted(folder.iterdir()) if path.name != _STATE
        }
        storage.replace(str(folder / _STATE), _Document(self._identity, state, hashes).to_json())
        for path in self._states():
            if path != folder:
                shutil.rmtree(path)

    def _states(self) -> list[Path]:
        return list(self.path.glob(f"{_PREFIX}*"))


def synced_hash(path: Path) -> str:
    """The SHA-256 of a file that was just written, in hex; its content is on the disk
    afterwards.
    """
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def candidate_folder(output: str) -> Path:
    """The folder of a model before it is published to the output folder."""
    return Path(output, TRAINING, "candidate")


def candidate_hashes(output: str) -> dict[str, str]:
    """The hashes of the files of a model that is to be published, by name."""
    folder = candidate_folder(output)
    return {name: synced_hash(folder / name) for name in _PUBLISHED if (folder / name).exists()}


def publish(output: str, hashes: Mapping[str, str], *, dry_run: bool = False) -> None:
    """Moves the files of a candidate that are not there yet to the output folder, each
    atomically.
    """
    candidate, folder = candidate_folder(output), Path(output)
    missing = [
        name for name in _PUBLISHED if name in hashes and not _has_hash(folder / name, hashes[name])
    ]
    for name in missing:
        if not _has_hash(candidate / name, hashes[name]):
            raise PreflightError(
                f"{folder / name} is not as the training wrote it: it was changed, damaged or "
                f"removed. Restore it, or remove the folder {folder}, or give another output, to "
                "train again"
            )
    if not dry_run:
        for name in missing:
            os.replace(candidate / name, folder / name)
        shutil.rmtree(candidate, ignore_errors=True)


def _has_hash(path: Path, expected: str | None) -> bool:
    try:
        return storage.sha256(str(path)) == expected
    except OSError:
        return False
