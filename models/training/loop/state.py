"""A training's state on disk, from which it resumes as if it had never been interrupted.

A state is a folder, `state-STEP`, renamed into place when complete: weights, moments of the optimizer, the random
numbers of each process (all as safetensors) and state.json, which has the hash of each file. Nothing in it is a pickle.
"""

import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from beamrank.errors import ConfigError, PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import checked_json, checked_values, validated
from models.training.data.groups import Position
from models.training.loop.distributed import Processes
from models.training.loop.optimizer import BertAdam, copy_matching
from models.training.loop.publishing import synced_hash

_PREFIX = "state-"
_WEIGHTS, _MOMENTS, _STATE = "weights.safetensors", "moments.safetensors", "state.json"


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
        data: a digest of the mined data; empty if the data is streamed.
        published: the hashes of the files of the model that was published, by name.
    """

    step: int = 0
    position: Position = field(default_factory=dict)
    best_step: int = 0
    best_value: float = -1.0
    seconds: float = 0.0
    finished: bool = False
    data: str = ""
    published: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Document:
    """state.json: the identity of the training, its progress, and the hashes of the other files by name."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    identity: dict[str, Any]
    progress: TrainState
    files: dict[str, str]


_DOCUMENT = TypeAdapter(_Document)


class StateFolder:
    """The states of one training."""

    def __init__(self, folder: str, identity: dict[str, Any], processes: Processes) -> None:
        """Takes the folder, and the identity that a training must share with the one that it resumes."""
        self._folder = Path(folder)
        self._identity = identity
        self._processes = processes

    def save(self, model: torch.nn.Module, optimizer: BertAdam, state: TrainState) -> None:
        """Writes a state; every process must call this."""
        final, temporary = self._names(state)
        self._begin(temporary)
        self._processes.wait()
        save_file(_random_state(self._processes.device), temporary / _random_name(self._processes.rank))
        self._processes.wait()
        if self._processes.first:
            save_file(
                {name: each.detach().contiguous() for name, each in model.named_parameters()}, temporary / _WEIGHTS
            )
            save_file(optimizer.state(), temporary / _MOMENTS)
            self._publish(temporary, final, state)
        self._processes.wait()

    def finish(self, state: TrainState) -> None:
        """Replaces the state by a note that the training is complete."""
        final, temporary = self._names(state)
        self._begin(temporary)
        if self._processes.first:
            self._publish(temporary, final, state)
        self._processes.wait()

    def read(self) -> TrainState:
        """The progress of the training; step 0 if there is no state. Every file of the state is checked.

        Raises:
            ConfigError: the state is that of another training.
            PreflightError: a file is missing, was changed or is damaged.
        """
        newest = self._newest()
        if newest is None:
            return TrainState()
        try:
            document = validated(_DOCUMENT, checked_values((newest / _STATE).read_bytes()))
        except (OSError, ValueError) as error:
            raise _unusable(newest / _STATE, str(error)) from error
        for name, expected in document.files.items():
            try:
                found = storage.sha256(str(newest / name))
            except OSError as error:
                raise _unusable(newest / name, str(error)) from error
            if found != expected:
                raise _unusable(newest / name, "it was changed after it was written")
        _compare(document.identity, self._identity, newest)
        return document.progress

    def restore(self, model: torch.nn.Module, optimizer: BertAdam) -> None:
        """Loads weights, moments and random numbers from the newest state.

        Raises:
            PreflightError: one of its files cannot be read.
        """
        newest = self._newest()
        assert newest is not None
        try:
            copy_matching(load_file(newest / _WEIGHTS), dict(model.named_parameters()))
            optimizer.restore(load_file(newest / _MOMENTS))
            random = load_file(newest / _random_name(self._processes.rank))
            torch.set_rng_state(random["cpu"])
            # A state that was written on a CPU has no random numbers of a GPU.
            if self._processes.device == "cuda" and "cuda" in random:
                torch.cuda.set_rng_state(random["cuda"])
        except (OSError, KeyError, RuntimeError, ValueError, TypeError, SafetensorError) as error:
            raise _unusable(newest, repr(error)) from error

    def _names(self, state: TrainState) -> tuple[Path, Path]:
        name = f"{_PREFIX}{state.step:08d}"
        return self._folder / name, self._folder / f".{name}.tmp"

    def _begin(self, temporary: Path) -> None:
        if self._processes.first:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)

    def _publish(self, temporary: Path, final: Path, state: TrainState) -> None:
        hashes = {path.name: synced_hash(path) for path in sorted(temporary.iterdir())}
        (temporary / _STATE).write_bytes(checked_json(asdict(_Document(self._identity, state, hashes))))
        synced_hash(temporary / _STATE)
        if final.exists():
            final.rename(temporary.with_suffix(".old"))
        temporary.rename(final)
        # Including leftovers of killed processes.
        for path in [*self._states(), *self._folder.glob(f".{_PREFIX}*")]:
            if path != final:
                shutil.rmtree(path)

    def _states(self) -> list[Path]:
        return sorted(self._folder.glob(f"{_PREFIX}*"))

    def _newest(self) -> Path | None:
        return max(self._states(), default=None)


def _random_name(rank: int) -> str:
    return f"random-{rank:05d}.safetensors"


def _random_state(device: str) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device == "cuda":
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _unusable(path: Path, reason: str) -> PreflightError:
    folder = path if path.name.startswith(_PREFIX) else path.parent
    return PreflightError(
        f"the training cannot resume: {path} cannot be used ({reason}). Restore it, or remove {folder} to start over"
    )


def _compare(found: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    different = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    if different:
        listed = "".join(f"\n  {key}: {found.get(key)!r} in the state, {wanted.get(key)!r} now" for key in different)
        raise ConfigError(
            f"{folder} is the state of another training:{listed}\nGive another output, or remove the folder to start "
            "over"
        )
