"""The base of all stages: a frozen dataclass that is the job of a worker, and describes itself to
the rest of a run.

A stage's fields are its settings. Those marked with `Key` decide the bytes of its parts, and their
digests cover them. The others, such as the place of a model, can change without a new run.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import pyarrow as pa
from pydantic import ConfigDict

from beamrank.commit.check import Verification
from beamrank.commit.parts import ShardParts
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest
from beamrank.commit.scans import ScanReport
from beamrank.commit.stage import StageRecord, described
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.config.stages import StageConfig
from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import Lengths
from beamrank.ranking.rankings import Rankings, received
from beamrank.ranking.variants import Depths, Variants
from beamrank.storage.documents import SHORT, adapter, digest, validated
from models.scoring.answers import Answers
from models.stages.compute import Computed, ShardInputs
from models.stages.planning import Planning

FIRST = "retrieve"
"""The folder of the first stage, and its `--stage`."""
RANKED_BY = "ranked_by"
"""The key of a later stage with `rank_keys` of the stages before it."""


class Key(NamedTuple):
    """Marks a field that decides the bytes of a stage's parts.

    `name` is that of the configuration; names in braces are filled in from the stage. If the
    field's own name ends in `_digest`, the configuration has the path or name of the digested
    content. A field that `selects` decides which inputs are scored, and not the score of an input;
    one of `reranking` is a key only of a stage that `reads` others.
    """

    name: str
    selects: bool = False
    reranking: bool = False


class Worker(StrEnum):
    """The kind of machine that a stage needs."""

    JVM = "jvm"
    CPU = "cpu"
    MODEL = "model"


@dataclass(frozen=True, kw_only=True)
class Stage(ABC):
    """One stage of a run. Subclasses are frozen dataclasses that can be pickled, and import models
    when they run.

    A stage after the first re-ranks the first `k` docs of the stage before. Its inputs are the
    tokens or texts, where it needs any, then the parts of all stages that rank before it, which it
    `reads`, in order; `chain` holds these stages (`models.stages.core.open_stages`).
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    type_name: ClassVar[str]
    section: ClassVar[type[StageConfig]]
    """The keys of the configuration that are its own."""
    does: ClassVar[Literal["shards", "join", "run"]] = "shards"
    """`shards`: `compute` for each, as one Beam job; `join`: a scan of the corpus; `run`: one of a
    given run.
    """
    ranks: ClassVar[bool] = True
    """Whether its parts yield rankings."""
    needs: ClassVar[Literal["tokens", "texts"] | None] = None
    """What it reads of the docs that it receives, and of topics: `tokens`, of the tokenizer of its
    checkpoint, or `texts`.
    """
    waits_for = ""
    """The one of its inputs whose parts must all be there before any of its shards, as for
    `--deepen`: `decided` reads them. Empty for none.
    """
    reads_input: ClassVar[bool] = False
    """Whether its tasks carry the topics or rows of their shards."""
    worker = Worker.CPU
    input_docs: ClassVar[int] = 0
    """How many docs an input of its model has; 0 for a stage without one."""
    asks: ClassVar[bool] = False
    """Whether it asks for answers that cost money (`ShardInputs.ask`)."""
    any_processor: ClassVar[bool] = False
    """Whether it also reuses answers of different kinds of machines, whose last digits differ."""

    own_name: str = ""
    k: Annotated[int, Key("{own_name}.k", selects=True, reranking=True)] = 0
    # How the stages before it rank, beside their parts.
    ranked_by: Annotated[dict[str, Any], Key("", selects=True, reranking=True)] = field(
        default_factory=dict
    )
    reads: tuple[str, ...] = ()
    # The stage that makes what it needs.
    tokens: str = ""
    chain: tuple["Stage", ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def needs_workers(cls, config: RunConfig) -> bool:  # noqa: ARG003
        """Whether Beam's workers do it; otherwise the launcher."""
        return True

    @classmethod
    def read_checkpoint(cls, own: ConfiguredStage, config: RunConfig) -> Any:  # noqa: ARG003
        """The checkpoint that its section names, for `Planning.checkpoints`; by default it has
        none. A stage that `needs` tokens gives a `models.checkpoints.checkpoint.Checkpoint`.

        Raises:
            PreflightError: it is missing, or does not fit the configuration.
        """
        return None

    def cost(self, topics: int) -> int:  # noqa: ARG002
        """The inferences for so many topics, if all have as many candidates as possible."""
        return 0

    @property
    def name(self) -> str:
        """Its folder below the output."""
        return self.own_name

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of its parts."""

    @property
    def step(self) -> str:
        """Its name in `--stage`."""
        return self.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the stages whose parts it reads."""
        return (*([self.tokens] if self.tokens else []), *self.reads)

    def decided(self, plan: Any) -> Self:  # noqa: ARG002
        """The stage with what follows from all parts of `waits_for`, which is sealed: made once,
        by the launcher.
        """
        return self

    @property
    def run_name(self) -> str | None:
        """The name of the run that it yields; None where it does not rank."""
        return self.name if self.ranks else None

    @property
    def keys(self) -> dict[str, Any]:
        """The fields that decide the bytes of its parts, as JSON values."""
        return {name: value for name, value in _dumped(self).items() if name in self._keys}

    @property
    def score_keys(self) -> dict[str, Any]:
        """The keys that decide the score of an input."""
        return {name: value for name, value in self.keys.items() if not self._keys[name].selects}

    @property
    def config_keys(self) -> dict[str, str]:
        """The name of each key in the configuration."""
        values = {"type_name": self.type_name, **vars(self)}
        return {name: key.name.format(**values) for name, key in self._keys.items()}

    @property
    def _keys(self) -> dict[str, Key]:
        keys = _keys(type(self)).items()
        return {name: key for name, key in keys if self.reads or not key.reranking}

    @property
    def scan_digest(self) -> str | None:
        """Names what its scan reads, a corpus or a given run; None without a scan."""
        return None

    @property
    def method(self) -> str:
        """The name of the method in ir_metadata."""
        return self.type_name

    @property
    def described(self) -> dict[str, Any]:
        """What the metadata of a run says of it, beside its keys; None leaves a key out."""
        return {}

    @property
    def rank_keys(self) -> dict[str, Any]:
        """What decides its ranking beside its part, by the names in the configuration."""
        return {}

    @property
    def has_scores(self) -> bool:
        """Whether its rankings have scores that say more than the order, so that the next stage
        can combine its own with them; asked when a run is planned.
        """
        return True

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:  # noqa: ARG002
        """The rankings of a shard after this stage (`beamrank.commit.stage.Stage`): by default
        those before it.
        """
        return before or {}

    def parse_run_name(self, name: str) -> tuple[tuple[tuple[str, Any], ...], int | None] | None:  # noqa: ARG002
        """The settings and the `k` behind the name of a run that its parts can be ranked as; None
        for no such run.
        """
        return None

    @property
    def alternatives(self) -> Sequence[Self]:
        """The stage, and the same with other settings that its parts can be ranked with, such as
        aggregations.
        """
        return (self,)

    def variants(self, depths: Depths) -> Variants | None:  # noqa: ARG002
        """How it could have ranked: the points of a curve; by default it has none."""
        return None

    def details(self, part: pa.Table, query_id: str) -> Mapping[str, Mapping[str, Any]]:  # noqa: ARG002
        """What is shown of the docs of a query beside ranks and scores: by doc_id and name."""
        return {}

    def read_tokens(self, queries: Lengths, docs: Lengths, instructions: Lengths) -> Lengths:  # noqa: ARG002
        """How many tokens of each doc its model reads, given the lengths of all texts; by default
        all.
        """
        return docs

    def record(self) -> StageRecord:
        """The stage as a plan holds it."""
        keys = self.keys
        return StageRecord(
            self.type_name,
            self.name,
            self.step,
            described(self.schema),
            inputs=self.inputs,
            reads_input=self.reads_input,
            keys=keys,
            settings={name: value for name, value in _dumped(self).items() if name not in keys},
            run_name=self.run_name,
            corpus_digest=getattr(self, "corpus_digest", None) if self.does == "join" else None,
            scan_digest=self.scan_digest,
            input_docs=self.input_docs,
            waits_for=self.waits_for,
            asks=digest(self.score_keys)[:SHORT] if self.asks else "",
        )

    @classmethod
    def of_record(cls, record: StageRecord) -> Self:
        """The stage that a plan holds; raises PreflightError where the plan is of another
        version.
        """
        try:
            stage: Self = validated(adapter(cls), {**record.keys, **record.settings})
        except ValueError as error:
            raise PreflightError(
                f"the plan's stage {record.name} does not have the settings of "
                f"{record.type_name}: {error}. Run again to plan it again"
            ) from error
        return stage

    def review(self, manifest: Manifest, scan: ScanReport) -> list[str]:  # noqa: ARG002
        """Notes on the sealed stage and the reports of its scan; raises an error where it cannot be
        used.
        """
        return []

    def verify(self, plan: Plan, found: Verification) -> None:  # noqa: B027
        """Checks the inputs of the stage that still exist, and what was made of its parts, and adds
        findings.
        """

    @classmethod
    def from_config(cls, own: ConfiguredStage, planning: Planning) -> Self:
        """Made from its section: a field with the name of a key has its value; all others are
        `settings`.
        """
        names = {each.name for each in fields(cls)} & type(own.section).model_fields.keys()
        return cls(
            **{name: getattr(own.section, name) for name in names} | cls.settings(own, planning)
        )

    @classmethod
    def planned(cls, own: ConfiguredStage, planning: Planning) -> Sequence["Stage"]:
        """The stages of a plan that an entry of the cascade makes, in order: by default one."""
        return (cls.from_config(own, planning),)

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:
        """The fields that are not keys of its section: where it stands in the cascade."""
        return {
            "own_name": own.name,
            "ranked_by": {
                key: value for stage in planning.before for key, value in stage.rank_keys.items()
            },
            "reads": tuple(stage.name for stage in planning.before),
            "tokens": planning.tokens.get(own.name, ""),
        }

    @property
    def shards_at_a_time(self) -> int:
        """How many shards a process does at a time; by default one, because a model or the JVM uses
        all cores.
        """
        return 1

    def compute(self, inputs: ShardInputs) -> Computed:
        """Computes a shard, where the stage `does` each by itself."""
        # A `Scatter` makes the parts of a stage that scans files, and no worker calls this.
        raise NotImplementedError

    def known_answers(self, part: pa.Table, tokens: pa.Table) -> Answers:  # noqa: ARG002
        """What rows of a part answer, by content: by default nothing. `tokens`, or texts, have the
        columns `models.scoring.answers.CONTENTS` of the same queries.
        """
        return {}

    @property
    def reuses(self) -> bool:
        """Whether it reuses what parts of earlier runs answer."""
        return type(self).known_answers is not Stage.known_answers

    def parts_before(self, inputs: ShardInputs) -> ShardParts:
        """The parts of the stages before, from which the rankings follow that this stage
        re-ranks.
        """
        return ShardParts(inputs.shard, self.chain, inputs.read)

    def count(self, inputs: ShardInputs) -> int:
        """How many inferences `compute` makes, at most; none is made."""
        return self.cost(len(self.received(inputs)))

    def least(self, inputs: ShardInputs) -> int:
        """How many it makes at least, where `count` is a bound."""
        return self.count(inputs)

    def allow(self, inferences: Callable[[], int]) -> None:  # noqa: B027
        """Raises an error where a stage that `asks` may not make so many, which it need not count:
        before its first shard, after reuse, and before an audit.
        """

    def received(self, inputs: ShardInputs) -> dict[str, Sequence[str]]:
        """The docs of each query of a shard that this stage scores, best first: only docs that the
        stage before scored.
        """
        return received(self.parts_before(inputs).rankings(self.chain[-1].name), self.k)


@lru_cache
def _keys(stage: type[Any]) -> dict[str, Key]:
    marks = ((each.name, getattr(each.type, "__metadata__", ())) for each in fields(stage))
    return {name: mark for name, metadata in marks for mark in metadata if isinstance(mark, Key)}


def _dumped(stage: Stage) -> dict[str, Any]:
    values: dict[str, Any] = adapter(type(stage)).dump_python(stage, mode="json", exclude={"chain"})
    return values
