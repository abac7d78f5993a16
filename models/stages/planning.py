"""The inputs that stages are made from: the configuration, and the checkpoints and device that it resolves to."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from beamrank.config.models import ModelConfig
from beamrank.config.run import RunConfig
from beamrank.config.score import JobConfig
from beamrank.errors import PreflightError
from beamrank.machine import usable_cores
from beamrank.progress import Progress
from models.checkpoints.checkpoint import Checkpoint, resolve_checkpoint
from models.scoring.backends.protocol import Device


class PlanningProgress(Progress, Protocol):
    """Receives the progress of planning a run."""

    def bar(self, name: str, /) -> AbstractContextManager[Progress]:
        """The progress of a long operation."""


@dataclass(frozen=True)
class Planning:
    """The inputs of the stages of one run; `checkpoints` are by the names of the stages."""

    config: RunConfig
    corpus_digest: str
    checkpoints: Mapping[str, Checkpoint]
    device: Device
    progress: PlanningProgress


def threads_of(config: JobConfig) -> int:
    """The number of threads of a worker, for torch and Lucene alike."""
    return config.threads or usable_cores()


def resolve_checkpoints(config: RunConfig) -> dict[str, Checkpoint]:
    """The checkpoints of a configuration, by stage.

    Raises:
        PreflightError: one is missing, or does not fit the configuration.
    """
    models = [each for each in config.stages if isinstance(each.section, ModelConfig)]
    found = {}
    for name, kind, section in models:
        checkpoint = resolve_checkpoint(section.checkpoint, kind)
        checkpoint.check_length(config.input.max_length, config.input.truncation)
        checkpoint.check_weights()
        if checkpoint.doc_parts > 1 and getattr(section, "segments", None):
            raise PreflightError(
                f"the checkpoint {checkpoint.reference} cuts a doc into {checkpoint.doc_parts} parts itself, as it was "
                f"trained to: leave out {name}.segments"
            )
        found[name] = checkpoint
    return found
