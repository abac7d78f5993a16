"""The stages that re-rank docs by the vectors of an encoder.

A score is the similarity that the checkpoint names, of vectors that the stage makes of the texts
itself: nothing is indexed.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from beamrank.commit.working import shard_at_work
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.config.stages import PointwiseConfig
from beamrank.errors import PreflightError
from beamrank.machine import usable_threads
from beamrank.section import CheckpointName
from contrib.encoders.checkpoint import EncoderCheckpoint, libraries
from models.stages.base import Key, Worker
from models.stages.compute import Computed, ShardInputs
from models.stages.planning import Planning, threads_of
from models.stages.scoring import check_planned
from models.stages.text_stage import Scores, TextPairs, TextStage

if TYPE_CHECKING:
    from contrib.encoders.encoder import Encoder


class EncoderConfig(PointwiseConfig):
    """An encoder."""

    short = "checkpoint"
    checkpoint: CheckpointName
    """A Hugging Face id, a folder or its URL."""


@dataclass(frozen=True, kw_only=True)
class EncoderStage(TextStage):
    """Scores a doc by its vectors and those of the query. A candidate counts as an inference,
    although its doc may have been encoded for another query.
    """

    section = EncoderConfig
    worker = Worker.MODEL

    checkpoint_digest: Annotated[str, Key("{own_name}.checkpoint")]
    libraries: Annotated[dict[str, str], Key("versions of libraries")]
    backend: Annotated[str, Key("backend")] = "sentence-transformers"
    device: Annotated[str, Key("device")]
    dtype: Annotated[str, Key("dtype")] = "float32"
    checkpoint: str
    threads: int
    gpu: int | None = None

    @classmethod
    def read_checkpoint(cls, own: ConfiguredStage, config: RunConfig) -> EncoderCheckpoint:  # noqa: ARG003
        libraries()
        return EncoderCheckpoint.read(own.section.checkpoint, cls.type_name)

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        checkpoint: EncoderCheckpoint = planning.checkpoints[own.name]
        kind, _, number = planning.device.device.partition(":")
        return super().settings(own, planning) | {
            "checkpoint": checkpoint.reference,
            "checkpoint_digest": checkpoint.digest,
            "libraries": libraries(),
            "device": kind,
            "gpu": int(number) if number else None,
            "threads": threads_of(planning.config),
        }

    @property
    def reuses(self) -> bool:
        """Whether it reuses scores of earlier runs: on a GPU a score depends on its batch."""
        return self.device == "cpu"

    def compute(self, inputs: ShardInputs) -> Computed:
        """Raises DataError where the checkpoint's files changed, so that nothing is committed."""
        checkpoint = inputs.opened(self.resolved)
        with ExitStack() as unchanged:
            for file in checkpoint.files:
                unchanged.enter_context(file.unchanged())
            return super().compute(inputs)

    def score(self, inputs: ShardInputs, texts: TextPairs) -> Scores:
        return inputs.opened(self.open).score(*texts, shard_at_work().add)

    def resolved(self) -> EncoderCheckpoint:
        """The checkpoint on this machine; raises PreflightError where it is not the one that was
        planned.
        """
        return _checkpoint(self.checkpoint, self.type_name, self.checkpoint_digest)

    def open(self) -> "Encoder":
        """This process's encoder, loaded again where a file was written.

        Raises:
            PreflightError: this machine's libraries are others than the plan's.
        """
        found = libraries()
        if found != self.libraries:
            raise PreflightError(
                f"the run was planned with {_listed(self.libraries)}, and this machine has "
                f"{_listed(found)}, whose vectors can differ: install the same versions everywhere"
            )
        checkpoint = self.resolved()
        versions = tuple(file.find_version() for file in checkpoint.files)
        device = self.device if self.gpu is None else f"{self.device}:{self.gpu}"
        threads = usable_threads(self.threads)
        return _encoder(self.type_name, checkpoint.folder, versions, device, threads)


class Dense(EncoderStage):
    """By one vector of a text."""

    type_name = "dense"


class Sparse(EncoderStage):
    """By weights of the words of a vocabulary."""

    type_name = "sparse"


class Late(EncoderStage):
    """By a vector of each token: late interaction."""

    type_name = "late"


def _listed(versions: Mapping[str, str]) -> str:
    return " and ".join(f"{name} {version}" for name, version in sorted(versions.items()))


@lru_cache(maxsize=1)
def _checkpoint(reference: str, stage: str, digest: str) -> EncoderCheckpoint:
    checkpoint = EncoderCheckpoint.read(reference, stage)
    check_planned(reference, checkpoint.digest, digest)
    return checkpoint


# The versions of its files name a model that was written anew.
@lru_cache(maxsize=1)
def _encoder(
    stage: str,
    folder: str,
    versions: tuple[str, ...],  # noqa: ARG001
    device: str,
    threads: int,
) -> "Encoder":
    # With torch.
    from contrib.encoders.encoder import Encoder

    return Encoder(stage, folder, device, threads)
