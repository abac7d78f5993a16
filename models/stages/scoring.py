"""The bases of stages with a model: checkpoint, device, and the limits of inputs."""

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum, auto
from functools import lru_cache
from threading import Lock
from typing import Annotated, Any, NamedTuple

import pyarrow as pa

from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import ShardTask
from beamrank.commit.stage import ScoringWork
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.device import is_cuda
from beamrank.config.run import RunConfig
from beamrank.config.score import JobConfig
from beamrank.errors import PreflightError
from beamrank.machine import usable_threads
from beamrank.ranking.input_layout import InputLimits, InputTemplate, Truncation
from models.checkpoints.checkpoint import Checkpoint, resolve_checkpoint, tokenizer_of
from models.scoring.backends.protocol import Device
from models.scoring.backends.registry import choose_backend, find_backend
from models.scoring.engine import Scorer, ScoringEngine, StageCounts
from models.scoring.known import CountingScorer, KnownScorer, KnownScores
from models.stages.base import Decides, LaterStage, ShardStage, Stage, Worker
from models.stages.earlier import EarlierScores
from models.stages.planning import Planning, threads_of

_log = logging.getLogger(__name__)


class ModelLoad(NamedTuple):
    """A model that was loaded: how long that took, and the size of its weights file."""

    seconds: float
    weights_bytes: int


class TakesFrom(Enum):
    """The machines from whose earlier scores a stage takes."""

    NONE = auto()
    SAME_KIND = auto()
    ALL = auto()


_loads: list[ModelLoad] = []
# Shards that are done at a time share one engine.
_LOADING = Lock()


@dataclass(frozen=True, kw_only=True)
class ModelStage(ShardStage):
    """A stage with one model."""

    checkpoint_digest: Annotated[str, Decides("{own_name}.checkpoint")]
    truncation: Annotated[Truncation, Decides("input.truncation")]
    max_query_length: Annotated[int, Decides("input.max_query_length")]
    max_length: Annotated[int, Decides("input.max_length")]
    backend: Annotated[str, Decides("backend")]
    backend_keys: Annotated[dict[str, str], Decides("backend")]
    device: Annotated[str, Decides("device")]
    dtype: Annotated[str, Decides("dtype")]
    token_budget: int
    checkpoint: str
    threads: int
    gpu: int | None = None

    @classmethod
    def model_settings(cls, config: JobConfig, checkpoint: Checkpoint, device: Device) -> dict[str, Any]:
        """The settings that every model has."""
        backend, device = choose_backend(config.backend, checkpoint.architecture, device)
        kind, _, number = device.device.partition(":")
        return {
            **config.input.model_dump(),
            "checkpoint_digest": checkpoint.digest,
            "checkpoint": checkpoint.reference,
            "backend": backend,
            "backend_keys": dict(find_backend(backend).digest_keys),
            # Which GPU decides nothing.
            "device": kind,
            "gpu": int(number) if number else None,
            "dtype": device.dtype,
            "token_budget": device.token_budget,
            "threads": threads_of(config),
        }

    @classmethod
    def worker_on(cls, device: str) -> Worker:
        return Worker.MODEL_ON_GPU if is_cuda(device) else Worker.MODEL_ON_CPU

    @property
    def worker(self) -> Worker:
        return self.worker_on(self.device)

    @property
    def shards_at_a_time(self) -> int:
        """On a GPU, one shard is read and another committed while one is scored."""
        return 3 if is_cuda(self.device) else 1

    @property
    @abstractmethod
    def kind(self) -> str:
        """The use of the checkpoint, `mono` or `duo`."""

    def resolved(self) -> Checkpoint:
        """The checkpoint on this machine.

        Raises:
            PreflightError: it is not the one that was planned.
        """
        return _checkpoint(self.checkpoint, self.checkpoint_digest, self.kind)

    def engine(self) -> ScoringEngine:
        """This process's engine, loaded again where a file was written: weights are mapped into memory."""
        versions = self.resolved().find_versions()
        device = self.device if self.gpu is None else f"{self.device}:{self.gpu}"
        with _LOADING:
            return _engine(
                self.checkpoint,
                self.checkpoint_digest,
                versions,
                self.kind,
                self.backend,
                device,
                self.dtype,
                usable_threads(self.threads),
                self.token_budget,
            )

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


@dataclass(frozen=True, kw_only=True)
class ScoringStage(LaterStage, ModelStage):
    """Scores the tokens of the docs that it receives. Its type_name is also the checkpoint's kind."""

    token_cost: int
    # The special tokens of an input, and how many parts the model cuts a doc into: reports tell which docs are cut.
    start_tokens: int
    end_tokens: tuple[int, ...]
    doc_parts: int

    @classmethod
    def shared_settings(
        cls, own: ConfiguredStage, planning: Planning, before: Sequence[Stage], tokens: str
    ) -> dict[str, Any]:
        """The settings that all stages with a model have; see `LaterStage.own_settings`."""
        checkpoint = planning.checkpoints[own.name]
        template = checkpoint.architecture.template(tokenizer_of(checkpoint).special)
        return {
            **cls.own_settings(own, before, tokens),
            **cls.model_settings(planning.config, checkpoint, planning.device),
            "token_cost": checkpoint.architecture.token_cost,
            "start_tokens": len(template.start),
            "end_tokens": tuple(map(len, template.ends)),
            "doc_parts": template.doc_parts,
        }

    @classmethod
    def worker_paths(cls, own: ConfiguredStage, config: RunConfig) -> dict[str, str]:  # noqa: ARG003
        return path_of_checkpoint(f"{own.name}.checkpoint", own.section.checkpoint)

    @property
    def kind(self) -> str:
        return self.type_name

    @property
    def takes_from(self) -> TakesFrom:
        """From machines of its own kind; on a GPU a score depends on its batch, and none is taken over."""
        return TakesFrom.SAME_KIND if self.device == "cpu" else TakesFrom.NONE

    @property
    def input_lengths(self) -> InputTemplate:
        """A template with as many special tokens as that of the checkpoint, which is not opened."""
        ends = tuple((0,) * count for count in self.end_tokens)
        return InputTemplate((0,) * self.start_tokens, ends, token_types=(), pad_id=0, doc_parts=self.doc_parts)

    @property
    def work(self) -> ScoringWork:
        return ScoringWork(self.k, 1, None, self.max_length, self.token_cost)

    def run(self, task: ShardTask) -> Receipt:
        """Scores one shard.

        Raises:
            DataError: the checkpoint's files changed, so that nothing is committed.
        """
        if not task.earlier:
            self.engine()
        start = time.monotonic()
        earlier, scorer, tokens = self._open(task, self.engine)
        with self.resolved().unchanged():
            table, counts = self.score(scorer, tokens, task)
        return task.commit(
            table.replace_schema_metadata(self._metadata()),
            seconds=time.monotonic() - start - scorer.load_seconds,
            counts=asdict(counts) | earlier.unused,
        )

    def prospect(self, task: ShardTask) -> StageCounts:
        """The counts that `run` will give; nothing is scored."""
        _, scorer, tokens = self._open(task, lambda: CountingScorer(self.resolved()))
        return self.score(scorer, tokens, task)[1]

    def _open(self, task: ShardTask, load: Callable[[], Scorer]) -> tuple[EarlierScores, KnownScorer, pa.Table]:
        """The earlier scores of a shard, a scorer that has them, and the tokens."""
        tokens = task.inputs[0].read()
        earlier = EarlierScores(task.earlier, tokens, self.known, self.takes_from is TakesFrom.ALL)
        return earlier, KnownScorer(self.resolved(), load, earlier), tokens

    @abstractmethod
    def score(self, engine: Scorer, tokens: pa.Table, task: ShardTask) -> tuple[pa.Table, StageCounts]:
        """The rows of one shard: of the docs in `received(task)`, by an engine and the shard's tokens."""

    @abstractmethod
    def known(self, tokens: pa.Table, scores: pa.Table, keys: Mapping[str, Any]) -> KnownScores:
        """The inputs behind rows of an earlier part, and their scores.

        Args:
            tokens: of some queries.
            scores: the rows of these queries.
            keys: of the stage that scored them; those that decide a score are this stage's.

        Raises:
            DataError: the rows are not those of the tokens.
        """


def path_of_checkpoint(key: str, reference: str) -> dict[str, str]:
    """The path of a checkpoint by its key; none for a Hugging Face id or embedded:NAME, the same on every machine."""
    named = "://" not in reference and not reference.startswith(("/", ".", "~"))
    return {} if named else {key: reference}


@lru_cache(maxsize=1)
def _checkpoint(reference: str, digest: str, kind: str) -> Checkpoint:
    checkpoint = resolve_checkpoint(reference, kind)
    if checkpoint.digest != digest:
        raise PreflightError(
            f"the checkpoint {reference} changed since the run was planned: its digest is "
            f"{checkpoint.digest[:12]}, the plan has {digest[:12]}. Scores of two models would be mixed: start the "
            "run again to plan it again"
        )
    return checkpoint


@lru_cache(maxsize=1)
def _engine(
    reference: str,
    digest: str,
    versions: tuple[str, ...],  # noqa: ARG001
    kind: str,
    backend: str,
    device: str,
    dtype: str,
    threads: int,
    token_budget: int,
) -> ScoringEngine:
    checkpoint = _checkpoint(reference, digest, kind)
    start = time.monotonic()
    with checkpoint.unchanged():
        engine = ScoringEngine(checkpoint, device, dtype, threads, token_budget, backend)
    load = ModelLoad(time.monotonic() - start, checkpoint.weights_bytes)
    _loads.append(load)
    _log.info("loaded %s in %.3f s", checkpoint.reference, load.seconds)
    return engine


def new_loads() -> list[ModelLoad]:
    """The models that this process has loaded since the last call."""
    taken = _loads[:]
    del _loads[: len(taken)]
    return taken
