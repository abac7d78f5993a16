"""What stages are made from: the configuration with its checkpoints and device."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from beamrank.config.run import JobConfig, RunConfig
from beamrank.config.stages import ModelConfig
from beamrank.errors import PreflightError
from beamrank.machine import usable_cores
from beamrank.notes import Progress
from models.checkpoints.checkpoint import Checkpoint, resolve_checkpoint
from models.scoring.backends.registry import Device


class PlanningProgress(Progress, Protocol):
    """Receives the progress of planning a run."""

    def bar(self, name: str, /) -> AbstractContextManager[Progress]:
        """The progress of a long operation."""


@dataclass(frozen=True)
class Planning:
    """The inputs of the stages of one run.

    Attributes:
        config: the configuration.
        corpus_digest: of its corpus.
        checkpoints: by the names of the stages.
        device: where models compute.
        progress: receives notes.
        builds: whether an index is built that does not exist; otherwise its digest stays empty.
        tokens: the stages that make the tokens of others, by the names of these.
        before: the stages that rank before the one that is made, in order.
    """

    config: RunConfig
    corpus_digest: str
    checkpoints: Mapping[str, Checkpoint]
    device: Device
    progress: PlanningProgress
    builds: bool = True
    tokens: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[Any] = ()


def threads_of(config: JobConfig) -> int:
    """The number of threads of a worker, for torch and Lucene alike."""
    return config.threads or usable_cores()


def resolve_checkpoints(config: RunConfig) -> dict[str, Checkpoint]:
    """The checkpoints by stage; raises PreflightError where one is missing, or does not fit the
    configuration.
    """
    models = [each for each in config.cascade if isinstance(each.section, ModelConfig)]
    found = {}
    for name, kind, section in models:
        checkpoint = resolve_checkpoint(
            section.checkpoint, kind, getattr(section, "instruction", None), section.options
        )
        checkpoint.check_length(config.input.max_length, config.input.truncation)
        checkpoint.check_weights()
        if checkpoint.doc_parts > 1 and getattr(section, "segments", None):
            raise PreflightError(
                f"the checkpoint {checkpoint.reference} cuts a doc into {checkpoint.doc_parts} "
                f"parts itself, as it was trained to: leave out {name}.segments"
            )
        found[name] = checkpoint
    return found
