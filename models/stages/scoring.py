"""The bases of stages with a model: checkpoint, device, and the limits of inputs."""

import json
import logging
import time
from collections.abc import Hashable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import JobConfig, RunConfig
from beamrank.config.stages import ModelConfig
from beamrank.errors import PreflightError
from beamrank.machine import is_cuda, usable_threads
from beamrank.ranking.input_layout import INPUT_TEXTS, InputLimits, InputTemplate, Truncation
from models.checkpoints.checkpoint import Checkpoint, resolve_checkpoint, tokenizer_of
from models.scoring.answers import Answered
from models.scoring.backends.registry import Device, choose_kernel, find_backend, resolve_backend
from models.scoring.engine import NO_SCORES, Prepared, ScoringEngine
from models.stages.base import Key, Stage, Worker
from models.stages.compute import Computed, ShardInputs
from models.stages.planning import Planning, threads_of

_log = logging.getLogger(__name__)


class ModelLoad(NamedTuple):
    """A model that was loaded: how long that took, and the size of its weights file."""

    seconds: float
    weights_bytes: int


_loads: list[ModelLoad] = []
# The engine of this process, if it has one, by what decides it.
_engines: dict[Hashable, ScoringEngine] = {}
# Shards that are done at a time share one engine.
_LOADING = Lock()


@dataclass(frozen=True, kw_only=True)
class ModelStage(Stage):
    """A stage with a model of ours, which scores the tokens of the docs that it receives by inputs
    of `input_docs` docs.
    """

    input_docs = 1

    checkpoint_digest: Annotated[str, Key("{own_name}.checkpoint")]
    truncation: Annotated[Truncation, Key("input.truncation")]
    max_query_length: Annotated[int, Key("input.max_query_length")]
    max_length: Annotated[int, Key("input.max_length")]
    backend: Annotated[str, Key("backend")]
    backend_keys: Annotated[dict[str, str], Key("backend")]
    kernel: Annotated[str, Key("kernel")]
    device: Annotated[str, Key("device")]
    dtype: Annotated[str, Key("dtype")]
    token_budget: int
    checkpoint: str
    threads: int
    gpu: int | None = None
    # The checkpoint's digest covers them.
    instruction: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    # The special tokens of an input, and how many parts the model cuts a doc into: reports tell
    # which docs are cut.
    start_tokens: int
    end_tokens: tuple[int, ...]
    doc_parts: int

    needs: ClassVar[Literal["tokens"] | None] = "tokens"
    worker = Worker.MODEL

    @classmethod
    def read_checkpoint(cls, own: ConfiguredStage, config: RunConfig) -> Checkpoint | None:
        section = own.section
        # The section of a stage that scores with the model of the one before has none.
        if not isinstance(section, ModelConfig):
            return None
        instruction = getattr(section, "instruction", None)
        checkpoint = resolve_checkpoint(
            section.checkpoint, kind_of(cls), instruction, section.options
        )
        checkpoint.check_length(config.input.max_length, config.input.truncation)
        checkpoint.check_weights()
        return checkpoint

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        checkpoint = planning.checkpoints[own.name]
        model = cls.model_settings(planning.config, checkpoint, planning.device)
        return super().settings(own, planning) | model

    @classmethod
    def model_settings(
        cls, config: JobConfig, checkpoint: Checkpoint, device: Device
    ) -> dict[str, Any]:
        """The settings that every model has."""
        backend = resolve_backend(config.backend)
        kind, _, number = device.device.partition(":")
        template = checkpoint.architecture.template(tokenizer_of(checkpoint).special)
        return {
            **config.input.limits._asdict(),
            "checkpoint_digest": checkpoint.digest,
            "checkpoint": checkpoint.reference,
            "backend": backend,
            "backend_keys": dict(find_backend(backend).digest_keys),
            "kernel": choose_kernel(config.kernel, checkpoint.architecture, backend, device),
            # Which GPU decides nothing.
            "device": kind,
            "gpu": int(number) if number else None,
            "dtype": device.dtype,
            "token_budget": device.token_budget,
            "threads": threads_of(config),
            "start_tokens": len(template.start),
            "end_tokens": tuple(map(len, template.ends)),
            "doc_parts": template.doc_parts,
        }

    @property
    def shards_at_a_time(self) -> int:
        """On a GPU, one shard is read and another committed while one is scored."""
        return 3 if is_cuda(self.device) else 1

    @property
    def kind(self) -> str:
        """The use of the checkpoint, `mono` or `duo`."""
        return kind_of(type(self))

    def resolved(self) -> Checkpoint:
        """The checkpoint on this machine; raises PreflightError where it is not the one that was
        planned.
        """
        options = json.dumps(self.options, sort_keys=True)
        return _checkpoint(
            self.checkpoint, self.checkpoint_digest, self.kind, self.instruction, options
        )

    def open(self) -> ScoringEngine:
        """This process's engine, loaded again where a file was written: weights are mapped into
        memory.
        """
        checkpoint = self.resolved()
        device = self.device if self.gpu is None else f"{self.device}:{self.gpu}"
        settings = (
            device,
            self.dtype,
            usable_threads(self.threads),
            self.token_budget,
            self.backend,
            self.kernel,
        )
        key = (self.checkpoint_digest, checkpoint.find_versions(), self.kind, settings)
        with _LOADING:
            if key not in _engines:
                _engines.clear()
                start = time.monotonic()
                with checkpoint.unchanged():
                    _engines[key] = ScoringEngine(checkpoint, *settings)
                _loads.append(ModelLoad(time.monotonic() - start, checkpoint.weights_bytes))
                _log.info(
                    "loaded %s in %.3f s: %s, %s, attention by %s",
                    checkpoint.reference,
                    _loads[-1].seconds,
                    device,
                    self.dtype,
                    self.kernel,
                )
            return _engines[key]

    @property
    def limits(self) -> InputLimits:
        """The truncation rule of inputs and its lengths."""
        return InputLimits(self.truncation, self.max_query_length, self.max_length)

    def _metadata(self) -> dict[str, str]:
        """The settings behind the scores, in each part."""
        return {
            "checkpoint": self.checkpoint_digest,
            "dtype": self.dtype,
            "truncation": self.truncation,
            "max_query_length": str(self.max_query_length),
            "max_length": str(self.max_length),
        }

    @property
    def reuses(self) -> bool:
        """Whether it reuses scores of earlier runs: on a GPU a score depends on its batch."""
        return self.device == "cpu" or self.any_processor

    @property
    def input_lengths(self) -> InputTemplate:
        """A template with as many special tokens as that of the checkpoint, which is not opened."""
        ends = tuple((0,) * count for count in self.end_tokens)
        return InputTemplate(
            (0,) * self.start_tokens, ends, token_types=(), pad_id=0, doc_parts=self.doc_parts
        )

    def compute(self, inputs: ShardInputs) -> Computed:
        """Scores what no earlier part answers; raises DataError where the checkpoint's files
        changed, so that nothing is committed.
        """
        # A model that is loaded already is not read again.
        read = nullcontext() if inputs.model else inputs.opened(self.resolved).unchanged()
        with read:
            answered = self.answered(inputs)
            scores = NO_SCORES
            if len(answered.rest):
                scores = (inputs.model or inputs.opened(self.open)).score(answered.rest)
        part, counts = answered.finish(scores)
        return Computed(part.replace_schema_metadata(self._metadata()), asdict(counts))

    def checkpoint_of(self, inputs: ShardInputs) -> Checkpoint:
        """The checkpoint of the model."""
        checkpoint: Checkpoint = inputs.model.checkpoint if inputs.model else self.resolved()
        return checkpoint

    def count(self, inputs: ShardInputs) -> int:
        return len(self.answered(inputs).rest)

    def answered(self, inputs: ShardInputs) -> Answered:
        """The inputs of a shard, with what earlier parts answer."""
        return Answered.of(self.prepare(inputs), inputs.find if inputs.earlier else None)

    @property
    def most_tokens(self) -> int:
        """How many tokens of a doc an input has at most."""
        return self.max_length * self.doc_parts

    def prepare(self, inputs: ShardInputs) -> Prepared:
        """The inputs of one shard, of the docs in `received(inputs)`, and what makes its rows of
        their scores.
        """
        # A stage with a `compute` of its own has none.
        raise NotImplementedError


def kind_of(stage: type[Stage]) -> str:
    """The use of a stage's checkpoint, `mono` or `duo`, by the docs of an input."""
    return [*INPUT_TEXTS][stage.input_docs - 1]


@lru_cache(maxsize=1)
def _checkpoint(
    reference: str, digest: str, kind: str, instruction: str | None, options: str
) -> Checkpoint:
    checkpoint = resolve_checkpoint(reference, kind, instruction, json.loads(options))
    check_planned(reference, checkpoint.digest, digest)
    return checkpoint


def check_planned(reference: str, digest: str, planned: str) -> None:
    """Raises PreflightError where a checkpoint is not the one that was planned."""
    if digest != planned:
        raise PreflightError(
            f"the checkpoint {reference} changed since the run was planned: its digest is "
            f"{digest[:12]}, the plan has {planned[:12]}. Scores of two models would be "
            "mixed: start the run again to plan it again"
        )


def new_loads() -> list[ModelLoad]:
    """The models that this process has loaded since the last call."""
    taken = _loads[:]
    del _loads[: len(taken)]
    return taken
