"""What stages are made from: the configuration with its checkpoints and device."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from beamrank.config.run import JobConfig, RunConfig
from beamrank.machine import usable_cores
from beamrank.notes import Progress
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
        checkpoints: by the names of the stages that have one (`Stage.read_checkpoint`).
        device: where models compute.
        progress: receives notes.
        builds: whether an index is built that does not exist; otherwise its digest stays empty.
        tokens: the stages that make the tokens of others, by the names of these.
        before: the stages that rank before the one that is made, in order.
    """

    config: RunConfig
    corpus_digest: str
    checkpoints: Mapping[str, Any]
    device: Device
    progress: PlanningProgress
    builds: bool = True
    tokens: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[Any] = ()


def threads_of(config: JobConfig) -> int:
    """The number of threads of a worker, for torch and Lucene alike."""
    return config.threads or usable_cores()
