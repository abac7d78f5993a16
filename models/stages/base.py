"""The base of all stages: a frozen dataclass that is the job of a worker, and describes itself to the rest of a run.

A stage's fields are its settings. Those marked with `Decides` are its keys: they decide the bytes of its parts and are
covered by their digests. The others, such as the place of a model, can change without a new run.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import pyarrow as pa
from pydantic import ConfigDict, TypeAdapter

from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.shards import Shard
from beamrank.commit.stage_record import ScoringWork, StageRecord
from beamrank.commit.tasks import ShardTask
from beamrank.commit.verify import Verification
from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusUnit
from beamrank.join.schemas import RowKind
from beamrank.storage.digested import DigestedFile
from models.stages.sample import Sample

CANDIDATE_BYTES = 12

# (shard, the tokens of docs that it needs)
SentTokens = tuple[int, pa.RecordBatch]


@dataclass(frozen=True)
class Decides:
    """Marks a field that decides the bytes of a stage's parts.

    `key` is its name in the configuration; names in braces are filled in from the stage. If the field's own name ends
    in `_digest`, that key holds the path or name of the digested content. A field that `selects` decides which inputs
    are scored, and not the score that an input has. A field that is `optional` is no key while it is None, so that
    digests from before it existed hold.
    """

    key: str
    selects: bool = False
    optional: bool = False


class Worker(StrEnum):
    """The kind of machine that a stage needs."""

    LAUNCHER = "launcher"
    JVM = "jvm"
    CPU = "cpu"
    MODEL_ON_CPU = "model on cpu"
    MODEL_ON_GPU = "model on gpu"


class Cost(NamedTuple):
    """At most so many inferences and bytes, and seconds on this machine with one worker."""

    inferences: int
    bytes: int
    seconds: float


# The cost of a stage for so many topics.
CostOf = Callable[[int], Cost]


class ShardWork(Protocol):
    """A stage that does each shard by itself."""

    @property
    def shards_at_a_time(self) -> int:
        """How many shards a process does at a time, a thread each."""

    def run(self, task: ShardTask) -> Receipt:
        """Does one shard and commits it."""


class CorpusJoin(Protocol):
    """A stage that needs docs: the corpus is scanned in units, and each shard is joined from the tokens it wants."""

    @property
    def max_doc_tokens(self) -> int:
        """The most tokens that are kept of a doc."""

    @property
    def vocab_size(self) -> int:
        """The number of ids of its tokenizer."""

    def wanted(self, task: ShardTask) -> Sequence[str]:
        """The doc_ids that a shard needs."""

    def scan(self, unit: CorpusUnit, file: DigestedFile, needed_url: str, folder: StageFolder) -> Iterator[SentTokens]:
        """The tokens of the needed docs of one unit, addressed to the shards that want them."""

    def join(
        self,
        task: ShardTask,
        batches: Sequence[pa.RecordBatch],
        units: Sequence[CorpusUnit],
        stored_url: str | None = None,
    ) -> Receipt:
        """Joins one shard from the tokens that reached it and those that are stored, and commits it."""


class Execution(Protocol):
    """The launcher, as a stage sees it: it executes the open shards."""

    @property
    def tasks(self) -> Sequence[ShardTask]:
        """The shards without a receipt."""

    @property
    def shards(self) -> Sequence[Shard]:
        """All shards of the plan."""

    def note(self, text: str) -> None:
        """Prints a note for the user."""

    def run_shards(self, stage: ShardWork) -> None:
        """Runs `stage.run` for each task, as one Beam job."""

    def join_corpus(self, stage: CorpusJoin) -> None:
        """Joins each task with the corpus: one Beam job with one shuffle, or several in turn."""


@dataclass(frozen=True, kw_only=True)
class Stage(ABC):
    """One stage of a run. Subclasses are frozen dataclasses that can be pickled, and import models when they run."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    type_name: ClassVar[str]
    step: ClassVar[str]
    rows: ClassVar[RowKind]
    reads_input: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def worker_on(cls, device: str) -> Worker:
        """The machines of its workers if models compute on `device`."""

    @classmethod
    def worker_paths(cls, config: RunConfig) -> dict[str, str]:  # noqa: ARG003
        """The paths that its workers read beside corpus and output, by their keys in the configuration."""
        return {}

    @classmethod
    def estimate(cls, config: RunConfig, sample: Sample) -> CostOf:  # noqa: ARG003
        """The cost for a number of topics, if all have as many candidates as possible; by default nothing."""
        return lambda _: Cost(0, 0, 0.0)

    @property
    def name(self) -> str:
        """Its folder below the output."""
        return self.step

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the stages that it reads."""
        return ()

    @property
    def run_name(self) -> str | None:
        """The name of the run that it yields."""
        return self.type_name

    @property
    def corpus(self) -> str | None:
        """The digest of the corpus, if it reads that."""
        return None

    @property
    def work(self) -> ScoringWork | None:
        """The work of its model."""
        return None

    @property
    def worker(self) -> Worker:
        """The machines of its workers."""
        return self.worker_on("cpu")

    @property
    def keys(self) -> dict[str, Any]:
        """The fields that decide the bytes of its parts, as JSON values."""
        marks, values = _decided(type(self)), _dumped(self).items()
        return {name: each for name, each in values if name in marks and (each is not None or not marks[name].optional)}

    @property
    def score_keys(self) -> dict[str, Any]:
        """The keys that decide the score of an input."""
        return {name: value for name, value in self.keys.items() if not _decided(type(self))[name].selects}

    @property
    def config_keys(self) -> dict[str, str]:
        """The name of each key in the configuration."""
        values = {"type_name": self.type_name, **vars(self)}
        return {name: mark.key.format(**values) for name, mark in _decided(type(self)).items()}

    def record(self) -> StageRecord:
        """The stage as a plan holds it."""
        keys = self.keys
        return StageRecord(
            self.type_name,
            self.name,
            self.step,
            self.rows,
            inputs=self.inputs,
            reads_input=self.reads_input,
            keys=keys,
            settings={name: value for name, value in _dumped(self).items() if name not in _decided(type(self))},
            run_name=self.run_name,
            corpus_digest=self.corpus,
            work=self.work,
        )

    @classmethod
    def of_record(cls, record: StageRecord) -> Self:
        """The stage that a plan holds.

        Raises:
            PreflightError: the plan is of another version.
        """
        try:
            stage: Self = _adapter(cls).validate_python({**record.keys, **record.settings})
        except ValueError as error:
            raise PreflightError(
                f"the plan's stage {record.name} does not have the settings of {record.type_name}: {error}. Run again "
                "to plan it again"
            ) from error
        return stage

    @abstractmethod
    def carry_out(self, execution: Execution) -> None:
        """Executes the open shards."""

    def verify(self, found: Verification) -> None:  # noqa: B027
        """Checks the inputs of the stage that still exist, and adds findings."""


class ShardStage(Stage):
    """A stage that does each shard by itself: a `ShardWork`."""

    @property
    def shards_at_a_time(self) -> int:
        """How many shards a process does at a time; by default one, because a model or the JVM uses all cores."""
        return 1

    def carry_out(self, execution: Execution) -> None:
        execution.run_shards(self)

    @abstractmethod
    def run(self, task: ShardTask) -> Receipt:
        """Does one shard and commits it."""


@lru_cache
def _adapter(stage: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(stage)


@lru_cache
def _decided(stage: type[Any]) -> dict[str, Decides]:
    marks = ((each.name, getattr(each.type, "__metadata__", ())) for each in fields(stage))
    return {name: mark for name, metadata in marks for mark in metadata if isinstance(mark, Decides)}


def _dumped(stage: Stage) -> dict[str, Any]:
    values: dict[str, Any] = _adapter(type(stage)).dump_python(stage, mode="json")
    return values
