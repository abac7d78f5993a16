"""Checks before a training resumes: whose state it is, and whose model its output folder holds."""

import os
from typing import Any

from beamrank.errors import ConfigError, PreflightError
from beamrank.storage import files as storage
from models.checkpoints.files import CONFIG, WEIGHTS
from models.training.config import Kind, TrainConfig
from models.training.data.store import data_files
from models.training.initial_model import Start
from models.training.loop.distributed import Processes
from models.training.report_section import FOLDER

# Options that may change when a training resumes, because they do not decide what is learned.
_FREE: dict[str, bool | set[str]] = {
    **dict.fromkeys(("output", "save_minutes", "card", "threads", "device"), True),
    "data": {"max_bad_rows"},
}


def training_identity(config: TrainConfig, kind: Kind, start: Start, processes: Processes) -> dict[str, Any]:
    """The settings that a training must share with the state that it resumes, by dotted key.

    Raises:
        PreflightError: a file of the data cannot be reached.
    """
    try:
        files = [*data_files(config.data), *(data_files(config.dev) if config.dev else ())]
        sizes = {url: storage.size_bytes(url) for url in files}
    except FileNotFoundError as error:
        raise PreflightError(f"there is no file {error.filename or error}: the training data names it") from error
    except OSError as error:
        raise PreflightError(f"cannot read the training data: {error}") from error
    also = {"kind": kind, "start digest": start.digest, "processes": processes.count, "bytes": sizes}
    return _flat(config.model_dump(mode="json", exclude=_FREE)) | _flat(also)


def check_output(output: str, start_folder: str) -> None:
    """Checks that the output folder holds no model of something else.

    Raises:
        ConfigError: it is the start folder, or another model would be overwritten.
    """
    if os.path.realpath(output) == os.path.realpath(start_folder):
        raise ConfigError(f"output: {output} is also the start, which would be overwritten: give another folder")
    found = [name for name in (CONFIG, *WEIGHTS) if os.path.exists(os.path.join(output, name))]
    if found and not os.path.isdir(os.path.join(output, FOLDER)):
        raise ConfigError(
            f"output: {output} holds a model that was not made by a training here ({found[0]} without {FOLDER}/) and "
            "would be overwritten: give another folder, or remove it"
        )


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, each in value.items():
        found |= _flat(each, f"{prefix}{key}.") if isinstance(each, dict) else {prefix + key: each}
    return found
